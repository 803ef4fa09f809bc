"""Functions of single elements."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphc import functions as f
from tests.torch.subject import SUBJECTS, Case, Draw, Function

ONE: dict[str, tuple[float, float]] = {
    "abs": (-3, 3),
    "acos": (-0.9, 0.9),
    "acosh": (1.1, 9),
    "asin": (-0.9, 0.9),
    "asinh": (-9, 9),
    "atan": (-9, 9),
    "atanh": (-0.9, 0.9),
    "cos": (-9, 9),
    "cosh": (-4, 4),
    "deg2rad": (-180, 180),
    "digamma": (0.2, 9),
    "erf": (-3, 3),
    "erfc": (-3, 3),
    "erfinv": (-0.9, 0.9),
    "exp": (-4, 4),
    "exp2": (-4, 4),
    "expm1": (-4, 4),
    "i0": (-4, 4),
    "lgamma": (0.2, 9),
    "log": (0.1, 9),
    "log10": (0.1, 9),
    "log1p": (-0.9, 9),
    "log2": (0.1, 9),
    "logit": (0.05, 0.95),
    "negative": (-3, 3),
    "positive": (-3, 3),
    "rad2deg": (-4, 4),
    "reciprocal": (0.2, 4),
    "relu": (-3, 3),
    "rsqrt": (0.1, 9),
    "sigmoid": (-5, 5),
    "sin": (-9, 9),
    "sinc": (-2, 2),
    "sinh": (-4, 4),
    "sqrt": (0.1, 9),
    "square": (-3, 3),
    "tan": (-1.3, 1.3),
    "tanh": (-3, 3),
}
"""Differentiable functions of torch's own name, and from where their operand is drawn."""

SPECIAL = {
    "entr": (0.05, 4),
    "erfcx": (-2, 9),
    "i0e": (-9, 9),
    "i1": (-4, 4),
    "i1e": (-9, 9),
    "log_ndtr": (-9, 4),
    "ndtr": (-3, 3),
    "ndtri": (0.05, 0.95),
}
"""The same of torch.special."""

JUMPS = "ceil floor frac isfinite isinf isnan isneginf isposinf round sign signbit trunc".split()
"""Functions without a slope, or with jumps."""

TWO: dict[str, tuple[tuple[float, float], tuple[float, float]]] = {
    "add": ((-3, 3), (-3, 3)),
    "subtract": ((-3, 3), (-3, 3)),
    "multiply": ((-3, 3), (-3, 3)),
    "divide": ((-3, 3), (0.3, 3)),
    "maximum": ((-3, 3), (-3, 3)),
    "minimum": ((-3, 3), (-3, 3)),
    "fmax": ((-3, 3), (-3, 3)),
    "fmin": ((-3, 3), (-3, 3)),
    "pow": ((0.3, 3), (-2, 2)),
    "atan2": ((-3, 3), (0.3, 3)),
    "hypot": ((0.3, 3), (0.3, 3)),
    "copysign": ((0.3, 3), (-3, 3)),
    "logaddexp": ((-9, 9), (-9, 9)),
    "logaddexp2": ((-9, 9), (-9, 9)),
    "xlogy": ((-3, 3), (0.3, 3)),
}

COMPARISONS = "equal greater greater_equal less less_equal not_equal".split()
INTEGERS = "bitwise_and bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor gcd lcm"
ACTIVATIONS: dict[str, tuple[tuple[float, float], ...]] = {
    "celu": ((0.5, 2),),
    "elu": ((0.5, 2),),
    "gelu": (),
    "hardshrink": ((0.2, 1),),
    "hardsigmoid": (),
    "hardswish": (),
    "hardtanh": ((-2, -1), (0.5, 2)),
    "leaky_relu": ((0.01, 0.3),),
    "logsigmoid": (),
    "mish": (),
    "relu6": (),
    "selu": (),
    "silu": (),
    "softplus": ((0.5, 2), (5, 20)),
    "softshrink": ((0.2, 1),),
    "softsign": (),
    "tanhshrink": (),
    "threshold": ((-1, 1), (-3, 3)),
}
"""Activations of torch.nn.functional, and from where their settings are drawn."""


def _one(name: str, limits: tuple[float, float], place: str = "") -> None:
    def draw(d: Draw) -> Case:
        x = d.floats(d.shape(empty=True), *limits)
        ours = getattr(f, name)
        return Case(ours, lambda t, x: getattr(getattr(t, place) if place else t, name)(x), (x,))

    SUBJECTS[name] = draw


def _jump(name: str) -> None:
    def draw(d: Draw) -> Case:
        x = d.floats(d.shape(empty=True), -9, 9)
        if name.startswith("is") and x.size:
            x.flat[d.integer(0, x.size - 1)] = d.pick((np.inf, -np.inf, np.nan))
        return Case(getattr(f, name), lambda t, x: getattr(t, name)(x), (x,), slopes=name == "frac")

    SUBJECTS[name] = draw


