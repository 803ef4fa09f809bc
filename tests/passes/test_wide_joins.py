"""Wide concats, many slices, many parameters: few texts, in a time that grows with their number."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

import graphc
from graphc import nn, optim
from graphc.ops.join import Concat, Pad
from graphc.passes.layout.split_joins import GROUP, WIDEST

rng = np.random.default_rng(1)


def joins(program: Any, stage: str) -> list[int]:
    return [len(n.inputs) for n in program.stages[stage].nodes if isinstance(n.op, Concat)]


@pytest.mark.parametrize("device", ["cpu", "sim", "reference"])
@pytest.mark.parametrize("count", [WIDEST, WIDEST + 1, 7 * GROUP + 3])
def test_concats_are_split_into_groups(count: int, device: str) -> None:
    def function(x: Any, y: Any) -> Any:
        return graphc.concat([x, *(y[:, i : i + 1 + i % 3] * 2.0 for i in range(count - 1))], 1)

    x = rng.standard_normal((3, 5)).astype(np.float32)
    y = rng.standard_normal((3, count + 3)).astype(np.float32)
    program = graphc.compile(function, x, y, device=device)
    right = np.concatenate([x, *(y[:, i : i + 1 + i % 3] * 2 for i in range(count - 1))], 1)
    np.testing.assert_array_equal(program(x, y), right)
    assert joins(program, "clean") == [count]
    assert max(joins(program, "split_joins")) <= WIDEST


@pytest.mark.parametrize("order", ["forward", "backward", "apart"])
def test_gradients_of_many_slices_are_one_concat(order: str) -> None:
    count = 40
    rows = {"forward": range(count), "backward": reversed(range(count))}
    chosen = list(rows.get(order, range(0, count, 2)))

    def loss(x: Any) -> Any:
        return sum(graphc.sum(graphc.sin(x[i])) * float(i + 1) for i in chosen)

    x = rng.standard_normal((count, 6)).astype(np.float32)
    program = graphc.compile(graphc.grad(loss), x, device="cpu")
    right = np.zeros_like(x)
    for i in chosen:
        right[i] = np.cos(x[i]) * (i + 1)
    np.testing.assert_allclose(program(x), right, rtol=1e-5, atol=1e-5)
    if order != "apart":
        assert not any(isinstance(n.op, Pad) for n in program.stages["clean"].nodes)


def test_slices_that_overlap_are_added() -> None:
    def loss(x: Any) -> Any:
        return sum(graphc.sum(graphc.square(x[i : i + 4])) for i in range(0, 24, 2))

    x = rng.standard_normal((26, 5)).astype(np.float32)
    program = graphc.compile(graphc.grad(loss), x, device="cpu")
    right = sum(
        np.where((np.arange(26) >= i) & (np.arange(26) < i + 4), 2, 0)[:, None] * x
        for i in range(0, 24, 2)
    )
    np.testing.assert_allclose(program(x), right, rtol=1e-5, atol=1e-6)


class Many(nn.Module):
    def __init__(self, count: int) -> None:
        self.rows = [nn.Parameter(np.full(4, 0.5, np.float32)) for _ in range(count)]

    def forward(self, x: Any) -> Any:
        for row in self.rows:
            x = x + row
        return graphc.sum(x)


def rows_of(count: int) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    def function(x: Any) -> Any:
        return graphc.sum(graphc.concat([graphc.sin(x[i])[None] for i in range(count)], 0) ** 2)

    return graphc.value_and_grad(function), (graphc.spec((count, 64)),), {}


def parameters_of(count: int) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    model = Many(count)
    return (
        lambda m, x: m(x),
        (model, graphc.spec((4,))),
        {"update": optim.SGD(lr=0.1)},
    )


@pytest.mark.parametrize("make", [rows_of, parameters_of], ids=["rows", "parameters"])
def test_compiling_takes_a_time_that_grows_with_the_program(
    make: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """200 of them took 10.7 and 5.4 s. The bound leaves room for a machine under load."""
    monkeypatch.setenv("GRAPHC_CACHE_DIR", str(tmp_path))
    function, args, options = make(200)
    start = time.perf_counter()
    program = graphc.compile(function, *args, device="cpu", streams=1, **options)
    took = time.perf_counter() - start
    assert len({k.canonical for k in program.plan.kernels.values()}) < 20
    assert took < 60.0, took
