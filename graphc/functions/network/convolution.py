"""Convolutions of other ranks than images have, from conv2d."""

from __future__ import annotations

from functools import reduce

import numpy as np

from graphc import ops
from graphc.functions.array.elementwise.elementwise import add
from graphc.functions.array.elementwise.precision import in_float32
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
    """The cross-correlation of x [n, c, d, h, w] with `weight` [k, c / groups, t, r, s], plus
    `bias` [k]: [n, k, o, p, q]. `stride`, `padding` and `dilation` are one number or (depth, rows,
    columns).

    One conv2d, whose images are the depths of the result and whose channels are those of x at each
    depth that `weight` covers.
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
    """The transposed convolution of x [n, k, q] with `weight` [k, c / groups, s], plus `bias` [c]:
    [n, c, w]. Arguments as of `conv_transpose2d`."""
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
    """The transposed convolution of x [n, k, o, p, q] with `weight` [k, c / groups, t, r, s], plus
    `bias` [c]: [n, c, d, h, w]. Arguments as of `conv_transpose2d`.

    One conv_transpose2d of the depths of x as images, with a channel of the result for each tap of
    `weight` in depth; each tap's images are added to the depths that it reaches. Of f16 and bf16
    all of it is computed in f32 and rounded once.
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
    """The depths [n, c, d, h, w] to which each tap of `slices` [taps, n, c, depth, h, w] adds its
    own: of `stride` times the depth plus `dilation` times the tap. `more`: depths behind them."""
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
    """The windows of x [n, c, h, w] as columns: [n, c * r * s, p * q]."""
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
    """The images [n, c, *output_size] whose windows are the columns of x [n, c * r * s, p * q], as
    `unfold` gives them; windows add up where they overlap."""
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