def _two(name: str, first: tuple[float, float], second: tuple[float, float]) -> None:
    def draw(d: Draw) -> Case:
        a, b = d.pair()
        arrays = d.floats(a, *first), d.floats(b, *second)
        return Case(getattr(f, name), lambda t, a, b: getattr(t, name)(a, b), arrays)

    SUBJECTS[name] = draw


def _compared(name: str) -> None:
    theirs = {"equal": "eq"}.get(name, name)

    def draw(d: Draw) -> Case:
        a, b = d.pair()
        arrays = (
            d.integers(a, -2, 2, d.pick(("i4", "f4"))),
            d.integers(b, -2, 2, d.pick(("i8", "f4"))),
        )
        return Case(
            getattr(f, name), lambda t, a, b: getattr(t, theirs)(a, b), arrays, slopes=False
        )

    SUBJECTS[name] = draw


def _whole(name: str) -> None:
    def draw(d: Draw) -> Case:
        a, b = d.pair()
        dtype = d.pick(("i1", "i4", "i8") if "shift" not in name else ("i4", "i8"))
        low, high = (0, 9) if "shift" in name else (-99, 99)
        if name == "lcm":
            low, high = -9, 9
        arrays = (
            d.integers(a, -99 if name != "lcm" else -9, high, dtype),
            d.integers(b, low, high, dtype),
        )
        return Case(getattr(f, name), lambda t, a, b: getattr(t, name)(a, b), arrays)

    SUBJECTS[name] = draw


def _activation(name: str, limits: tuple[tuple[float, float], ...]) -> None:
    def draw(d: Draw) -> Case:
        settings = [d.number(*each) for each in limits]
        x = d.floats(d.shape(empty=True), -5, 5)
        return Case(
            lambda x: getattr(f, name)(x, *settings),
            lambda t, x: getattr(t.nn.functional, name)(x, *settings),
            (x,),
            f"{settings}",
        )

    SUBJECTS[name] = draw


def _remains(name: str) -> None:
    def draw(d: Draw) -> Case:
        a, b = d.pair()
        if d.flag():
            arrays = d.floats(a, -9, 9), d.floats(b, 0.3, 3)
        else:
            arrays = d.integers(a, -99, 99, "i4"), d.integers(b, 1, 9, "i4")
        return Case(
            getattr(f, name),
            lambda t, a, b: getattr(t, name)(a, b),
            arrays,
            slopes=name != "floor_divide",
            single=True,
        )

    SUBJECTS[name] = draw


for _name, _limits in ONE.items():
    _one(_name, _limits)
for _name, _limits in SPECIAL.items():
    _one(_name, _limits, "special")
for _name in JUMPS:
    _jump(_name)
for _name, _ranges in TWO.items():
    _two(_name, *_ranges)
for _name in COMPARISONS:
    _compared(_name)
for _name in INTEGERS.split():
    _whole(_name)
for _name, _settings in ACTIVATIONS.items():
    _activation(_name, _settings)
for _name in ("floor_divide", "remainder", "fmod"):
    _remains(_name)


def _add(name: str, draw: Any) -> None:
    SUBJECTS[name] = draw


def _logical(name: str) -> Any:
    def draw(d: Draw) -> Case:
        a, b = d.pair()
        arrays = (d.booleans(a), d.booleans(b))[: 1 if name == "logical_not" else 2]
        return Case(getattr(f, name), lambda t, *a: getattr(t, name)(*a), arrays)

    return draw


for _name in ("logical_and", "logical_or", "logical_xor", "logical_not"):
    _add(_name, _logical(_name))


def _polygamma(d: Draw) -> Case:
    n, x = d.integer(0, 3), d.floats(d.shape(), 0.5, 9)
    return Case(lambda x: f.polygamma(n, x), lambda t, x: t.polygamma(n, x), (x,), f"n={n}")


def _multigammaln(d: Draw) -> Case:
    p, x = d.integer(1, 3), d.floats(d.shape(), 2, 9)
    return Case(lambda x: f.multigammaln(x, p), lambda t, x: t.mvlgamma(x, p), (x,), f"p={p}")


def _xlog1py(d: Draw) -> Case:
    a, b = d.pair()
    arrays = d.floats(a), d.floats(b, -0.8, 3)
    return Case(f.xlog1py, lambda t, a, b: t.special.xlog1py(a, b), arrays)


def _clip(d: Draw) -> Case:
    low, high = (d.number(-2, -0.5), None)[:: d.pick((1, -1))]
    both = {"min": low, "max": d.number(0, 2) if d.flag() or low is None else high}
    x = d.floats(d.shape(empty=True))
    return Case(lambda x: f.clip(x, **both), lambda t, x: t.clip(x, **both), (x,), f"{both}")


