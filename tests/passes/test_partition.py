"""Merging groups never closes a cycle, and the verdicts are those of a search on the graph."""

import random

import networkx
import pytest

from graphc.ir import Graph, Node, Type, Value, verify
from graphc.ir.rewrite import drop_dead, substitute
from graphc.ops.pointwise.arithmetic import Add
from graphc.passes.fuse.partition import Partition

F = Type((2,))


def random_graph(seed: int, nodes: int = 14) -> Graph:
    generator = random.Random(seed)
    values = [Value("x", F)]
    made = []
    for i in range(nodes):
        inputs = tuple(generator.choice(values[-6:]) for _ in range(2))
        values.append(Value(f"v{i}", F))
        made.append(Node(Add(), inputs, (values[-1],)))
    return Graph("g", (values[0],), (), tuple(made), (values[-1],))


def quotient(graph: Graph, partition: Partition) -> networkx.MultiDiGraph:
    producer = {v: n for n in graph.nodes for v in n.outputs}
    edges = networkx.DiGraph()
    edges.add_nodes_from(partition.members)
    for node in graph.nodes:
        for value in node.inputs:
            if value in producer:
                a, b = partition.of(producer[value]), partition.of(node)
                if a != b:
                    edges.add_edge(a, b)
    return edges


@pytest.mark.parametrize("seed", range(30))
def test_verdicts_equal_a_search_after_every_merge(seed):
    graph = random_graph(seed)
    partition = Partition(graph)
    generator = random.Random(seed)
    for _ in range(40):
        a, b = (generator.choice(list(partition.members)) for _ in range(2))
        if a == b:
            continue
        merged = networkx.contracted_nodes(quotient(graph, partition), a, b, self_loops=False)
        legal = networkx.is_directed_acyclic_graph(merged)
        assert partition.can_merge(a, b) == legal
        if legal:
            partition.merge(a, b)
        assert networkx.is_directed_acyclic_graph(quotient(graph, partition))


def test_the_types_of_a_node_that_a_pass_keeps_are_inferred_once(monkeypatch):
    graph = random_graph(1)
    verify(graph)
    calls = []
    monkeypatch.setattr(Add, "infer", lambda *types: calls.append(types))
    verify(drop_dead(substitute(graph, graph.nodes, {})))
    assert not calls
