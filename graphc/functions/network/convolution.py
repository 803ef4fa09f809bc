"""Convolutions of sequences and volumes, written as conv2d, and the windows of images."""

from __future__ import annotations

from functools import reduce

import numpy as np

from graphc import ops
from graphc.functions.array.elementwise.elementwise import add
from graphc.functions.array.elementwise.precision import in_float32, of_products
from graphc.functions.array.shape.rearrange import swapaxes
from graphc.functions.array.shape.shapes import concat, expand_dims, permute_dims, reshape, squeeze
from graphc.functions.array.tensors import as_tensor, error, promoted
from graphc.functions.network.contraction import conv2d, conv_transpose2d
from graphc.functions.network.windows import (
    Size,
    bias_of_channels,
    check_output_padding,
    check_transposed,
    of_images,
    pair,
    single,
    triple,
    with_weight,
)
from graphc.ir import TensorLike
from graphc.trace import Tensor, emit


@of_images(3)
def conv3d(
    x: TensorLike,
    weight: TensorLike,
    bias: TensorLike | None = None,
    stride: Size = 1,
    padding: Size = 0,
    dilation: Size = 1,
    groups: int = 1,
) -> Tensor:
    """Convolve volumes, as cross-correlation.

    It is one conv2d whose images are the depths of the result and whose channels are those of `x`
    at each depth that the filter covers.

    Args:
        x: Volumes [n, c, d, h, w], or one volume [c, d, h, w].
        weight: Filters [k, c / groups, t, r, s].
        bias: Added to each output channel [k].
        stride: The step of the filter: one number or (depth, rows, columns).
        padding: Zeros around the volumes, as in `conv2d`.
        dilation: The distance between taps of the filter.
        groups: The number of groups of channels that are convolved separately.

    Returns:
        Volumes [n, k, o, p, q] or [k, o, p, q].

    Raises:
        GraphError: The shapes or sizes do not fit.

    Example:
        >>> x, w = np.ones((1, 1, 3, 3, 3), np.float32), np.ones((4, 1, 2, 2, 2), np.float32)
        >>> graphc.compile(lambda: graphc.conv3d(x, w))().shape
        (1, 4, 2, 2, 2)
    """
    tensor, w = with_weight("conv3d", x, weight, 5)
    steps, spacing = triple("conv3d", "stride", stride), triple("conv3d", "dilation", dilation)
    around = triple("conv3d", "padding", padding, at_least=0)
    slices = _depths(tensor, w.shape[2], steps[0], around[0], spacing[0])
    n, c, taps, depth, *image = slices.shape
    images = reshape(permute_dims(slices, (0, 3, 1, 2, 4, 5)), (n * depth, c * taps, *image))
    kernel = reshape(w, (w.shape[0], w.shape[1] * taps, *w.shape[3:]))
    y = conv2d(images, kernel, bias, steps[1:], around[1:], spacing[1:], groups)
    return swapaxes(reshape(y, (n, depth, *y.shape[1:])), 1, 2)


def _depths(x: Tensor, taps: int, stride: int, padding: int, dilation: int) -> Tensor:
    """[n, c, taps, depth, h, w]: what each tap meets at each depth of the result."""
    low = (0, 0, padding, 0, 0)
    padded = emit(ops.Pad(low, low, (0,) * 5), x) if padding else x
    depth = (padded.shape[2] - dilation * (taps - 1) - 1) // stride + 1
    if depth < 1:
        raise error(f"conv3d: {taps} taps of weight do not fit the depth of x {x.value.type}")
    reach = (depth - 1) * stride + 1
    starts = [tap * dilation for tap in range(taps)]
    parts = [expand_dims(padded[:, :, s : s + reach : stride], 2) for s in starts]
    return concat(parts, 2) if taps > 1 else parts[0]


