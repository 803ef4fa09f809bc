"""The reference device: results, updates, the first NaN."""

from __future__ import annotations

import numpy as np
import pytest

from graphc.base.errors import RunError
from graphc.ir import Graph, Node, Type, Value, Where
from graphc.ir.state import StateBuffer
from graphc.ops.base import REGISTRY
from graphc.ops.fused import Fused, KernelNode
from graphc.runtime.checks.nan import first_nan
from graphc.runtime.reference import ReferenceExecutable

VECTOR = Type((4,), "f32")


def value(name: str) -> Value:
    return Value(name, VECTOR)


def log_step() -> Graph:
    """y = log(x) in a kernel, n <- n + y, out = y; the user's lines are those of model.py."""
    x, n, y, inner, total = map(value, ("x", "n", "y", "inner", "total"))
    body = Graph("logarithm", (x,), (), (Node(REGISTRY["log"](), (x,), (inner,)),), (inner,))
    nodes = (
        KernelNode(Fused("logarithm", body), (x,), (y,), Where("head", ("model.py:3",))),
        Node(REGISTRY["add"](), (n, y), (total,), Where("", ("model.py:4",))),
    )
    return Graph("step", (x,), (n,), nodes, (y, n), ((n, total),))


def executable() -> tuple[ReferenceExecutable, StateBuffer]:
    buffer = StateBuffer(np.arange(4, dtype=np.float32))
    return ReferenceExecutable(log_step(), {"n": buffer}), buffer


def test_outputs_are_fresh_and_state_is_updated_after_them():
    reference, buffer = executable()
    x = np.full(4, np.e, np.float32)
    y, n = reference.run([x])
    np.testing.assert_allclose(y, 1, rtol=1e-6)
    np.testing.assert_array_equal(n, np.arange(4))
    np.testing.assert_allclose(buffer.array, np.arange(4) + 1, rtol=1e-6)
    assert buffer.version == 1 and not np.shares_memory(n, buffer.array)


def test_updates_that_exchange_two_values_read_the_old_contents():
    a, b = value("a"), value("b")
    graph = Graph("swap", (), (a, b), (), (), ((a, b), (b, a)))
    buffers = {v.name: StateBuffer(np.full(4, i, np.float32)) for i, v in enumerate((a, b))}
    ReferenceExecutable(graph, buffers).run([])
    assert [buffer.array[0] for buffer in buffers.values()] == [1, 0]


def test_the_first_nan_names_value_op_and_line_and_leaves_the_state():
    reference, buffer = executable()
    with pytest.raises(RunError) as caught:
        reference.run_checked([np.array([1, -1, 1, 1], np.float32)])
    assert str(caught.value) == (
        "NaN in %y : f32[4], written by logarithm, head model.py:3; the state is unchanged"
    )
    with pytest.raises(RunError) as caught:
        reference.run_checked([np.full(4, np.nan, np.float32)])
    assert (
        str(caught.value) == "NaN in %x : f32[4], before the first kernel; the state is unchanged"
    )
    np.testing.assert_array_equal(buffer.array, np.arange(4))
    assert buffer.version == 0
    assert len(reference.run_checked([np.ones(4, np.float32)])) == 2 and buffer.version == 1


def test_no_nan_is_found_where_there_is_none():
    graph = log_step()
    zeros = np.zeros(4, np.float32)
    assert first_nan(graph, [zeros], {"n": zeros}) is None  # -inf is not NaN


def test_profile_times_each_node_and_leaves_the_state():
    reference, buffer = executable()
    rows = reference.profile([np.ones(4, np.float32)], repeats=3)
    assert [(t.name, t.calls) for t in rows] == [("logarithm", 3), ("add", 3)]
    assert all(0 < t.least <= t.microseconds / 3 <= t.most for t in rows)
    assert len(reference.calls([np.ones(4, np.float32)], repeats=3)) == 3
    np.testing.assert_array_equal(buffer.array, np.arange(4))
