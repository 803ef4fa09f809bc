"""Random networks of convolutions: on the CPU and, with tensor cores' kernels, on the simulated
GPU their gradients are those of the reference."""

from __future__ import annotations

import numpy as np
import pytest

import graphc
from graphc.kernels.cuda.convolution.staging import HaloTile
from tests.random_convolutions import RandomConvolutions
from tests.tools import need_command

SAMPLE, MANY = 8, 300
TOLERANCES = {"float32": 2.0**-12, "tf32": 2.0**-7}
"""Of the largest element of a gradient: what few layers make of the roundings of their values."""


def assert_right(seed: int, device: str, precision: str) -> None:
    made = RandomConvolutions(seed)
    gradients = graphc.grad(made.run, tuple(range(1, len(made.shapes))))
    specs, arrays = [graphc.spec(shape) for shape in made.shapes], made.arrays()
    streams = {} if device == "cpu" else {"streams": 1 + seed % 2}
    here = graphc.compile(gradients, *specs, device=device, precision=precision, **streams)
    there = graphc.compile(gradients, *specs, device="reference", precision=precision)
    for shape, got, want in zip(made.shapes[1:], here(*arrays), there(*arrays), strict=True):
        scale = TOLERANCES[precision] * max(1e-6, float(np.abs(want).max()))
        message = f"of {list(shape)} in\n" + "\n".join([str(made.shapes), *made.text])
        np.testing.assert_allclose(got, want, rtol=0, atol=scale, err_msg=message)


@pytest.fixture(autouse=True)
def compiler() -> None:
    need_command("g++", "clang++")


@pytest.fixture
def held(clean_environment: pytest.MonkeyPatch) -> None:
    """Blocks hold pixels wherever they can, and what they read is checked."""
    clean_environment.setenv("GRAPHC_CHECK", "race")
    clean_environment.setattr(HaloTile, "worth", lambda *_: 1e9)


@pytest.mark.parametrize("seed", range(SAMPLE))
def test_gradients_on_the_cpu_are_right(seed: int) -> None:
    assert_right(seed, "cpu", "float32")


@pytest.mark.parametrize("seed", range(SAMPLE))
def test_gradients_by_tensor_cores_are_right(seed: int, held: None) -> None:
    assert_right(seed, "sim", "tf32")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(SAMPLE, MANY))
def test_many_gradients_are_right(seed: int, held: None) -> None:
    assert_right(seed, "cpu", "float32")
    assert_right(seed, "sim", "tf32")