@of_images(1)
def conv_transpose1d(
    x: TensorLike,
    weight: TensorLike,
    bias: TensorLike | None = None,
    stride: Size = 1,
    padding: Size = 0,
    output_padding: Size = 0,
    groups: int = 1,
    dilation: Size = 1,
) -> Tensor:
    """Apply the transpose of a convolution of sequences: the gradient of `conv1d` in its input.

    Args:
        x: Sequences [n, k, q], or one sequence [k, q].
        weight: Filters [k, c / groups, s].
        bias: Added to each output channel [c].
        stride: The step of the filter in the result.
        padding: How much is cut from each end of the result.
        output_padding: How much the result is longer, below stride or dilation.
        groups: The number of groups of channels that are convolved separately.
        dilation: The distance between taps of the filter.

    Returns:
        Sequences [n, c, w], of a length as in `conv_transpose2d`.

    Raises:
        GraphError: The shapes or sizes do not fit.

    Example:
        >>> x, w = np.ones((1, 1, 2), np.float32), np.ones((1, 1, 2), np.float32)
        >>> graphc.compile(lambda: graphc.conv_transpose1d(x, w, stride=2))()
        array([[[1., 1., 1., 1.]]], dtype=float32)
    """
    name = "conv_transpose1d"
    tensor, w = with_weight(name, x, weight, 3)
    y = conv_transpose2d(
        expand_dims(tensor, 2),
        expand_dims(w, 2),
        bias,
        (1, single(name, "stride", stride)),
        (0, single(name, "padding", padding, at_least=0)),
        (0, single(name, "output_padding", output_padding, at_least=0)),
        groups,
        (1, single(name, "dilation", dilation)),
    )
    return squeeze(y, 2)


@of_images(3)
@of_products
@in_float32
def conv_transpose3d(
    x: TensorLike,
    weight: TensorLike,
    bias: TensorLike | None = None,
    stride: Size = 1,
    padding: Size = 0,
    output_padding: Size = 0,
    groups: int = 1,
    dilation: Size = 1,
) -> Tensor:
    """Apply the transpose of a convolution of volumes: the gradient of `conv3d` in its input.

    It is one conv_transpose2d of the depths of `x`, with a channel for each depth of the filter,
    whose results are added to the depths that they reach. f16 and bf16 are computed in f32 and
    rounded once.

    Args:
        x: Volumes [n, k, o, p, q], or one volume [k, o, p, q].
        weight: Filters [k, c / groups, t, r, s].
        bias: Added to each output channel [c].
        stride: The step of the filter in the result: one number or (depth, rows, columns).
        padding: How much is cut from each side of the result.
        output_padding: How much the result is larger at its end, below stride or dilation.
        groups: The number of groups of channels that are convolved separately.
        dilation: The distance between taps of the filter.

    Returns:
        Volumes [n, c, d, h, w], of a size as in `conv_transpose2d`.

    Raises:
        GraphError: The shapes or sizes do not fit.

    Example:
        >>> x, w = np.ones((1, 1, 2, 2, 2), np.float32), np.ones((1, 4, 2, 2, 2), np.float32)
        >>> graphc.compile(lambda: graphc.conv_transpose3d(x, w))().shape
        (1, 4, 3, 3, 3)
    """
    name = "conv_transpose3d"
    tensor, w = promoted(x, weight)
    check_transposed(name, tensor, w, 5, groups)
    steps, spacing = triple(name, "stride", stride), triple(name, "dilation", dilation)
    around = triple(name, "padding", padding, at_least=0)
    extra = triple(name, "output_padding", output_padding, at_least=0)
    check_output_padding(name, extra, steps, spacing)
    n, k, depth, *image = tensor.shape
    taps, channels = w.shape[2], w.shape[1] * groups
    images = reshape(swapaxes(tensor, 1, 2), (n * depth, k, *image))
    kernel = reshape(w, (k, w.shape[1] * taps, *w.shape[3:]))
    y = conv_transpose2d(
        images, kernel, None, steps[1:], around[1:], extra[1:], groups, spacing[1:]
    )
    slices = reshape(y, (n, depth, channels, taps, *y.shape[2:]))
    total = _added(permute_dims(slices, (3, 0, 2, 1, 4, 5)), steps[0], spacing[0], extra[0])
    left = total.shape[2] - 2 * around[0]
    if left < 1:
        raise error(f"{name}: padding {around} leaves nothing of x {tensor.value.type}")
    inner = total[:, :, around[0] : around[0] + left] if around[0] else total
    if bias is None:
        return inner
    return add(inner, reshape(bias_of_channels(name, bias, channels), (1, -1, 1, 1, 1)))


def _added(slices: Tensor, stride: int, dilation: int, more: int) -> Tensor:
    """Add the results of each tap in depth at the depths that it reaches: [n, c, d, h, w].

    `slices` is [taps, n, c, depth, h, w]; tap t reaches depth * stride + t * dilation. `more` is
    the number of depths after them.
    """
    taps = slices.shape[0]
    apart = (0, 0, stride - 1, 0, 0)

    def placed(tap: int) -> Tensor:
        before, behind = dilation * tap, dilation * (taps - 1 - tap) + more
        return emit(ops.Pad((0, 0, before, 0, 0), (0, 0, behind, 0, 0), apart), slices[tap])

    return reduce(add, map(placed, range(taps)))


