"""Matrix products and convolutions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from graphc import functions as f
from graphc.onnx.operators.rules import UnsupportedError, each, operator
from graphc.trace import Tensor

CONVOLUTIONS: dict[int, Callable[..., Tensor]] = {1: f.conv1d, 2: f.conv2d, 3: f.conv3d}
_TRANSPOSED: dict[int, Callable[..., Tensor]] = {
    1: f.conv_transpose1d,
    2: f.conv_transpose2d,
    3: f.conv_transpose3d,
}


@operator("MatMul")
def matmul(a: Tensor, b: Tensor) -> Tensor:
    if a.dtype in ("i32", "i64", "u8", "i8"):
        wide = f.matmul(f.astype(a, "f64"), f.astype(b, "f64"))
        return f.astype(wide, a.dtype)
    return f.matmul(a, b)


@operator("Gemm")
def gemm(
    a: Tensor,
    b: Tensor,
    c: Tensor | None = None,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,
    transB: int = 0,
    broadcast: int = 0,
) -> Tensor:
    product = matmul(f.matrix_transpose(a) if transA else a, f.matrix_transpose(b) if transB else b)
    if alpha != 1:
        product = f.multiply(product, alpha)
    if c is None:
        return product
    return f.add(product, c if beta == 1 else f.multiply(c, beta))


@operator("Einsum")
def einsum(*arrays: Tensor, equation: str = "") -> Tensor:
    return f.einsum(equation.replace(" ", ""), *arrays)


def windows(
    extents: Sequence[int],
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    pads: Sequence[int] | None,
    auto_pad: str,
) -> list[tuple[int, int]]:
    """(before, after) of each axis."""
    axes = len(extents)
    if auto_pad == "VALID":
        return [(0, 0)] * axes
    if auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        widths = []
        for n, k, s, d in zip(extents, kernel, strides, dilations, strict=True):
            total = max((-(-n // s) - 1) * s + d * (k - 1) + 1 - n, 0)
            small, large = total // 2, total - total // 2
            widths.append((small, large) if auto_pad == "SAME_UPPER" else (large, small))
        return widths
    given = list(pads) if pads else [0] * 2 * axes
    return list(zip(given[:axes], given[axes:], strict=True))


def axes_of_images(x: Tensor, known: dict[int, Any]) -> int:
    """The number of axes behind the channels, or UnsupportedError."""
    axes = x.ndim - 2
    if axes not in known:
        raise UnsupportedError(f"images of {axes} axes are not offered")
    return axes


@operator("Conv")
def conv(
    x: Tensor,
    w: Tensor,
    b: Tensor | None = None,
    auto_pad: str = "NOTSET",
    dilations: Any = None,
    group: int = 1,
    kernel_shape: Any = None,
    pads: Any = None,
    strides: Any = None,
) -> Tensor:
    axes = axes_of_images(x, CONVOLUTIONS)
    step, apart = each(strides, axes, 1), each(dilations, axes, 1)
    widths = windows(x.shape[2:], w.shape[2:], step, apart, pads, auto_pad)
    x, around = padded(x, widths)
    return CONVOLUTIONS[axes](x, w, b, step, around, apart, group)


def padded(x: Tensor, widths: Sequence[tuple[int, int]]) -> tuple[Tensor, tuple[int, ...]]:
    """x, and how wide its padding is on both sides of each axis: padded where they differ."""
    if all(before == after for before, after in widths):
        return x, tuple(before for before, _ in widths)
    return f.pad(x, [(0, 0), (0, 0), *widths]), (0,) * len(widths)


@operator("ConvTranspose")
def conv_transpose(
    x: Tensor,
    w: Tensor,
    b: Tensor | None = None,
    auto_pad: str = "NOTSET",
    dilations: Any = None,
    group: int = 1,
    kernel_shape: Any = None,
    output_padding: Any = None,
    output_shape: Any = None,
    pads: Any = None,
    strides: Any = None,
) -> Tensor:
    """Without padding, then cut to the size that is asked for."""
    axes = axes_of_images(x, _TRANSPOSED)
    step, apart = each(strides, axes, 1), each(dilations, axes, 1)
    more = each(output_padding, axes, 0)
    reach = [d * (k - 1) + 1 for d, k in zip(apart, w.shape[2:], strict=True)]
    whole = [(n - 1) * s + r for n, s, r in zip(x.shape[2:], step, reach, strict=True)]
    if auto_pad.startswith("SAME") and not output_shape:
        output_shape = [n * s for n, s in zip(x.shape[2:], step, strict=True)]
    if output_shape:
        wanted = list(output_shape)[-axes:]
        total = [max(n + m - out, 0) for n, m, out in zip(whole, more, wanted, strict=True)]
        before = [t // 2 if auto_pad == "SAME_UPPER" else t - t // 2 for t in total]
    else:
        given = [0] * 2 * axes if auto_pad == "VALID" or not pads else list(pads)
        before = given[:axes]
        wanted = [
            n + m - low - high
            for n, m, low, high in zip(whole, more, before, given[axes:], strict=True)
        ]
    y = _TRANSPOSED[axes](x, w, None, step, 0, 0, group, apart)
    kept = [slice(p, min(p + n, m)) for p, n, m in zip(before, wanted, whole, strict=True)]
    y = y[(slice(None), slice(None), *kept)]
    widths = [(0, n - m) for n, m in zip(wanted, y.shape[2:], strict=True)]
    y = f.pad(y, [(0, 0), (0, 0), *widths]) if any(map(any, widths)) else y
    return y if b is None else f.add(y, f.reshape(b, (-1, *[1] * axes)))


def windowed_sum(
    x: Tensor, kernel: Sequence[int], step: Sequence[int], apart: Sequence[int]
) -> Tensor:
    """The sum over each window of each channel: a convolution with ones."""
    axes = axes_of_images(x, CONVOLUTIONS)
    channels = x.shape[1]
    images = f.reshape(x, (x.shape[0] * channels, 1, *x.shape[2:]))
    ones = f.ones((1, 1, *kernel), x.dtype)
    y = CONVOLUTIONS[axes](images, ones, None, list(step), 0, list(apart))
    return f.reshape(y, (x.shape[0], channels, *y.shape[2:]))
