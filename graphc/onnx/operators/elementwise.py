"""Operators that go element by element."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from onnx import helper

from graphc import functions as f
from graphc.base.dtypes import convert
from graphc.ir import DTYPES, dtype_name
from graphc.onnx.dtypes import dtype_from
from graphc.onnx.operators.rules import UnsupportedError, Values, is_float, number, operator
from graphc.trace import Tensor

_UNARY: dict[str, Callable[[Tensor], Tensor]] = {
    "Abs": f.abs,
    "Acos": f.acos,
    "Acosh": f.acosh,
    "Asin": f.asin,
    "Asinh": f.asinh,
    "Atan": f.atan,
    "Atanh": f.atanh,
    "BitwiseNot": f.bitwise_not,
    "Ceil": f.ceil,
    "Cos": f.cos,
    "Cosh": f.cosh,
    "Erf": f.erf,
    "Exp": f.exp,
    "Floor": f.floor,
    "HardSwish": f.hardswish,
    "IsNaN": f.isnan,
    "Log": f.log,
    "Mish": f.mish,
    "Neg": f.negative,
    "Not": f.logical_not,
    "Reciprocal": f.reciprocal,
    "Relu": f.relu,
    "Round": f.round,
    "Sigmoid": f.sigmoid,
    "Sign": f.sign,
    "Sin": f.sin,
    "Sinh": f.sinh,
    "Softsign": f.softsign,
    "Sqrt": f.sqrt,
    "Tan": f.tan,
    "Tanh": f.tanh,
}
_BINARY: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "Add": f.add,
    "And": f.logical_and,
    "BitwiseAnd": f.bitwise_and,
    "BitwiseOr": f.bitwise_or,
    "BitwiseXor": f.bitwise_xor,
    "Greater": f.greater,
    "GreaterOrEqual": f.greater_equal,
    "Less": f.less,
    "LessOrEqual": f.less_equal,
    "Mul": f.multiply,
    "Or": f.logical_or,
    "Sub": f.subtract,
    "Xor": f.logical_xor,
}


def _one(function: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    return lambda x: function(x)


def _two(function: Callable[[Tensor, Tensor], Tensor]) -> Callable[..., Tensor]:
    def rule(a: Tensor, b: Tensor, axis: int | None = None, broadcast: int = 0) -> Tensor:
        # Before version 7 the second operand lay at an axis of the first.
        if axis is not None and broadcast and b.ndim:
            b = f.reshape(b, (*b.shape, *[1] * (a.ndim - axis - b.ndim)))
        return function(a, b)

    return rule


for _name, _function in _UNARY.items():
    operator(_name)(_one(_function))
for _name, _both in _BINARY.items():
    operator(_name)(_two(_both))


@operator("Div")
def div(a: Tensor, b: Tensor, axis: int | None = None, broadcast: int = 0) -> Tensor:
    """Integers are cut towards zero."""
    if is_float(a):
        return _two(f.divide)(a, b, axis, broadcast)
    quotient = f.floor_divide(a, b)
    inexact = f.not_equal(f.multiply(quotient, b), a)
    up = f.logical_and(inexact, f.less(quotient, 0))
    return f.add(quotient, f.astype(up, quotient.dtype))


@operator("Mod")
def mod(a: Tensor, b: Tensor, fmod: int = 0) -> Tensor:
    return f.fmod(a, b) if fmod else f.remainder(a, b)


@operator("Pow")
def pow_(x: Tensor, y: Tensor) -> Tensor:
    """In the dtype of x."""
    if is_float(x):
        return f.astype(f.pow(x, f.astype(y, x.dtype)), x.dtype)
    power = f.pow(f.astype(x, "f64"), f.astype(y, "f64"))
    return f.astype(power if is_float(y) else f.round(power), x.dtype)


@operator("Equal")
def equal(a: Tensor, b: Tensor) -> Tensor:
    if a.dtype == "bool":
        return f.logical_not(f.logical_xor(a, b))
    return f.equal(a, b)


@operator("IsInf")
def is_inf(x: Tensor, detect_negative: int = 1, detect_positive: int = 1) -> Tensor:
    if detect_negative and detect_positive:
        return f.isinf(x)
    if not detect_negative and not detect_positive:
        return f.broadcast_to(f.as_tensor(False), x.shape)
    return f.isneginf(x) if detect_negative else f.isposinf(x)


@operator("Where")
def where(condition: Tensor, x: Tensor, y: Tensor) -> Tensor:
    return f.where(condition, x, y)


def _joined(function: Callable[[Tensor, Tensor], Tensor]) -> Callable[..., Tensor]:
    return lambda *arrays: functools.reduce(function, arrays)


operator("Max")(_joined(f.maximum))
operator("Min")(_joined(f.minimum))
operator("Sum")(_joined(f.add))


@operator("Mean")
def mean(*arrays: Tensor) -> Tensor:
    return f.divide(functools.reduce(f.add, arrays), len(arrays))


@operator("Clip")
def clip(x: Tensor, min: Any = None, max: Any = None) -> Tensor:
    if min is not None:
        x = f.maximum(x, min)
    return x if max is None else f.minimum(x, max)


@operator("BitShift")
def bit_shift(x: Tensor, y: Tensor, direction: str = "LEFT") -> Tensor:
    shift = f.bitwise_left_shift if direction == "LEFT" else f.bitwise_right_shift
    return shift(x, y)


@operator("Cast")
def cast(x: Tensor, to: int = 1, saturate: int = 1, round_mode: str = "up") -> Tensor:
    return f.astype(x, dtype_from(to))


@operator("CastLike", raw=True)
def cast_like(x: Values, like: Values, saturate: int = 1, round_mode: str = "up") -> Values:
    """Known where x is known, whatever `like` is."""
    kind = dtype_name(like.dtype) if isinstance(like, np.ndarray) else like.dtype
    if isinstance(x, np.ndarray):
        return convert(x, DTYPES[kind])
    return f.astype(x, kind)


@operator("Identity", raw=True)
def identity(x: Values) -> Values:
    return x


@operator("Dropout", static="ratio training_mode", draws=True)
def dropout(
    data: Tensor,
    ratio: Any = None,
    training_mode: Any = None,
    seed: int | None = None,
    outputs: int = 1,
) -> Any:
    """With the mask of what is kept. Without `training_mode` everything is."""
    rate = number(ratio, 0.5)
    if not number(training_mode, False) or not rate:
        kept = f.broadcast_to(f.as_tensor(True), data.shape)
        return (data, kept) if outputs > 1 else data
    mask = f.greater_equal(f.rand(data.shape), rate)
    scale = 0.0 if rate == 1 else 1 / (1 - rate)
    return f.where(mask, f.multiply(data, scale), f.as_tensor(0, data.dtype)), mask


@operator("Elu")
def elu(x: Tensor, alpha: float = 1.0) -> Tensor:
    return f.elu(x, alpha)


@operator("Celu")
def celu(x: Tensor, alpha: float = 1.0) -> Tensor:
    return f.celu(x, alpha)


@operator("Selu")
def selu(
    x: Tensor, alpha: float = 1.67326319217681884765625, gamma: float = 1.05070102214813232421875
) -> Tensor:
    below = f.multiply(f.expm1(f.minimum(x, 0)), alpha)
    return f.multiply(f.where(f.greater(x, 0), x, below), gamma)


@operator("Gelu")
def gelu(x: Tensor, approximate: str = "none") -> Tensor:
    return f.gelu(x, approximate)


@operator("HardSigmoid")
def hard_sigmoid(x: Tensor, alpha: float = 0.2, beta: float = 0.5) -> Tensor:
    return f.clip(f.add(f.multiply(x, alpha), beta), 0.0, 1.0)


@operator("LeakyRelu")
def leaky_relu(x: Tensor, alpha: float = 0.01) -> Tensor:
    return f.where(f.less(x, 0), f.multiply(x, alpha), x)


@operator("PRelu")
def prelu(x: Tensor, slope: Tensor) -> Tensor:
    """The slope broadcasts to x; before version 7 it is one per channel."""
    if slope.ndim == 1 and x.ndim > 2 and slope.shape == x.shape[1:2] != x.shape[-1:]:
        slope = f.reshape(slope, (-1, *[1] * (x.ndim - 2)))
    return f.where(f.less(x, 0), f.multiply(x, slope), x)


@operator("Shrink")
def shrink(x: Tensor, bias: float = 0.0, lambd: float = 0.5) -> Tensor:
    zero = f.as_tensor(0, x.dtype)
    inner = f.where(f.greater(x, lambd), f.subtract(x, f.as_tensor(bias, x.dtype)), zero)
    return f.where(f.less(x, -lambd), f.add(x, f.as_tensor(bias, x.dtype)), inner)


@operator("Softplus")
def softplus(x: Tensor) -> Tensor:
    return f.add(f.relu(x), f.log1p(f.exp(f.negative(f.abs(x)))))


@operator("Swish")
def swish(x: Tensor, alpha: float = 1.0) -> Tensor:
    return f.multiply(x, f.sigmoid(x if alpha == 1 else f.multiply(x, alpha)))


@operator("ThresholdedRelu")
def thresholded_relu(x: Tensor, alpha: float = 1.0) -> Tensor:
    return f.where(f.greater(x, alpha), x, f.as_tensor(0, x.dtype))


def _over_axis(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Before version 13, over all axes from `axis` on."""

    def rule(x: Tensor, axis: int | None = None, opset: int = 13) -> Tensor:
        if opset >= 13:
            return function(x, -1 if axis is None else axis)
        first = (1 if axis is None else axis) % x.ndim
        rows = f.reshape(x, (int(np.prod(x.shape[:first])), int(np.prod(x.shape[first:]))))
        return f.reshape(function(rows, 1), x.shape)

    return rule


