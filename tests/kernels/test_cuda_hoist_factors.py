"""Factors of sums that follow from other sums: which are taken out, and that the result stays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import graphc
from graphc.kernels.cuda.reduce.hoist_factors import factored
from graphc.kernels.lower import lower
from graphc.ops.fused import Fused
from graphc.ops.reduction import Sum
from graphc.runtime.sim.native import FORWARD
from tests.kernels.cuda_harness import TARGET, arrays_of, traced
from tests.sim.playing import Played, simulator
from tests.tools import need_command

ROWS, COLUMNS = 6000, 12


def spec(*shape: int) -> Any:
    return graphc.spec(shape, "float32")


def total(x: Any) -> Any:
    return graphc.sum(x, axis=0)


def weighted(x: Any, y: Any) -> Any:
    return total(-(x * (total(x) * y)))


def nested(x: Any, y: Any) -> Any:
    most = graphc.max(x, axis=0)
    return graphc.sum(x * (-(y * most) * x), axis=0, keepdims=True), total(most * y), y * most


def made_before(x: Any, y: Any) -> Any:
    return total(x), total(x * (graphc.max(x, axis=0) * y[0]))


def made_behind(x: Any, y: Any) -> Any:
    return total(x * graphc.max(x, axis=0)), total(x), total(y)


def of_terms(x: Any, y: Any) -> Any:
    most = graphc.max(x, axis=0)
    return graphc.sum(-(x * most + y * (most * y)), axis=0, keepdims=True), total(y * y)


def of_a_late_term(x: Any, y: Any) -> Any:
    most = graphc.max(x, axis=0)
    return total(x * most + graphc.exp(y - most))


def of_elements(x: Any, y: Any) -> Any:
    return total(x * (y + total(x)))


def of_inputs(x: Any, y: Any) -> Any:
    return total(x * y[0]), total(x)


def traced_as(name: str, function: Any) -> Any:
    return traced(name, function, spec(ROWS, COLUMNS), spec(ROWS, COLUMNS))


@pytest.mark.parametrize("function", [weighted, nested, of_terms])
def test_sums_read_nothing_that_follows_from_sums(function: Any):
    node = traced_as(function.__name__, function)
    assert isinstance(node.op, Fused)
    body = factored(node.op.body)
    late: set[Any] = set()
    for inner in body.nodes:
        if inner.op.reduced_axes is not None:
            assert late.isdisjoint(inner.inputs)
            late.update(inner.outputs)
        elif not late.isdisjoint(inner.inputs):
            late.update(inner.outputs)
    assert body.outputs == node.op.body.outputs


@pytest.mark.parametrize("function", [made_before, made_behind])
def test_a_sum_that_there_is_is_made_once(function: Any):
    op = traced_as("body", function).op
    assert isinstance(op, Fused)
    body = factored(op.body)
    assert body is not op.body and body.outputs == op.body.outputs
    summed = [n.inputs for n in body.nodes if isinstance(n.op, Sum)]
    assert len(summed) == len(set(summed)) and (op.body.inputs[0],) in summed


@pytest.mark.parametrize("function", [of_elements, of_inputs, of_a_late_term])
def test_other_sums_are_left_alone(function: Any):
    op = traced_as("body", function).op
    assert isinstance(op, Fused)
    assert factored(op.body) is op.body


@pytest.mark.parametrize("function", [weighted, nested, of_terms, made_before, made_behind])
def test_results_stay(function: Any):
    need_command("g++", "clang++")
    node = traced_as(f"{function.__name__}_split", function)
    kernel = lower(node, TARGET)
    assert len(kernel.launches) == 2
    arrays = arrays_of(node)
    got = Played(simulator(check=True), [node]).run(node, arrays, FORWARD)
    for own, want in zip(got, node.op.reference(*arrays), strict=True):
        np.testing.assert_allclose(own, want, rtol=2e-4, atol=2e-4 * np.abs(want).max())
