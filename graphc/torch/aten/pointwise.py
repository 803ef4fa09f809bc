"""Operators that go element by element."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from graphc import functions as f
from graphc.base.errors import GraphError
from graphc.torch.aten.rules import aten, dtype_of
from graphc.trace import Tensor

_FUNCTIONS: dict[str, Callable[..., Tensor]] = {
    "abs": f.abs,
    "acos": f.acos,
    "acosh": f.acosh,
    "asin": f.asin,
    "asinh": f.asinh,
    "atan": f.atan,
    "atan2": f.atan2,
    "atanh": f.atanh,
    "bitwise_and.Scalar": f.bitwise_and,
    "bitwise_and.Tensor": f.bitwise_and,
    "bitwise_not": f.bitwise_not,
    "bitwise_or.Scalar": f.bitwise_or,
    "bitwise_or.Tensor": f.bitwise_or,
    "bitwise_xor.Scalar": f.bitwise_xor,
    "bitwise_xor.Tensor": f.bitwise_xor,
    "ceil": f.ceil,
    "copysign.Scalar": f.copysign,
    "copysign.Tensor": f.copysign,
    "cos": f.cos,
    "cosh": f.cosh,
    "digamma": f.digamma,
    "eq.Scalar": f.equal,
    "eq.Tensor": f.equal,
    "erf": f.erf,
    "erfc": f.erfc,
    "erfinv": f.erfinv,
    "exp": f.exp,
    "exp2": f.exp2,
    "expm1": f.expm1,
    "floor": f.floor,
    "fmod.Scalar": f.fmod,
    "fmod.Tensor": f.fmod,
    "ge.Scalar": f.greater_equal,
    "ge.Tensor": f.greater_equal,
    "gt.Scalar": f.greater,
    "gt.Tensor": f.greater,
    "hypot": f.hypot,
    "isinf": f.isinf,
    "isnan": f.isnan,
    "le.Scalar": f.less_equal,
    "le.Tensor": f.less_equal,
    "lgamma": f.lgamma,
    "log": f.log,
    "log10": f.log10,
    "log1p": f.log1p,
    "log2": f.log2,
    "lt.Scalar": f.less,
    "lt.Tensor": f.less,
    "maximum": f.maximum,
    "minimum": f.minimum,
    "ne.Scalar": f.not_equal,
    "ne.Tensor": f.not_equal,
    "neg": f.negative,
    "nextafter": f.nextafter,
    "pow.Scalar": f.pow,
    "pow.Tensor_Scalar": f.pow,
    "pow.Tensor_Tensor": f.pow,
    "reciprocal": f.reciprocal,
    "relu": f.relu,
    "remainder.Scalar": f.remainder,
    "remainder.Scalar_Tensor": f.remainder,
    "remainder.Tensor": f.remainder,
    "rsqrt": f.rsqrt,
    "sigmoid": f.sigmoid,
    "signbit": f.signbit,
    "sin": f.sin,
    "sinh": f.sinh,
    "sqrt": f.sqrt,
    "tan": f.tan,
    "tanh": f.tanh,
    "trunc": f.trunc,
    "where.self": f.where,
    "bitwise_left_shift.Tensor": f.bitwise_left_shift,
    "bitwise_right_shift.Tensor": f.bitwise_right_shift,
    "__lshift__.Scalar": f.bitwise_left_shift,
    "__lshift__.Tensor": f.bitwise_left_shift,
    "__rshift__.Scalar": f.bitwise_right_shift,
    "__rshift__.Tensor": f.bitwise_right_shift,
    "special_erfcx": f.erfcx,
    "special_i0e": f.i0e,
    "special_i1e": f.i1e,
    "i0": f.i0,
    "special_i1": f.i1,
    "special_modified_bessel_i0": f.i0,
    "special_modified_bessel_i1": f.i1,
    "special_ndtri": f.ndtri,
    "special_log_ndtr": f.log_ndtr,
    "special_entr": f.entr,
    "silu": f.silu,
    "gcd": f.gcd,
    "fmax": f.fmax,
    "fmin": f.fmin,
    "heaviside": f.heaviside,
    "xlogy.Tensor": f.xlogy,
    "special_xlog1py": f.xlog1py,
}
for _name, _function in _FUNCTIONS.items():
    aten(_name)(_function)


def _truth(x: Tensor) -> Tensor:
    return f.astype(x, "bool")


@aten("logical_not")
def logical_not(x: Tensor) -> Tensor:
    return f.logical_not(_truth(x))


@aten("logical_and")
def logical_and(x: Tensor, y: Tensor) -> Tensor:
    return f.logical_and(_truth(x), _truth(y))


@aten("logical_or")
def logical_or(x: Tensor, y: Tensor) -> Tensor:
    return f.logical_or(_truth(x), _truth(y))


@aten("logical_xor")
def logical_xor(x: Tensor, y: Tensor) -> Tensor:
    return f.logical_xor(_truth(x), _truth(y))


def _are_booleans(*operands: Any) -> bool:
    return all(isinstance(x, bool) or getattr(x, "dtype", "") == "bool" for x in operands)


@aten("mul.Tensor", "mul.Scalar")
def mul(x: Any, y: Any) -> Tensor:
    return f.logical_and(x, y) if _are_booleans(x, y) else f.multiply(x, y)


@aten("add.Tensor", "add.Scalar")
def add(x: Any, y: Any, alpha: float = 1) -> Tensor:
    if _are_booleans(x, y):
        return f.logical_or(x, y)
    return f.add(x, y if alpha == 1 else f.multiply(y, alpha))


@aten("sub.Tensor", "sub.Scalar")
def sub(x: Any, y: Any, alpha: float = 1) -> Tensor:
    return f.subtract(x, y if alpha == 1 else f.multiply(y, alpha))


@aten("rsub.Scalar", "rsub.Tensor")
def rsub(x: Any, y: Any, alpha: float = 1) -> Tensor:
    return sub(y, x, alpha)


@aten("div.Tensor", "div.Scalar", "div.Tensor_mode", "div.Scalar_mode")
def div(x: Any, y: Any, rounding_mode: str | None = None) -> Tensor:
    if rounding_mode == "floor":
        return f.floor_divide(x, y)
    if rounding_mode is None:
        return f.divide(x, y)
    if _is_float(x) or _is_float(y):
        return f.trunc(f.divide(x, y))
    quotient = f.floor_divide(x, y)
    inexact = f.not_equal(f.multiply(quotient, y), x)
    return f.add(quotient, f.astype(f.logical_and(inexact, f.less(quotient, 0)), quotient.dtype))


def _is_float(x: Any) -> bool:
    return isinstance(x, float) or (
        isinstance(x, Tensor) and x.dtype in ("f16", "bf16", "f32", "f64")
    )


@aten("sign")
def sign(x: Tensor) -> Tensor:
    """That of NaN is 0 in PyTorch, unlike NumPy's and ONNX's."""
    if not _is_float(x):
        return f.sign(x)
    above, below = f.greater(x, 0), f.less(x, 0)
    return f.subtract(f.astype(above, x.dtype), f.astype(below, x.dtype))


@aten("angle")
def angle(x: Tensor) -> Tensor:
    """Of numbers that are not complex: 0 or pi, NaN of NaN."""
    turned = f.where(f.less(x, 0), math.pi, 0.0)
    return f.where(f.isnan(x), x, turned) if _is_float(x) else turned


@aten("ldexp.Tensor")
def ldexp(x: Tensor, exponent: Tensor) -> Tensor:
    """As PyTorch multiplies, whose power of two may be infinite or 0."""
    wide = exponent if _is_float(exponent) else f.astype(exponent, "f32")
    return f.multiply(x, f.pow(2.0, wide))


@aten("floor_divide")
def floor_divide(x: Any, y: Any) -> Tensor:
    return f.floor_divide(x, y)


@aten("round", "round.decimals")
def round_(x: Tensor, decimals: int = 0) -> Tensor:
    if not decimals:
        return f.round(x)
    scale = 10.0**decimals
    return f.divide(f.round(f.multiply(x, scale)), scale)


@aten("clamp", "clamp.Tensor")
def clamp(x: Tensor, low: Any = None, high: Any = None) -> Tensor:
    # A bound of another dtype widens the result in PyTorch, but NumPy's clip keeps that of x.
    if low is not None:
        x = f.maximum(x, low)
    return x if high is None else f.minimum(x, high)


@aten("clamp_min")
def clamp_min(x: Tensor, low: Any) -> Tensor:
    return f.maximum(x, low)


@aten("clamp_max")
def clamp_max(x: Tensor, high: Any) -> Tensor:
    return f.minimum(x, high)


@aten("hardtanh")
def hardtanh(x: Tensor, low: float = -1.0, high: float = 1.0) -> Tensor:
    return clamp(x, low, high)


@aten("elu")
def elu(x: Tensor, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> Tensor:
    below = f.multiply(f.expm1(f.multiply(f.minimum(x, 0), input_scale)), alpha * scale)
    return f.where(f.greater(x, 0), f.multiply(x, scale), below)


@aten("leaky_relu")
def leaky_relu(x: Tensor, negative_slope: float = 0.01) -> Tensor:
    return f.leaky_relu(x, negative_slope)


@aten("gelu")
def gelu(x: Tensor, approximate: str = "none") -> Tensor:
    return f.gelu(x, approximate)


@aten("addcmul")
def addcmul(x: Tensor, a: Tensor, b: Tensor, value: float = 1) -> Tensor:
    return f.addcmul(x, a, b, value)


@aten("addcdiv")
def addcdiv(x: Tensor, a: Tensor, b: Tensor, value: float = 1) -> Tensor:
    return f.addcdiv(x, a, b, value)


@aten("lerp.Scalar", "lerp.Tensor")
def lerp(start: Tensor, end: Tensor, weight: Any) -> Tensor:
    return f.lerp(start, end, weight)


@aten("polygamma")
def polygamma(n: int, x: Tensor) -> Tensor:
    if n > 1:
        raise GraphError("polygamma of order 2 and more is NaN below 0, where PyTorch has numbers")
    return f.polygamma(n, x)


@aten("_to_copy", "_to_copy.default")
def to_copy(x: Tensor, dtype: torch.dtype | None = None, **placed: Any) -> Tensor:
    """`placed` says where and how the copy lies, which graphc decides."""
    return f.astype(x, dtype_of(dtype, x.dtype))


@aten("clone", "alias", "detach", "lift_fresh_copy", "contiguous")
def clone(x: Tensor, memory_format: object = None) -> Tensor:
    return x


@aten("fill.Scalar", "full_like", "fill.Tensor")
def fill(x: Tensor, value: Any, dtype: torch.dtype | None = None, **placed: Any) -> Tensor:
    return f.broadcast_to(f.as_tensor(value, dtype_of(dtype, x.dtype)), x.shape)


@aten("zeros_like")
def zeros_like(x: Tensor, dtype: torch.dtype | None = None, **placed: Any) -> Tensor:
    return fill(x, 0, dtype)


@aten("ones_like")
def ones_like(x: Tensor, dtype: torch.dtype | None = None, **placed: Any) -> Tensor:
    return fill(x, 1, dtype)


@aten("copy")
def copy(x: Tensor, source: Tensor, non_blocking: bool = False) -> Tensor:
    return f.broadcast_to(f.astype(source, x.dtype), x.shape)


@aten("nan_to_num")
def nan_to_num(
    x: Tensor, nan: float | None = None, high: float | None = None, low: float | None = None
) -> Tensor:
    return f.nan_to_num(x, 0.0 if nan is None else nan, high, low)


@aten("logit")
def logit(x: Tensor, eps: float | None = None) -> Tensor:
    return f.logit(x, eps)


@aten("softplus")
def softplus(x: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    return f.softplus(x, beta, threshold)


@aten("sigmoid_backward")
def sigmoid_backward(dy: Tensor, y: Tensor) -> Tensor:
    return f.multiply(dy, f.multiply(y, f.subtract(1, y)))


@aten("tanh_backward")
def tanh_backward(dy: Tensor, y: Tensor) -> Tensor:
    return f.multiply(dy, f.subtract(1, f.square(y)))


@aten("threshold_backward")
def threshold_backward(dy: Tensor, x: Tensor, threshold: float) -> Tensor:
    return f.where(f.less_equal(x, threshold), f.as_tensor(0, dy.dtype), dy)


@aten("gelu_backward")
def gelu_backward(dy: Tensor, x: Tensor, approximate: str = "none") -> Tensor:
    if approximate == "tanh":
        inner = f.multiply(
            math.sqrt(2 / math.pi), f.add(x, f.multiply(0.044715, f.multiply(x, f.square(x))))
        )
        slope = f.multiply(math.sqrt(2 / math.pi), f.add(1, f.multiply(3 * 0.044715, f.square(x))))
        t = f.tanh(inner)
        rise = f.multiply(f.multiply(x, slope), f.subtract(1, f.square(t)))
        return f.multiply(dy, f.multiply(0.5, f.add(f.add(1, t), rise)))
    share = f.multiply(0.5, f.add(1, f.erf(f.multiply(x, math.sqrt(0.5)))))
    density = f.multiply(f.exp(f.multiply(-0.5, f.square(x))), 1 / math.sqrt(2 * math.pi))
    return f.multiply(dy, f.add(share, f.multiply(x, density)))