def _lerp(d: Draw) -> Case:
    shape = d.shape()
    arrays = d.floats(shape), d.floats(shape), d.floats(shape)
    return Case(f.lerp, lambda t, a, b, w: t.lerp(a, b, w), arrays)


def _where(d: Draw) -> Case:
    a, b = d.pair()
    arrays = d.booleans(np.broadcast_shapes(a, b)), d.floats(a), d.floats(b)
    return Case(f.where, lambda t, c, a, b: t.where(c, a, b), arrays)


def _masked_fill(d: Draw) -> Case:
    shape, value = d.shape(), d.number(-2, 2)
    arrays = d.floats(shape), d.booleans(shape)
    return Case(
        lambda x, m: f.masked_fill(x, m, value), lambda t, x, m: x.masked_fill(m, value), arrays
    )


def _nan_to_num(d: Draw) -> Case:
    x = d.floats(d.shape(1, 3))
    for value in (np.nan, np.inf, -np.inf):
        x.flat[d.integer(0, x.size - 1)] = value
    numbers = [d.number(-9, 9) for _ in range(3)]
    return Case(lambda x: f.nan_to_num(x, *numbers), lambda t, x: t.nan_to_num(x, *numbers), (x,))


def _heaviside(d: Draw) -> Case:
    a, b = d.pair()
    arrays = d.integers(a, -1, 1, "f4"), d.floats(b)
    return Case(f.heaviside, lambda t, a, b: t.heaviside(a, b), arrays)


def _nextafter(d: Draw) -> Case:
    a, b = d.pair()
    arrays = d.floats(a), d.floats(b)
    return Case(f.nextafter, lambda t, a, b: t.nextafter(a, b), arrays, single=True)


def _ldexp(d: Draw) -> Case:
    shape = d.shape(empty=True)  # of two shapes PyTorch warns
    arrays = d.floats(shape), d.integers(shape, -5, 5, "i4")
    return Case(f.ldexp, lambda t, a, b: t.ldexp(a, b), arrays)


def _float_power(d: Draw) -> Case:
    a, b = d.pair()
    arrays = d.floats(a, 0.3, 3), d.floats(b, -2, 2)
    return Case(f.float_power, lambda t, a, b: t.float_power(a, b), arrays)


def _fused(name: str) -> Any:
    def draw(d: Draw) -> Case:
        shape, value = d.shape(), d.number(-2, 2)
        arrays = d.floats(shape), d.floats(shape), d.floats(shape, 0.3, 3)
        return Case(
            lambda x, a, b: getattr(f, name)(x, a, b, value),
            lambda t, x, a, b: getattr(t, name)(x, a, b, value=value),
            arrays,
        )

    return draw


def _isclose(d: Draw) -> Case:
    a, b = d.pair()
    arrays = d.integers(a, -1, 1, "f4"), d.integers(b, -1, 1, "f4")
    return Case(f.isclose, lambda t, a, b: t.isclose(a, b), arrays, slopes=False)


def _allclose(d: Draw) -> Case:
    x = d.floats(d.shape())
    near: Function = lambda t, a, b: t.tensor(t.allclose(a, b))  # noqa: E731
    y = x * np.float32(d.pick((1, 1 + 1e-6, 1.1)))
    return Case(f.allclose, near, (x, y), slopes=False)


def _bitwise_not(d: Draw) -> Case:
    x = d.integers(d.shape(), -99, 99, d.pick(("i1", "i4", "i8")))
    return Case(f.bitwise_not, lambda t, x: t.bitwise_not(x), (x,))


def _prelu(d: Draw) -> Case:
    shape = d.shape(2, 4)
    arrays = d.floats(shape), d.floats(d.pick(((1,), (shape[1],))), 0.1, 0.5)
    return Case(f.prelu, lambda t, x, w: t.nn.functional.prelu(x, w), arrays)


def _astype(d: Draw) -> Case:
    ours, theirs = d.pick(
        (("i32", "int32"), ("i64", "int64"), ("bool", "bool"), ("f64", "float64"))
    )
    x = d.floats(d.shape(empty=True), -9, 9)
    return Case(
        lambda x: f.astype(x, ours), lambda t, x: x.to(getattr(t, theirs)), (x,), ours, single=True
    )


for _name, _draw in {
    "polygamma": _polygamma,
    "multigammaln": _multigammaln,
    "xlog1py": _xlog1py,
    "clip": _clip,
    "lerp": _lerp,
    "where": _where,
    "masked_fill": _masked_fill,
    "nan_to_num": _nan_to_num,
    "heaviside": _heaviside,
    "nextafter": _nextafter,
    "ldexp": _ldexp,
    "float_power": _float_power,
    "addcmul": _fused("addcmul"),
    "addcdiv": _fused("addcdiv"),
    "isclose": _isclose,
    "allclose": _allclose,
    "bitwise_not": _bitwise_not,
    "prelu": _prelu,
    "astype": _astype,
}.items():
    _add(_name, _draw)
