"""Loops in plans: they compute what the graph means, and copy nothing that need not be."""

from __future__ import annotations

import random

import pytest

from graphc.ir import verify as verify_graph
from graphc.runtime.planner import make_plan
from tests.runtime.brute_force import graph_meaning, is_ordered, plan_meaning
from tests.runtime.random_loops import random_loops

STREAMS = (1, 2, 4)


@pytest.mark.parametrize("streams", STREAMS)
@pytest.mark.parametrize("seed", range(30))
def test_plan_with_loops_computes_what_the_graph_means_in_any_allowed_order(
    seed: int, streams: int
) -> None:
    graph, kernels = random_loops(seed)
    verify_graph(graph)
    plan = make_plan(graph, kernels, device="cpu", streams=streams)
    assert is_ordered(plan)
    dice = random.Random(seed)
    for _ in range(2):
        assert plan_meaning(plan, dice) == graph_meaning(graph, kernels)
