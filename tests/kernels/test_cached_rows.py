"""Elements of a row that a loop leaves for later ones: where, and that nothing else changes."""

from __future__ import annotations

import re

import numpy as np
import pytest

import graphc
from graphc.kernels.cpu.reduce import reduction_kernel
from graphc.kernels.cpu.reduce.reduction_kernel import HELD_BYTES
from graphc.runtime.compilers.shared_objects import cpu_target

rng = np.random.default_rng(5)
SHAPES = ((64, 1, 17), (7, 5, 33), (3, 16, 64))


def gradient_of_softmax(axis):
    def function(x: graphc.Tensor, d: graphc.Tensor) -> graphc.Tensor:
        return graphc.grad(lambda x: graphc.sum(graphc.softmax(x, axis) * d))(x)

    return function


def compiled(function, *arrays):
    specs = [graphc.spec(a.shape, a.dtype) for a in arrays]
    return graphc.compile(function, *specs, device="cpu", threads=2)


def held(program) -> list[str]:
    return re.findall(r"alignas\(64\) (\w+ held\d+\[\d+\])", "".join(program.kernels.values()))


def exponentials(program) -> int:
    return "".join(program.kernels.values()).count("= exp(")


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [
        *((shape, "float32") for shape in SHAPES),
        (SHAPES[0], "float64"),
        *(pytest.param(shape, "float64", marks=pytest.mark.slow) for shape in SHAPES[1:]),
    ],
    ids=str,
)
def test_what_is_held_has_the_bits_of_what_is_computed_again(
    monkeypatch: pytest.MonkeyPatch, shape, dtype
):
    def function(x: graphc.Tensor, d: graphc.Tensor) -> list[graphc.Tensor]:
        axes: list[int | tuple[int, ...]] = [-1, 0, (1, 2), (0, 2), (0, 1)]
        return [gradient_of_softmax(axis)(x, d) for axis in axes]

    x, d = (rng.standard_normal(shape).astype(dtype) * 3 for _ in range(2))
    program = compiled(function, x, d)
    monkeypatch.setattr(reduction_kernel, "DEAR", np.inf)
    plain = compiled(function, x, d)
    assert held(program) and not held(plain)
    assert exponentials(program) < exponentials(plain)
    specs = graphc.spec(shape, dtype), graphc.spec(shape, dtype)
    reference = graphc.compile(function, *specs, device="reference")
    tolerance = 1e-5 if dtype == "float32" else 1e-13
    # The compiler may fuse one product or another with the sum behind it: in float64 everywhere, in
    # float32 without the instructions of AVX-512.
    same = dtype == "float32" and cpu_target().lanes == 16
    apart = 0.0 if same else 8 * np.finfo(dtype).eps
    for found, again, right in zip(program(x, d), plain(x, d), reference(x, d), strict=True):
        np.testing.assert_allclose(found, again, rtol=0, atol=apart * np.abs(again).max())
        np.testing.assert_allclose(found, right, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("axis", [-1, 0])
def test_rows_and_columns_are_held(axis, unbuilt):
    x = rng.standard_normal((48, 48)).astype(np.float32)
    assert len(held(compiled(gradient_of_softmax(axis), x, x))) == 1


def test_rows_are_held_as_far_as_the_first_cache_has_room(unbuilt):
    def softmax(x: graphc.Tensor) -> graphc.Tensor:
        return graphc.softmax(x, -1)

    fits = rng.standard_normal((16, HELD_BYTES // 4)).astype(np.float32)
    larger = rng.standard_normal((16, HELD_BYTES // 4 + 1)).astype(np.float32)
    assert held(compiled(softmax, fits)) == [f"float held0[{HELD_BYTES // 4}]"]
    assert not held(compiled(softmax, larger))


def test_two_values_are_held_side_by_side():
    def function(x: graphc.Tensor) -> graphc.Tensor:
        e, t = graphc.exp(x), graphc.tanh(x)
        total = graphc.sum(e * t, axis=-1, keepdims=True)
        return graphc.sum(e / total, axis=-1) + graphc.sum(t / total, axis=-1)

    x = rng.standard_normal((40, 100)).astype(np.float32)
    program = compiled(function, x)
    assert len(held(program)) == 2
    assert exponentials(program) == 1
    e, t = np.exp(x.astype(np.float64)), np.tanh(x.astype(np.float64))
    total = (e * t).sum(-1, keepdims=True)
    np.testing.assert_allclose(program(x), ((e + t) / total).sum(-1), rtol=3e-3)


def test_what_is_cheap_is_computed_again(unbuilt):
    def normalised(x: graphc.Tensor) -> graphc.Tensor:
        centred = x - graphc.mean(x, axis=-1, keepdims=True)
        return centred / graphc.sqrt(graphc.mean(centred * centred, axis=-1, keepdims=True))

    assert not held(compiled(normalised, rng.standard_normal((64, 64)).astype(np.float32)))


def test_a_row_that_several_workers_share_is_not_held():
    x = rng.standard_normal((2, 4000)).astype(np.float32)
    long = np.concatenate([x] * 40, axis=1)
    program = compiled(lambda x: graphc.softmax(x, -1), long)
    assert not held(program)
    expected = np.exp(long - long.max(-1, keepdims=True))
    np.testing.assert_allclose(program(long), expected / expected.sum(-1, keepdims=True), rtol=1e-4)
