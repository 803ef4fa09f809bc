"""Pointwise functions and activations against PyTorch's: values, gradients, special values."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest

import graphc
from graphc import functions as f
from tests.functions.comparison import Case, Function, compare, normal, positive
from tests.functions.tracing import run
from tests.tools import need_module


@pytest.fixture(scope="module")
def torch() -> ModuleType:
    return need_module("torch")


CASES: list[Case] = []


def case(name: str, ours: Function, theirs: Function, *inputs: np.ndarray) -> None:
    # PyTorch divides by 6 in float32 there, whatever the dtype.
    tolerance = 1e-7 if name.startswith(("hardsigmoid", "hardswish")) else 1e-9
    CASES.append(Case(name, ours, theirs, inputs, tolerance))


X, A, B = normal(3, 5) * 2, normal(4, 1, 5, seed=1), normal(3, 1, seed=2)
INSIDE = np.tanh(X) * 0.9
EDGES = np.array([-6.0, -3.0, -1.0, -0.5, 0.0, 0.5, 1.0, 3.0, 6.0, 7.0])

ONE = (
    "tan atan sinh cosh asinh exp2 ceil round trunc signbit isinf isfinite positive "
    "nan_to_num".split()
)
UNIT = "asin acos atanh".split()
for name in ONE:
    case(name, getattr(f, name), lambda t, x, n=name: getattr(t, n)(x), X)
for name in UNIT:
    case(name, getattr(f, name), lambda t, x, n=name: getattr(t, n)(x), INSIDE)
for name in ("log2", "log10"):
    case(name, getattr(f, name), lambda t, x, n=name: getattr(t, n)(x), positive(3, 5))
case("acosh", f.acosh, lambda t, x: t.acosh(x), positive(3, 5) + 1)
case("logit", f.logit, lambda t, x: t.logit(x), INSIDE / 2 + 0.5)
case("logit eps", lambda x: f.logit(x, 0.2), lambda t, x: t.logit(x, 0.2), INSIDE / 2 + 0.5)
for name in ("atan2", "hypot", "fmod", "copysign", "logaddexp"):
    case(name, getattr(f, name), lambda t, a, b, n=name: getattr(t, n)(a, b), A, B)
case("xlogy", f.xlogy, lambda t, a, b: t.xlogy(a, b), normal(4, 5), positive(4, 5))
case("xlogy of 0", f.xlogy, lambda t, a, b: t.xlogy(a, b), X * 0, positive(3, 5))
case("heaviside", lambda x: f.heaviside(x, x + 2), lambda t, x: t.heaviside(x, x + 2).detach(), X)
case("lerp", f.lerp, lambda t, a, b, w: t.lerp(a, b, w), X, X + 1, X * 3)

ACTIVATIONS: dict[str, tuple[Any, ...]] = {
    "celu": (1.5,),
    "elu": (0.7,),
    "selu": (),
    "mish": (),
    "relu6": (),
    "hardtanh": (-0.5, 1.0),
    "hardsigmoid": (),
    "hardswish": (),
    "softsign": (),
    "logsigmoid": (),
    "tanhshrink": (),
    "softshrink": (0.5,),
    "hardshrink": (0.5,),
    "threshold": (0.5, -3.0),
}
for name, settings in ACTIVATIONS.items():
    for which, x in (("", X), (" at its edges", EDGES)):
        case(
            name + which,
            lambda x, n=name, s=settings: getattr(f, n)(x, *s) * 2,
            lambda t, x, n=name, s=settings: getattr(t.nn.functional, n)(x, *s) * 2,
            x,
        )
case("glu", lambda x: f.glu(x, 1), lambda t, x: t.nn.functional.glu(x, 1), normal(3, 4, 2))
case("softmin", lambda x: f.softmin(x, 0), lambda t, x: t.nn.functional.softmin(x, 0), X)
for weight in (normal(5, seed=4), normal(1, seed=4)):
    case(
        f"prelu {weight.size}",
        f.prelu,
        lambda t, x, w: t.nn.functional.prelu(x, w),
        normal(2, 5, 3),
        weight,
    )

SMALL = np.arange(-8, 8, dtype=np.int32).reshape(2, 8)
OTHER = SMALL[:, ::-1].copy() * 3
PLACES = np.arange(16, dtype=np.int32).reshape(2, 8)
for name in ("bitwise_and", "bitwise_or", "bitwise_xor"):
    case(name, getattr(f, name), lambda t, a, b, n=name: getattr(t, n)(a, b), SMALL, OTHER)
    case(
        f"{name} of booleans",
        lambda a, b, n=name: getattr(f, n)(a > 0, b > 3),
        lambda t, a, b, n=name: getattr(t, n)(a > 0, b > 3),
        SMALL,
        OTHER,
    )
case("bitwise_not", f.bitwise_not, lambda t, a: t.bitwise_not(a), SMALL)
case(
    "operators of bits",
    lambda a, b: (a & b) ^ (~a | b),
    lambda t, a, b: (a & b) ^ (~a | b),
    SMALL,
    OTHER,
)
case("shifts", lambda a, b: (a << b) + (a >> b), lambda t, a, b: (a << b) + (a >> b), SMALL, PLACES)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_values_and_gradients_equal_torchs(torch: ModuleType, case: Case) -> None:
    compare(torch, case)


NAN, INF = float("nan"), float("inf")
SPECIAL = np.array([NAN, INF, -INF, 0.0, -0.0, 1.0, -1.0, 2.5, -2.5, 0.5, 90.0, -200.0, 3e37])
PAIRS = tuple(np.ascontiguousarray(g) for g in np.meshgrid(SPECIAL, SPECIAL))
OF_ONE = [*ONE, *UNIT, "log2", "log10", "acosh", "logit"]
OF_TWO = ["atan2", "hypot", "copysign", "logaddexp", "xlogy", "heaviside"]


@pytest.mark.parametrize("device", ["reference", "cpu"])
def test_special_values_are_those_of_torch(torch: ModuleType, device: str) -> None:
    def every(x: Any, a: Any, b: Any) -> dict[str, Any]:
        results = {name: getattr(f, name)(x) for name in OF_ONE}
        results |= {name: getattr(f, name)(a, b) for name in OF_TWO}
        return results | {n: getattr(f, n)(x, *s) for n, s in ACTIVATIONS.items()}

    arrays = [a.astype(np.float32) for a in (SPECIAL, *PAIRS)]
    program = graphc.compile(every, *(graphc.spec(a.shape) for a in arrays), device=device)
    found = program(*arrays)
    x, a, b = (torch.from_numpy(array) for array in arrays)
    wanted = {name: getattr(torch, name)(x) for name in OF_ONE}
    wanted |= {name: getattr(torch, name)(a, b) for name in OF_TWO}
    wanted |= {n: getattr(torch.nn.functional, n)(x, *s) for n, s in ACTIVATIONS.items()}
    for name, expected in wanted.items():
        np.testing.assert_allclose(
            found[name], expected.numpy(), rtol=3e-6, atol=1e-37, err_msg=name, strict=True
        )


def test_shifts_by_more_than_the_bits_of_a_number_follow_numpy() -> None:
    a = np.array([-5, 5, -1, 7], np.int32)
    places = np.array([40, 32, -1, 31], np.int32)
    left, right = run(lambda x, n: (x << n, x >> n), a, places)
    np.testing.assert_array_equal(left, np.left_shift(a, places))
    np.testing.assert_array_equal(right, np.right_shift(a, places))
