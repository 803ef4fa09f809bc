"""What vanishes in a tail is 0 there, whatever it is multiplied by.

Each function below is a factor that has a limit times something without a bound. In float32 the
factor reaches its limit, so that the product is exactly 0 or grows as its other factor does; a
factor that is 1e-8 off is right to an absolute bound and wrong without a bound.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphc
from graphc import functions as f
from tests.tools import need_command

TAILS: dict[str, Callable[[Any], Any]] = {
    "x (1 + tanh x)": lambda x: x * (1 + f.tanh(x)),
    "x (1 - tanh x)": lambda x: x * (1 - f.tanh(x)),
    "0.5 x (1 + tanh x)": lambda x: 0.5 * x * (1 + f.tanh(x)),
    "x (tanh x - 1)": lambda x: x * (f.tanh(x) - 1),
    "x (1 - tanh^2 x)": lambda x: x * (1 - f.square(f.tanh(x))),
    "x (1 + erf x)": lambda x: x * (1 + f.erf(x)),
    "x (1 - erf x)": lambda x: x * (1 - f.erf(x)),
    "x erfc x": lambda x: x * f.erfc(x),
    "x sigmoid x": lambda x: x * f.sigmoid(x),
    "x (1 - sigmoid x)": lambda x: x * (1 - f.sigmoid(x)),
    "x sigmoid' x": lambda x: x * f.sigmoid(x) * (1 - f.sigmoid(x)),
    "x exp x": lambda x: x * f.exp(f.minimum(x, 1.0)),
    "x (1 + expm1 x)": lambda x: x * (1 + f.expm1(f.minimum(x, 1.0))),
    "x exp2 x": lambda x: x * f.exp2(f.minimum(x, 1.0)),
    "x sech x": lambda x: x / f.cosh(x),
    "gelu": lambda x: f.gelu(x),
    "gelu by tanh": lambda x: f.gelu(x, approximate="tanh"),
    "silu": lambda x: f.silu(x),
    "mish": lambda x: f.mish(x),
    "softplus": lambda x: f.softplus(x),
    "softplus(x) - x": lambda x: f.softplus(f.maximum(x, 30.0)) - f.maximum(x, 30.0),
    "x hardswish": lambda x: x * f.hardswish(f.minimum(x, 1.0)),
}
ENDS = (1e2, 1.7e2, 1e3, 1e6, 1e9, 1e18, 1e30)
X = np.array([s * e for e in ENDS for s in (1, -1)], np.float32)


def exact(function: Callable[[Any], Any]) -> Any:
    """In double precision, as float32."""
    program = graphc.compile(function, graphc.spec(X.shape, "float64"), device="reference")
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        return program(X.astype(np.float64)).astype(np.float32)


@pytest.mark.parametrize("device", ["reference", "cpu", "sim"])
def test_a_tail_is_exact(device: str) -> None:
    if device != "reference":
        need_command("g++", "clang++")

    def every(x: Any) -> dict[str, Any]:
        return {name: function(x) for name, function in TAILS.items()}

    results = graphc.compile(every, graphc.spec(X.shape), device=device)(X)
    for name, function in TAILS.items():
        expected = exact(function)
        limit = np.abs(expected) < 1e-30  # e^-100 and less, of which float32 may have nothing left
        np.testing.assert_allclose(results[name][limit], 0, atol=1e-30, err_msg=name)
        np.testing.assert_allclose(results[name][~limit], expected[~limit], rtol=2e-6, err_msg=name)


@pytest.mark.parametrize("device", ["reference", "cpu", "sim"])
def test_the_gradient_of_a_tail_is_exact(device: str) -> None:
    if device != "reference":
        need_command("g++", "clang++")
    names = (
        "gelu",
        "gelu by tanh",
        "silu",
        "mish",
        "softplus",
        "x sigmoid x",
        "0.5 x (1 + tanh x)",
    )

    def every(x: Any) -> dict[str, Any]:
        return {name: graphc.grad(lambda x, name=name: f.sum(TAILS[name](x)))(x) for name in names}

    x = X[np.abs(X) < 1e12]  # the cube in gelu overflows above, in PyTorch as here
    results = graphc.compile(every, graphc.spec(x.shape), device=device)(x)
    for name in names:
        np.testing.assert_allclose(results[name], x > 0, rtol=2e-6, atol=1e-30, err_msg=name)