@of_images(2)
def unfold(
    x: TensorLike, kernel_size: Size, dilation: Size = 1, padding: Size = 0, stride: Size = 1
) -> Tensor:
    """Return the windows of images as columns.

    Args:
        x: Images [n, c, h, w], or one image [c, h, w].
        kernel_size: The size of the windows: one number or (rows, columns).
        dilation: The distance between elements of a window.
        padding: Zeros around the images.
        stride: The step of the windows.

    Returns:
        Columns [n, c * r * s, p * q].

    Raises:
        GraphError: The shapes or sizes do not fit.

    Example:
        >>> graphc.compile(lambda: graphc.unfold(np.ones((1, 3, 4, 4)), 2))().shape
        (1, 12, 9)
    """
    tensor = as_tensor(x)
    if tensor.ndim != 4:
        raise error(f"unfold: expected x of 4 axes, got {tensor.value.type}")
    r, s = pair("unfold", "kernel_size", kernel_size)
    (down, right), (dy, dx) = pair("unfold", "stride", stride), pair("unfold", "dilation", dilation)
    low = (0, 0, *pair("unfold", "padding", padding, at_least=0))
    padded = emit(ops.Pad(low, low, (0,) * 4), tensor) if any(low) else tensor
    n, c, height, width = padded.shape
    p, q = (height - dy * (r - 1) - 1) // down + 1, (width - dx * (s - 1) - 1) // right + 1
    if p < 1 or q < 1:
        raise error(f"unfold: windows {(r, s)} do not fit x {tensor.value.type}")
    parts = []
    for i in range(0, r * dy, dy):
        for j in range(0, s * dx, dx):
            rows = slice(i, i + (p - 1) * down + 1, down)
            part = padded[:, :, rows, j : j + (q - 1) * right + 1 : right]
            parts.append(reshape(part, (n, c, 1, p * q)))
    return reshape(concat(parts, 2), (n, c * r * s, p * q))


@of_images(1)
def fold(
    x: TensorLike,
    output_size: Size,
    kernel_size: Size,
    dilation: Size = 1,
    padding: Size = 0,
    stride: Size = 1,
) -> Tensor:
    """Add up windows to images, the transpose of `unfold`.

    Args:
        x: Columns [n, c * r * s, p * q], or [c * r * s, p * q].
        output_size: The size of the images: one number or (rows, columns).
        kernel_size: The size of the windows.
        dilation: The distance between elements of a window.
        padding: How much is cut from each side of the images.
        stride: The step of the windows.

    Returns:
        Images [n, c, *output_size]; elements add up where windows overlap.

    Raises:
        GraphError: The shapes or sizes do not fit.

    Example:
        >>> graphc.compile(lambda: graphc.fold(np.ones((1, 12, 9)), 4, 2))().shape
        (1, 3, 4, 4)
    """
    tensor = as_tensor(x)
    r, s = pair("fold", "kernel_size", kernel_size)
    height, width = pair("fold", "output_size", output_size)
    steps, spacing = pair("fold", "stride", stride), pair("fold", "dilation", dilation)
    around = pair("fold", "padding", padding, at_least=0)
    p, q = (
        (n + 2 * a - d * (k - 1) - 1) // step + 1
        for n, a, d, k, step in zip((height, width), around, spacing, (r, s), steps, strict=True)
    )
    if tensor.ndim != 3 or tensor.shape[1] % (r * s) or tensor.shape[2] != p * q:
        raise error(
            f"fold: expected x [n, c * {r * s}, {p * q}] for images {(height, width)}, got "
            f"{tensor.value.type}"
        )
    n, channels = tensor.shape[0], tensor.shape[1] // (r * s)
    # The transposed convolution whose every input channel is one place of the window.
    taps = as_tensor(np.eye(r * s).reshape(r * s, 1, r, s), tensor.dtype)
    images = reshape(tensor, (n * channels, r * s, p, q))
    y = emit(ops.Conv2dDgrad(steps, around, spacing, 1, (height, width)), images, taps)
    return reshape(y, (n, channels, height, width))
