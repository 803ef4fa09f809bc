"""Evaluate a graph in NumPy, node by node, which defines what it means."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from graphc.base.dtypes import flushed
from graphc.ir import Array, Graph, Node, Value


def evaluate(
    graph: Graph,
    inputs: Sequence[Array],
    state: Mapping[str, Array] | None = None,
    observe: Callable[[Node, Sequence[Array]], None] | None = None,
    compute: Callable[[Node, Sequence[Array]], tuple[Array, ...]] | None = None,
    flush: bool = False,
) -> tuple[tuple[Array, ...], dict[str, Array]]:
    """Return the outputs, and the new contents of every state value by name.

    `inputs` are in the graph's order and `state` holds an array per state value by name, all of
    shapes and dtypes as declared, except that floats may be wider throughout. `observe` is called
    with each node and its results, in order. `compute`, if given, gives a node's results from its
    inputs in place of the op. `flush` makes zeros of numbers below the smallest normal one wherever
    they are read or made.
    """
    taken = flushed if flush else np.asarray
    values: dict[Value, Array] = dict(
        zip(graph.inputs, map(taken, map(np.asarray, inputs)), strict=True)
    )
    values.update((v, taken(np.asarray((state or {})[v.name]))) for v in graph.state)
    last = {v: n for n, node in enumerate(graph.nodes) for v in node.inputs}
    kept = {*graph.results, *graph.state}
    for number, node in enumerate(graph.nodes):
        with np.errstate(all="ignore"):
            arguments = [values[v] for v in node.inputs]
            results = compute(node, arguments) if compute else node.op.evaluate(*arguments)
        if flush:
            results = tuple(map(flushed, results))
        if observe is not None:
            observe(node, results)
        values.update(zip(node.outputs, results, strict=True))
        for value in dict.fromkeys(node.inputs):
            if last[value] == number and value not in kept:
                del values[value]
    after = {v.name: values[v] for v in graph.state}
    after.update((old.name, values[new]) for old, new in graph.updates)
    return tuple(values[v] for v in graph.outputs), after
