"""Constants that kernels read as memory become state."""

import numpy as np
import pytest

import graphc
from graphc.passes.fuse.place_constants import place_constants
from tests.passes.meaning import CPU, ops

X = graphc.spec((3, 4))


def placed(fn):
    return place_constants(graphc.trace(fn, X), CPU)


def test_a_small_constant_stays_where_it_is_printed():
    graph = placed(lambda x: x * np.float32(3))
    assert ops(graph) == ["constant", "multiply"] and graph.state == ()


def test_a_large_constant_becomes_state():
    graph = placed(lambda x: x[0, 0] * np.arange(17, dtype=np.float32))
    assert "constant" not in ops(graph)
    assert [str(v.type) for v in graph.state] == ["f32[17]"]


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: x @ graphc.ones((4, 2)),
        lambda x: graphc.avg_pool2d(graphc.broadcast_to(np.float32(1), (1, 1, 4, 4)), 2) * x[0, 0],
        lambda x: graphc.take(np.ones(3, np.float32), x[0].astype("int32")),
    ],
    ids=["contraction", "window", "gather"],
)
def test_operands_that_are_memory_become_state_however_small(fn):
    graph = placed(fn)
    assert len(graph.state) == 1 and graph.state[0].name.startswith("constant.")


def test_an_iota_that_is_memory_is_written_out():
    graph = placed(lambda x: x @ graphc.arange(4, dtype="float32"))
    assert ops(graph)[:2] == ["iota", "stop_gradient"]
    graph = placed(lambda x: x * graphc.arange(4, dtype="float32"))
    assert ops(graph) == ["iota", "multiply"]
