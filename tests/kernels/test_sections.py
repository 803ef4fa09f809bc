"""Kernels that read a contraction by sections or write sections of an output: recurrent cells."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from graphc import functions as F
from graphc.base.target import Target
from graphc.ir import ROW_MAJOR, Layout, Node, Type
from graphc.ops.fused import Fused
from graphc.runtime.compilers.shared_objects import cpu_target
from graphc.trace import Tensor
from tests.kernels.cells import gru, lstm, lstm_backward, peephole
from tests.kernels.harness import Built, build, traced

WIDTH = cpu_target().lanes


def _cell(cell: Callable[..., Any], n: int, h: int, layout: Layout = ROW_MAJOR) -> Node:
    def on_batch(*shape: int) -> Type:
        return Type(shape, layout=layout)

    state = on_batch(n, h)
    types = {
        lstm: [state, state, on_batch(n, 4 * h), Type((4 * h, h))],
        gru: [state, on_batch(n, 3 * h), Type((3 * h, h)), Type((h,))],
        peephole: [state, state, on_batch(n, 4 * h), Type((h, 4 * h)), Type((3 * h,))],
        lstm_backward: [state] * 4 + [on_batch(n, 4 * h)],
    }[cell]
    outputs = {lstm: 3, gru: 2, peephole: 5, lstm_backward: 2}[cell]
    return traced(cell.__name__, cell, types, [layout] * outputs)


def _assert_right(built: Built, inplace: bool = False) -> None:
    node = built.node
    assert isinstance(node.op, Fused)
    random = np.random.default_rng(3)
    inputs = [random.standard_normal(v.type.shape).astype(np.float32) for v in node.inputs]
    want = node.op.reference(*(x.astype(np.float64) for x in inputs))
    for a, b in zip(built.run(inputs, inplace=inplace), want, strict=True):
        length = max(v.type.shape[-1] for v in node.inputs)
        tolerance = 4 * np.sqrt(length) * np.finfo(np.float32).eps
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=8 * tolerance)


@pytest.mark.parametrize("width", sorted({4, 8, WIDTH}))
def test_cells_of_any_size_equal_the_reference(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the batch in the lanes or not, in tiles or, last, in the nest that takes what no tile
    fits."""
    cells, target = (lstm, gru, peephole, lstm_backward), Target("cpu", width)
    lanes = Layout(0, width)
    sizes = [(2 * width + 3, 17, lanes), (width, 7, ROW_MAJOR), (3, 1, lanes), (1, 30, ROW_MAJOR)]
    if width == WIDTH:
        sizes += [(2 * width, 12, lanes), (2, 1, ROW_MAJOR), (2 * width, 2 * width, ROW_MAJOR)]
    nodes = [_cell(c, *size) for c in cells for size in sizes]
    for built in build(nodes, target):
        _assert_right(built)
    monkeypatch.setattr("graphc.kernels.cpu.contract.contract.ranked", lambda *_: [])
    plain = [_cell(c, 5, 9, layout) for c in cells for layout in (lanes, ROW_MAJOR)]
    for built in build(plain, target):
        _assert_right(built)


def test_gates_overwrite_what_they_come_from() -> None:
    """In place over the hoisted product of the inputs: each section where it was read."""
    lanes = Layout(0, WIDTH)
    nodes = [_cell(c, WIDTH + 5, 9, layout) for c in (lstm, gru) for layout in (lanes, ROW_MAJOR)]
    for built, xw, gates in zip(build(nodes), (2, 2, 1, 1), (2, 2, 1, 1), strict=True):
        assert (xw, gates) in built.kernel.inplace
        _assert_right(built, inplace=True)


def test_a_concat_may_overwrite_what_it_is_made_of() -> None:
    """By the same section or another: all sections of an element are read before one is written."""

    def twice(x: Tensor) -> Tensor:
        a, b = x[:, :8], x[:, 8:]
        return F.concat([a * 2, b + 1], axis=1)

    def swapped(x: Tensor) -> Tensor:
        a, b = x[:, :8], x[:, 8:]
        return F.concat([b, a], axis=1)

    nodes = [traced(f.__name__, f, [Type((6, 16))]) for f in (twice, swapped)]
    first, second = build(nodes)
    assert first.kernel.inplace == second.kernel.inplace == ((0, 0),)
    for built in (first, second):
        _assert_right(built, inplace=True)


def test_one_phase_computes_a_step() -> None:
    """No sums go through memory where the batch or the units fill vectors."""
    for node in (_cell(lstm, 32, 64, Layout(0, WIDTH)), _cell(peephole, 16, 64)):
        (built,) = build([node])
        assert len(built.kernel.phases) == 1 and built.kernel.workspace == 0
