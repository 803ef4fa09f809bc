"""Whether a pass keeps meaning: both graphs evaluated in NumPy on the same random values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import graphc
from graphc.base.target import Target
from graphc.ir import Graph, Type, verify
from graphc.ir.interpret import evaluate
from graphc.ops.constant import PLACED, Constant
from graphc.passes.pipeline import AFTER_GRADIENT, BEFORE_GRADIENT

CPU = Target("cpu", lanes=16)


def random_values(values: Any, seed: int = 0) -> list[np.ndarray]:
    """One array per value: floats from a normal distribution, integers from 0 to 9."""
    generator = np.random.default_rng(seed)

    def draw(type: Type) -> np.ndarray:
        if type.dtype.startswith("f"):
            return generator.standard_normal(type.shape).astype(type.numpy_dtype)
        return generator.integers(0, 2 if type.dtype == "bool" else 10, type.shape).astype(
            type.numpy_dtype
        )

    return [draw(v.type) for v in values]


def assert_same_meaning(before: Graph, after: Graph, tolerance: float = 0.0) -> None:
    """Equal outputs and new state; to the bit unless a relative tolerance is given."""
    verify(after)
    inputs = random_values(before.inputs)
    state = dict(zip([v.name for v in before.state], random_values(before.state, 1), strict=True))
    constants = [n.op for n in before.nodes if isinstance(n.op, Constant)]
    state |= {PLACED + op.value.digest: op.array for op in constants}
    with np.errstate(all="ignore"):
        expected = evaluate(before, inputs, state)
        got = evaluate(after, inputs, state)
    assert len(got[0]) == len(expected[0])
    for a, b in zip(got[0], expected[0], strict=True):
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance, equal_nan=True)
    for name, value in expected[1].items():
        np.testing.assert_allclose(got[1][name], value, rtol=tolerance, atol=tolerance)


def run_all(fn: Callable[..., Any], *specs: Type, target: Target = CPU) -> dict[str, Graph]:
    """The stages of a traced function, by pass."""
    graph = graphc.trace(fn, *specs)
    stages = {"trace": graph}
    for name, function in (*BEFORE_GRADIENT, *AFTER_GRADIENT):
        graph = function(graph, target)
        verify(graph)
        stages[name] = graph
    return stages


def ops(graph: Graph) -> list[str]:
    """The names of the ops, in order."""
    return [n.op.name for n in graph.nodes]
