"""Minimum cuts against NetworkX's."""

from __future__ import annotations

import math
import random

import networkx
import pytest

from graphc.passes.loops.minimum_cut import minimum_cut


@pytest.mark.parametrize("seed", range(40))
def test_cuts_are_those_of_networkx(seed: int) -> None:
    draw = random.Random(seed)
    nodes, edges = ["source", *range(draw.randint(1, 12)), "sink"], []
    for _ in range(draw.randint(0, 40)):
        start, end = draw.sample(range(len(nodes)), 2)
        if {start, end} != {0, len(nodes) - 1}:
            capacity = draw.choice([math.inf, 0, 1, 2, 3, 5]) if draw.random() < 0.8 else 7
            edges.append((nodes[start], nodes[end], capacity))
    network = networkx.DiGraph()
    network.add_nodes_from(nodes)
    for start, end, capacity in edges:
        before = network.get_edge_data(start, end, {"capacity": 0})["capacity"]
        network.add_edge(start, end, capacity=before + capacity)
    try:
        _, (ahead, _) = networkx.minimum_cut(network, "source", "sink")
    except networkx.NetworkXUnbounded:
        pytest.skip("a path without a limit")
    mentioned = {node for edge in edges for node in edge[:2]} | {"source", "sink"}
    assert minimum_cut(edges, "source", "sink") == ahead & mentioned


def test_several_edges_between_two_nodes_count_together() -> None:
    edges = [("source", 1, 2), ("source", 1, 2), (1, "sink", 3)]
    assert minimum_cut(edges, "source", "sink") == {"source", 1}
