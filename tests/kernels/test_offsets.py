"""Inputs that begin at the first row that is read: kernels that differ by that have one text."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import graphc
from graphc import nn, optim

rng = np.random.default_rng(3)


def texts(program: Any) -> int:
    return len({k.canonical for k in program.plan.kernels.values()})


class Cell(nn.Module):
    def __init__(self, kind: type[Any]) -> None:
        graphc.seed(0)
        self.cell = kind(16, 16)

    def forward(self, x: Any, h: Any, steps: int) -> Any:
        for t in range(steps):
            h = self.cell(x[t], h)
        return h


@pytest.mark.parametrize("device", ["cpu", "sim"])
@pytest.mark.parametrize("kind", [nn.RNNCell, nn.GRUCell])
def test_an_unrolled_network_has_as_many_texts_for_any_length(kind: type[Any], device: str) -> None:
    """And trains as it does on NumPy."""

    def loss(model: Any, x: Any, h: Any, steps: int) -> Any:
        return graphc.mean(graphc.square(model(x, h, steps)))

    counts, losses = [], []
    for steps in (8, 14):
        x = rng.standard_normal((steps, 8, 16)).astype(np.float32)
        h = rng.standard_normal((8, 16)).astype(np.float32)
        for where in (device, "reference"):
            model = Cell(kind)
            program = graphc.compile(
                loss, model, x, h, steps, update=optim.SGD(lr=0.1), device=where
            )
            losses.append([float(program(x, h)) for _ in range(3)])
            if where == device:
                counts.append(texts(program))
        np.testing.assert_allclose(losses[-1], losses[-2], rtol=1e-5)
    assert counts[0] == counts[1]


CASES = {
    "rows": ((40, 16), lambda x: [graphc.sin(x[i]) for i in range(3, 40, 5)]),
    "runs of rows": ((40, 16), lambda x: [graphc.tanh(x[i : i + 3]) for i in range(0, 30, 7)]),
    "steps": ((40, 16), lambda x: [x[5:37:4] * 2.0, x[16::3] + 1.0]),
    "odd rows": ((13, 7), lambda x: [graphc.exp(x[i]) for i in range(13)]),
    "two places in one kernel": ((40, 16), lambda x: [x[9] * x[17] - x[30], x[8:20] / x[12:24]]),
    "behind axes of one": ((1, 1, 20, 16), lambda x: [graphc.sin(x[0, 0, i]) for i in (3, 19)]),
    "columns": ((8, 64), lambda x: [x[:, 16:32] * 2.0, x[4:, 32:] + 1.0]),
    "sums": ((40, 16), lambda x: [graphc.sum(x[7:]), graphc.sum(x[16:24], 0), x[32:].max(1)]),
    "products": ((40, 16), lambda x: [x[8:24] @ x[24:40].T, x[24:].T @ x[8:24]]),
    "the whole as well": ((40, 16), lambda x: [x[8:] + x[:32], graphc.sum(x, 0) + x[16]]),
    "sorted": ((40, 16), lambda x: [graphc.sort(x[20:], axis=1), graphc.cumsum(x[12:], 0)]),
    "gathered": ((40, 16), lambda x: [graphc.take(x[16:], np.array([3, 0, 7]), axis=0)]),
    "scalars": ((40,), lambda x: [x[16] * x[3], x[32] + 1.0, x[16:] * x[39]]),
}


@pytest.mark.parametrize(("device", "streams"), [("cpu", 1), ("cpu", 3), ("sim", 2)])
@pytest.mark.parametrize("case", CASES)
def test_slices_are_read_where_they_lie(case: str, device: str, streams: int) -> None:
    shape, function = CASES[case]

    def both(x: Any) -> Any:
        def loss(x: Any) -> Any:
            found = function(x)
            total = sum(graphc.sum(graphc.square(y)) for y in found)
            return total, found

        return graphc.value_and_grad(loss)(x)

    x = rng.standard_normal(shape).astype(np.float32)
    program = graphc.compile(both, x, device=device, streams=streams, threads=2)
    right = graphc.compile(both, x, device="reference")
    for got, want in zip(flat(program(x)), flat(right(x)), strict=True):
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=1e-5)


def flat(value: Any) -> list[np.ndarray]:
    if isinstance(value, (tuple, list)):
        return [array for item in value for array in flat(item)]
    return [np.asarray(value)]


@pytest.mark.parametrize("device", ["cpu", "sim"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64", "int8", "bool"])
def test_offsets_of_other_dtypes(dtype: str, device: str) -> None:
    x = (rng.standard_normal((96, 64)) * 3).astype("float32" if dtype == "bfloat16" else dtype)

    def function(x: Any) -> Any:
        return [graphc.where(x[i] > 0, x[i + 1], x[i]) for i in range(0, 90, 9)]

    spec = graphc.spec(x.shape, dtype)
    program = graphc.compile(function, spec, device=device)
    right = graphc.compile(function, spec, device="reference")
    for got, want in zip(program(x), right(x), strict=True):
        np.testing.assert_array_equal(got, want)
    assert texts(program) < 10


@pytest.mark.parametrize("device", ["cpu", "sim"])
def test_state_and_loops_are_read_behind_their_start(device: str) -> None:
    class Table(nn.Module):
        def __init__(self) -> None:
            self.rows = nn.Parameter(rng.standard_normal((12, 16)).astype(np.float32))

        def forward(self, x: Any) -> Any:
            def step(carry: Any, piece: Any) -> Any:
                carry = carry + graphc.tanh(piece[4:8] * self.rows[8])
                return carry, carry[2:]

            return graphc.scan(step, x[0, :4], x)

    x = rng.standard_normal((6, 8, 16)).astype(np.float32)
    model = Table()
    program = graphc.compile(model, x, device=device, threads=2)
    right = graphc.compile(model, x, device="reference")
    for got, want in zip(flat(program(x)), flat(right(x)), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("device", ["cpu", "sim"])
def test_a_row_that_is_overwritten_is_not_the_whole(device: str) -> None:
    """What begins inside an input may not be given its memory."""

    def function(x: Any) -> Any:
        y = graphc.exp(x)
        return graphc.sum(y[16:32] * 2.0 + 1.0, 0), y[:16] - y[16:32]

    x = rng.standard_normal((32, 16)).astype(np.float32)
    program = graphc.compile(function, x, device=device)
    for kernel in program.plan.kernels.values():
        assert all(not kernel.offset(i) for i, _ in kernel.inplace)
    e = np.exp(x)
    total, rest = program(x)
    np.testing.assert_allclose(total, (e[16:] * 2 + 1).sum(0), rtol=1e-5)
    np.testing.assert_allclose(rest, e[:16] - e[16:], rtol=1e-5, atol=1e-5)
