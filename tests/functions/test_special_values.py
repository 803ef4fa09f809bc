"""NaN, infinities, signed zeros and masks of -inf give what they give in PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import graphc
from graphc import functions as f
from tests.tools import need_module

NAN, INF = float("nan"), float("inf")
X = np.array([NAN, INF, -INF, 0.0, -0.0, 1.0, -1.0, 89.0, -104.0, 3e38, 1e-30], np.float32)
A, B = (np.ascontiguousarray(g) for g in np.meshgrid(X, X))
ROWS = np.array(
    [
        [1, 2, 3, 4],
        [1, -INF, 3, -INF],
        [-INF, -INF, -INF, -INF],
        [1, NAN, 3, 4],
        [INF, 1, 2, INF],
        [1000, 1000, -1000, 0],
    ],
    np.float32,
)

Function = Callable[..., Any]
ONE: dict[str, tuple[Function, Function]] = {
    name: (getattr(f, name), lambda t, x, n=name: getattr(t, n)(x))
    for name in (
        "relu exp expm1 log log1p sqrt rsqrt tanh sigmoid erf abs negative floor isnan isfinite "
        "reciprocal square acos acosh asin asinh atan atanh ceil cos cosh deg2rad digamma erfc "
        "erfinv exp2 frac i0 isinf isneginf isposinf lgamma log10 log2 logit nan_to_num positive "
        "round sign signbit sin sinc sinh tan trunc"
    ).split()
}
ONE |= {
    name: (getattr(f, name), lambda t, x, n=name: getattr(t.special, n)(x))
    for name in "entr erfcx i0e i1 i1e log_ndtr ndtr ndtri".split()
}
ONE["polygamma"] = (lambda x: f.polygamma(1, x), lambda t, x: t.polygamma(1, x))
ONE |= {
    name: (getattr(f, name), lambda t, x, n=name: getattr(t.nn.functional, n)(x))
    for name in (
        "silu elu leaky_relu softplus celu gelu hardshrink hardsigmoid hardswish hardtanh "
        "logsigmoid mish relu6 selu softshrink softsign tanhshrink"
    ).split()
}
ONE["clip"] = (lambda x: f.clip(x, -1, 2), lambda t, x: t.clip(x, -1, 2))
TWO: dict[str, tuple[Function, Function]] = {
    ours: (getattr(f, ours), lambda t, a, b, n=theirs: getattr(t, n)(a, b))
    for ours, theirs in {
        "add": "add",
        "multiply": "mul",
        "divide": "div",
        "maximum": "maximum",
        "minimum": "minimum",
        "less": "lt",
        "less_equal": "le",
        "greater": "gt",
        "greater_equal": "ge",
        "equal": "eq",
        "not_equal": "ne",
    }.items()
}
TWO |= {
    name: (getattr(f, name), lambda t, a, b, n=name: getattr(t, n)(a, b))
    for name in (
        "atan2 copysign floor_divide fmax fmin fmod hypot logaddexp logaddexp2 nextafter pow "
        "remainder subtract xlogy heaviside isclose"
    ).split()
}
TWO["xlog1py"] = (f.xlog1py, lambda t, a, b: t.special.xlog1py(a, b))
TWO["where"] = (lambda a, b: f.where(a > b, a, b), lambda t, a, b: t.where(a > b, a, b))
BY_ROW: dict[str, tuple[Function, Function]] = {
    "max": (lambda x: f.max(x, 1), lambda t, x: t.amax(x, 1)),
    "min": (lambda x: f.min(x, 1), lambda t, x: t.amin(x, 1)),
    "sum": (lambda x: f.sum(x, 1), lambda t, x: t.sum(x, 1)),
    "softmax": (f.softmax, lambda t, x: t.softmax(x, -1)),
    "log_softmax": (f.log_softmax, lambda t, x: t.log_softmax(x, -1)),
    "logsumexp": (f.logsumexp, lambda t, x: t.logsumexp(x, -1)),
    "argmax": (lambda x: f.argmax(x, 1), lambda t, x: t.argmax(x, 1)),
    "max_pool2d": (
        lambda x: f.max_pool2d(f.reshape(x, (1, 1, 6, 4)), 2, padding=1),
        lambda t, x: t.nn.functional.max_pool2d(x.reshape(1, 1, 6, 4), 2, padding=1),
    ),
}
DIFFERENT: dict[str, tuple[tuple[float, ...], str]] = {
    "gelu": ((INF, 3e38), "PyTorch's is NaN and inf for its largest arguments"),
    "hardswish": ((3e38,), "PyTorch's overflows before it divides"),
    "i0": ((89.0,), "PyTorch's overflows before the function does"),
    "i1": ((89.0,), "PyTorch's overflows before the function does"),
    "polygamma": ((-1.0, -104.0), "poles, which PyTorch's rounded sine of pi x misses"),
    "sign": ((NAN,), "NaN, as in NumPy and the Array API; 0 in PyTorch"),
    "sinc": ((1.0, -1.0, 89.0, -104.0, 3e38), "exactly 0; PyTorch's pi x is rounded"),
}
"""Arguments whose result is not that of PyTorch on every CPU, and why."""
TABLES = {"one": (ONE, (X,)), "two": (TWO, (A, B)), "row": (BY_ROW, (ROWS,))}


@pytest.fixture(scope="module")
def torch() -> ModuleType:
    return need_module("torch")


@pytest.mark.parametrize("device", ["reference", "cpu", "sim"])
@pytest.mark.parametrize("table", TABLES)
def test_special_values_are_those_of_torch(torch: ModuleType, device: str, table: str) -> None:
    functions, arrays = TABLES[table]

    def every(*tensors: Any) -> dict[str, Any]:
        return {name: ours(*tensors) for name, (ours, _) in functions.items()}

    program = graphc.compile(every, *(graphc.spec(a.shape) for a in arrays), device=device)
    results = program(*arrays)
    tensors = [torch.from_numpy(a) for a in arrays]
    for name, (_, theirs) in functions.items():
        expected = theirs(torch, *tensors).numpy()
        got = results[name]
        if name in DIFFERENT:
            odd = np.isin(arrays[0], np.array(DIFFERENT[name][0], np.float32))
            odd |= np.isnan(arrays[0]) & np.isnan(DIFFERENT[name][0]).any()
            got, expected = got[~odd], expected[~odd]
        atol = 2e-8 if name == "logaddexp2" else 1e-37
        np.testing.assert_allclose(got, expected, rtol=4e-6, atol=atol, err_msg=name, strict=True)


@pytest.mark.parametrize("device", ["cpu", "sim"])
@pytest.mark.parametrize("table", ["one", "two"])
def test_zeros_have_the_signs_of_the_reference(device: str, table: str) -> None:
    functions, arrays = TABLES[table]
    names = [name for name in functions if name != "logsigmoid"]  # its zeros come of denormals

    def every(*tensors: Any) -> dict[str, Any]:
        return {name: functions[name][0](*tensors) for name in names}

    specs = [graphc.spec(a.shape) for a in arrays]
    expected = graphc.compile(every, *specs, device="reference")(*arrays)
    for name, got in graphc.compile(every, *specs, device=device)(*arrays).items():
        zero = (got == 0) & (got.dtype == np.float32)
        np.testing.assert_array_equal(np.signbit(got[zero]), np.signbit(expected[name][zero]), name)
