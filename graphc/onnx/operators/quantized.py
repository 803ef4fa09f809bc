"""Numbers as small integers: y = round(x / scale) + zero point, within the bounds of the dtype."""

from __future__ import annotations

from typing import Any

from graphc import functions as f
from graphc.onnx.dtypes import dtype_from
from graphc.onnx.operators.products import conv
from graphc.onnx.operators.rules import highest, lowest, operator, wide
from graphc.trace import Tensor

_EXACT = "f64"
"""Sums of products of bytes are exact in it."""


def _spread(value: Tensor, x: Tensor, axis: int, block_size: int) -> Tensor:
    """Broadcast a scale or zero point: one for all, per element of an axis, or per block."""
    if block_size and value.ndim == x.ndim:
        repeated = f.repeat(value, block_size, axis)
        return repeated[(*[slice(None)] * (axis % x.ndim), slice(0, x.shape[axis]))]
    if value.ndim != 1 or value.size == 1:
        return f.reshape(value, ()) if value.size == 1 else value
    shape = [1] * x.ndim
    shape[axis] = value.size
    return f.reshape(value, shape)


def _within(y: Tensor, dtype: str) -> Tensor:
    return f.astype(f.clip(y, float(lowest(dtype)), float(highest(dtype))), dtype)


@operator("QuantizeLinear")
def quantize_linear(
    x: Tensor,
    scale: Tensor,
    zero_point: Tensor | None = None,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
    precision: int = 0,
    saturate: int = 1,
) -> Tensor:
    kind = dtype_from(output_dtype) if output_dtype else "u8"
    y = f.round(f.divide(wide(x), wide(_spread(scale, x, axis, block_size))))
    if zero_point is not None:
        kind = zero_point.dtype
        y = f.add(y, f.astype(_spread(zero_point, x, axis, block_size), y.dtype))
    return _within(y, kind)


@operator("DequantizeLinear")
def dequantize_linear(
    x: Tensor,
    scale: Tensor,
    zero_point: Tensor | None = None,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
) -> Tensor:
    y = f.astype(x, "f32")
    if zero_point is not None:
        y = f.subtract(y, f.astype(_spread(zero_point, x, axis, block_size), "f32"))
    y = f.multiply(y, wide(_spread(scale, x, axis, block_size)))
    return f.astype(y, dtype_from(output_dtype) if output_dtype else scale.dtype)


@operator("DynamicQuantizeLinear")
def dynamic_quantize_linear(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(y, its scale, its zero point): u8 from the smallest to the largest element, and 0."""
    low, high = f.minimum(f.min(x), 0.0), f.maximum(f.max(x), 0.0)
    scale = f.divide(f.subtract(high, low), 255.0)
    zero = _within(f.round(f.divide(f.negative(low), scale)), "u8")
    return quantize_linear(x, scale, zero), scale, zero


def _centred(x: Tensor, zero_point: Tensor | None, axis: int) -> Tensor:
    exact = f.astype(x, _EXACT)
    if zero_point is None:
        return exact
    zero = f.astype(zero_point, _EXACT)
    if zero.ndim == 1 and zero.size > 1:
        shape = [1] * x.ndim
        shape[axis] = zero.size
        zero = f.reshape(zero, shape)
    return f.subtract(exact, f.reshape(zero, ()) if zero.size == 1 else zero)


@operator("MatMulInteger")
def matmul_integer(
    a: Tensor, b: Tensor, a_zero: Tensor | None = None, b_zero: Tensor | None = None
) -> Tensor:
    return f.astype(f.matmul(_centred(a, a_zero, -2), _centred(b, b_zero, -1)), "i32")


@operator("ConvInteger")
def conv_integer(
    x: Tensor,
    w: Tensor,
    x_zero: Tensor | None = None,
    w_zero: Tensor | None = None,
    auto_pad: str = "NOTSET",
    dilations: Any = None,
    group: int = 1,
    kernel_shape: Any = None,
    pads: Any = None,
    strides: Any = None,
) -> Tensor:
    exact = (_centred(x, x_zero, 1), _centred(w, w_zero, 0))
    y = conv(*exact, None, auto_pad, dilations, group, kernel_shape, pads, strides)
    return f.astype(y, "i32")


def _requantized(y: Tensor, factor: Tensor, zero_point: Tensor) -> Tensor:
    scaled = f.round(f.multiply(y, f.astype(factor, y.dtype)))
    return _within(f.add(scaled, f.astype(zero_point, y.dtype)), zero_point.dtype)


@operator("QLinearMatMul")
def qlinear_matmul(
    a: Tensor,
    a_scale: Tensor,
    a_zero: Tensor,
    b: Tensor,
    b_scale: Tensor,
    b_zero: Tensor,
    y_scale: Tensor,
    y_zero: Tensor,
) -> Tensor:
    product = f.matmul(_centred(a, a_zero, -2), _centred(b, b_zero, -1))
    scales = (f.astype(s, _EXACT) for s in (a_scale, b_scale, y_scale))
    of_a, of_b, of_y = scales
    of_a = f.expand_dims(of_a, -1) if of_a.ndim == 1 and of_a.size > 1 else of_a
    return _requantized(product, f.divide(f.multiply(of_a, of_b), of_y), y_zero)


@operator("QLinearConv")
def qlinear_conv(
    x: Tensor,
    x_scale: Tensor,
    x_zero: Tensor,
    w: Tensor,
    w_scale: Tensor,
    w_zero: Tensor,
    y_scale: Tensor,
    y_zero: Tensor,
    b: Tensor | None = None,
    auto_pad: str = "NOTSET",
    dilations: Any = None,
    group: int = 1,
    kernel_shape: Any = None,
    pads: Any = None,
    strides: Any = None,
) -> Tensor:
    exact = (_centred(x, x_zero, 1), _centred(w, w_zero, 0))
    bias = None if b is None else f.astype(b, _EXACT)
    y = conv(*exact, bias, auto_pad, dilations, group, kernel_shape, pads, strides)
    of_x, of_w, of_y = (f.astype(s, _EXACT) for s in (x_scale, w_scale, y_scale))
    factor = f.divide(f.multiply(of_x, of_w), of_y)
    if factor.size > 1:
        factor = f.reshape(factor, (-1, *[1] * (x.ndim - 2)))
    return _requantized(y, factor, y_zero)
