"""Fully connected layers and convolutions."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from graphc import ops
from graphc.functions.array.elementwise.elementwise import multiply
from graphc.functions.array.elementwise.precision import biased, factors, with_bias
from graphc.functions.array.linear.matrix_product import matmul
from graphc.functions.array.shape.padding import pad
from graphc.functions.array.shape.shapes import expand_dims, matrix_transpose, reshape
from graphc.functions.array.tensors import as_tensor, error, promoted
from graphc.functions.network.windows import (
    Size,
    bias_of_channels,
    check_output_padding,
    check_transposed,
    of_images,
    pair,
    single,
    with_weight,
)
from graphc.ir import TensorLike
from graphc.trace import Tensor, emit


def linear(x: TensorLike, weight: TensorLike, bias: TensorLike | None = None) -> Tensor:
    """Apply a linear map: x @ weight.T + bias.

    Args:
        x: The input [..., in].
        weight: The matrix [out, in].
        bias: Added to the result [out].

    Returns:
        A tensor [..., out].

    Raises:
        GraphError: The weight is no matrix, or the sizes do not fit.

    Example:
        >>> graphc.compile(lambda: graphc.linear([1.0, 2.0], [[1.0, 1.0]], [10.0]))()
        array([13.], dtype=float32)
    """
    tensor, w = factors(x, weight)
    if w.ndim != 2:
        raise error(f"linear: expected a weight of 2 axes, got {w.value.type}")
    if not tensor.ndim or tensor.shape[-1] != w.shape[1]:
        features = f"has {tensor.shape[-1]} features" if tensor.ndim else "has no axes"
        raise error(
            f"linear: x {tensor.value.type} {features}, weight {w.value.type} expects {w.shape[1]}"
        )

    def product(x: Tensor, weight: Tensor) -> Tensor:
        return matmul(x, matrix_transpose(weight))

    if bias is None:
        return product(tensor, w)
    return biased(product, tensor, w, _bias("linear", bias, w))


def bilinear(
    x1: TensorLike, x2: TensorLike, weight: TensorLike, bias: TensorLike | None = None
) -> Tensor:
    """Apply a bilinear map: y[..., k] = sum of x1[..., i] * weight[k, i, j] * x2[..., j] over i, j.

    Args:
        x1: The first input [..., in1].
        x2: The second input [..., in2].
        weight: The weight [out, in1, in2].
        bias: Added to the result [out].

    Returns:
        A tensor [..., out].

    Raises:
        GraphError: The sizes do not fit.

    Example:
        >>> graphc.compile(lambda: graphc.bilinear([1.0], [2.0, 3.0], [[[1.0, 1.0]]]))()
        array([5.], dtype=float32)
    """
    a, b, w = promoted(x1, x2, weight)
    fits = w.ndim == 3 and a.shape[-1:] == w.shape[1:2] and b.shape[-1:] == w.shape[2:]
    if not fits or a.shape[:-1] != b.shape[:-1]:
        raise error(
            f"bilinear: x1 {a.value.type} and x2 {b.value.type} do not fit weight {w.value.type}"
        )
    k, i, j = w.shape
    products = multiply(expand_dims(a, -1), expand_dims(b, -2))
    y = linear(reshape(products, (*a.shape[:-1], i * j)), reshape(w, (k, i * j)))
    return y if bias is None else with_bias(y, as_tensor(bias))


@of_images(2)
def conv2d(
    x: TensorLike,
    weight: TensorLike,
    bias: TensorLike | None = None,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] | str = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
) -> Tensor:
    """Convolve images, as cross-correlation.

    Args:
        x: Images [n, c, h, w], or one image [c, h, w].
        weight: Filters [k, c / groups, r, s].
        bias: Added to each output channel [k].
        stride: The step of the filter: one number or (rows, columns).
        padding: Zeros around the images: one number, (rows, columns), "valid" for none, or "same",
            which keeps the size with stride 1.
        dilation: The distance between taps of the filter: one number or (rows, columns).
        groups: The number of groups of channels that are convolved separately.

    Returns:
        Images [n, k, p, q] or [k, p, q], with p = (h + 2 * padding - dilation * (r - 1) - 1) //
        stride + 1.

    Raises:
        GraphError: The shapes or sizes do not fit.

    Example:
        >>> x, w = np.ones((1, 1, 3, 3), np.float32), np.ones((1, 1, 2, 2), np.float32)
        >>> graphc.compile(lambda: graphc.conv2d(x, w))()
        array([[[[4., 4.],
                 [4., 4.]]]], dtype=float32)
    """
    tensor, w = factors(x, weight)
    steps = pair("conv2d", "stride", stride)
    spacing = pair("conv2d", "dilation", dilation)
    if not isinstance(groups, int) or groups < 1:
        raise error(f"conv2d: groups expected a positive integer, got {groups!r}")
    if isinstance(padding, str):
        tensor, around = _named_padding(tensor, w, padding, steps, spacing)
    else:
        around = pair("conv2d", "padding", padding, at_least=0)
    op = ops.Conv2d(steps, around, spacing, groups)
    if bias is None:
        return emit(op, tensor, w)
    return biased(partial(emit, op), tensor, w, reshape(_bias("conv2d", bias, w), (1, -1, 1, 1)))


@of_images(1)
def conv1d(
    x: TensorLike,
    weight: TensorLike,
    bias: TensorLike | None = None,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] | str = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
) -> Tensor:
    """Convolve sequences, as cross-correlation.

    Args:
        x: Sequences [n, c, w], or one sequence [c, w].
        weight: Filters [k, c / groups, s].
        bias: Added to each output channel [k].
        stride: The step of the filter.
        padding: Zeros at both ends, "valid" for none, or "same", which keeps the size with stride
            1.
        dilation: The distance between taps of the filter.
        groups: The number of groups of channels that are convolved separately.

    Returns:
        Sequences [n, k, q] or [k, q].

    Raises:
        GraphError: The shapes or sizes do not fit.

    Example:
        >>> x, w = np.ones((1, 1, 4), np.float32), np.ones((1, 1, 3), np.float32)
        >>> graphc.compile(lambda: graphc.conv1d(x, w))()
        array([[[3., 3.]]], dtype=float32)
    """
    tensor, w = with_weight("conv1d", x, weight, 3)
    step, spacing = single("conv1d", "stride", stride), single("conv1d", "dilation", dilation)
    around: Size | str = padding
    if not isinstance(padding, str):
        around = (0, single("conv1d", "padding", padding, at_least=0))
    images, taps = (reshape(t, (*t.shape[:2], 1, t.shape[2])) for t in (tensor, w))
    y = conv2d(images, taps, bias, (1, step), around, (1, spacing), groups)
    return reshape(y, (*y.shape[:2], y.shape[3]))


@of_images(2)
def conv_transpose2d(
    x: TensorLike,
    weight: TensorLike,
    bias: TensorLike | None = None,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    output_padding: int | Sequence[int] = 0,
    groups: int = 1,
    dilation: int | Sequence[int] = 1,
) -> Tensor:
    """Apply the transpose of a convolution: the gradient of `conv2d` with respect to its input.

    Args:
        x: Images [n, k, p, q], or one image [k, p, q].
        weight: Filters [k, c / groups, r, s].
        bias: Added to each output channel [c].
        stride: The step of the filter in the result: one number or (rows, columns).
        padding: How much is cut from each side of the result: one number or (rows, columns).
        output_padding: How much the result is larger at its end, below stride or dilation.
        groups: The number of groups of channels that are convolved separately.
        dilation: The distance between taps of the filter: one number or (rows, columns).

    Returns:
        Images [n, c, h, w], with h = (p - 1) * stride - 2 * padding + dilation * (r - 1) +
        output_padding + 1.

    Raises:
        GraphError: The shapes or sizes do not fit.

    Example:
        >>> x, w = np.ones((1, 1, 2, 2), np.float32), np.ones((1, 1, 2, 2), np.float32)
        >>> graphc.compile(lambda: graphc.conv_transpose2d(x, w))()
        array([[[[1., 2., 1.],
                 [2., 4., 2.],
                 [1., 2., 1.]]]], dtype=float32)
    """
    name = "conv_transpose2d"
    tensor, w = factors(x, weight)
    steps, spacing = pair(name, "stride", stride), pair(name, "dilation", dilation)
    around = pair(name, "padding", padding, at_least=0)
    extra = pair(name, "output_padding", output_padding, at_least=0)
    check_transposed(name, tensor, w, 4, groups)
    check_output_padding(name, extra, steps, spacing)
    more = tuple(e // s for e, s in zip(extra, steps, strict=True))
    if any(more):  # as a convolution has it, its output is not shorter than x
        tensor = pad(tensor, [(0, 0), (0, 0), *((0, m) for m in more)])
        extra = extra[0] % steps[0], extra[1] % steps[1]
    height, width = (
        (tensor.shape[2 + i] - 1) * steps[i]
        - 2 * around[i]
        + spacing[i] * (w.shape[2 + i] - 1)
        + extra[i]
        + 1
        for i in (0, 1)
    )
    if height < 1 or width < 1:
        raise error(f"{name}: padding {around} leaves nothing of x {tensor.value.type}")
    op = ops.Conv2dDgrad(steps, around, spacing, groups, (height, width))
    if bias is None:
        return emit(op, tensor, w)
    b = bias_of_channels(name, bias, w.shape[1] * groups)
    return biased(partial(emit, op), tensor, w, reshape(b, (1, -1, 1, 1)))


def _named_padding(
    x: Tensor, w: Tensor, padding: str, stride: tuple[int, int], dilation: tuple[int, int]
) -> tuple[Tensor, tuple[int, int]]:
    """x and the padding that the op adds on both sides; an odd total is padded before."""
    if padding == "valid":
        return x, (0, 0)
    if padding != "same":
        raise error(f'conv2d: padding expected numbers, "same" or "valid", got {padding!r}')
    if stride != (1, 1):
        raise error(f'conv2d: padding="same" expected stride 1, got {stride}')
    if w.ndim != 4:
        return x, (0, 0)  # which the op reports
    total = [d * (taps - 1) for d, taps in zip(dilation, w.shape[2:], strict=True)]
    if any(t % 2 for t in total):
        x = pad(x, [(0, 0), (0, 0), (0, total[0] % 2), (0, total[1] % 2)])
    return x, (total[0] // 2, total[1] // 2)


def _bias(name: str, bias: TensorLike, weight: Tensor) -> Tensor:
    tensor = as_tensor(bias)
    if tensor.shape != weight.shape[:1]:
        raise error(
            f"{name}: bias {tensor.value.type} does not fit weight {weight.value.type}, "
            f"which expects [{weight.shape[0]}]"
        )
    return tensor