def _hardmax(x: Tensor, axis: int) -> Tensor:
    places = f.argmax(x, axis, keepdims=True)
    shape = [1] * x.ndim
    shape[axis] = -1
    numbers = np.arange(x.shape[axis]).reshape(shape)
    return f.astype(f.equal(places, f.as_tensor(numbers)), x.dtype)


operator("Softmax")(_over_axis(f.softmax))
operator("LogSoftmax")(_over_axis(f.log_softmax))
operator("Hardmax")(_over_axis(_hardmax))


@operator("Binarizer", domain="ai.onnx.ml")
def binarizer(x: Tensor, threshold: float = 0.0) -> Tensor:
    return f.astype(f.greater(x, threshold), x.dtype)


@operator("CumSum", static="axis")
def cum_sum(x: Tensor, axis: Any, exclusive: int = 0, reverse: int = 0) -> Tensor:
    return _running(f.cumsum, 0, x, int(number(axis, 0)), exclusive, reverse)


@operator("CumProd", static="axis")
def cum_prod(x: Tensor, axis: Any, exclusive: int = 0, reverse: int = 0) -> Tensor:
    return _running(f.cumprod, 1, x, int(number(axis, 0)), exclusive, reverse)


def _running(
    function: Callable[..., Tensor],
    neutral: float,
    x: Tensor,
    axis: int,
    exclusive: int,
    reverse: int,
) -> Tensor:
    axis %= x.ndim
    if reverse:
        x = f.flip(x, axis)
    if exclusive:
        widths = [(0, 0)] * x.ndim
        widths[axis] = (1, 0)
        kept = tuple(slice(n) for n in x.shape)
        x = f.pad(x, widths, neutral)[kept]
    y = f.astype(function(x, axis), x.dtype)
    return f.flip(y, axis) if reverse else y


@operator("BitCast", raw=True)
def bit_cast(x: Values, to: int = 1) -> Values:
    """Of a known array the same bytes; a program has no op for it."""
    if not isinstance(x, np.ndarray):
        raise UnsupportedError(
            "BitCast is offered for values that are known when the model is traced"
        )
    return x.view(helper.tensor_dtype_to_np_dtype(to))
