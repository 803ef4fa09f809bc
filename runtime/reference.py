"""The reference device: a graph in NumPy, node by node, to compare with and to find a NaN."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from graphc.dtypes import shown
from graphc.errors import RunError
from graphc.interpret import evaluate
from graphc.ir import Graph, Node, Type, Value
from graphc.locks import HOST, refuse_reentry
from graphc.ops.scan import Scan
from graphc.state import StateBuffer

Array = np.ndarray[Any, np.dtype[Any]]


class ReferenceExecutable:
    """A graph, at any stage of the passes, bound to state buffers by the state values' names.

    Calls of all programs of the host run one after another. RunError for a call from within a call.
    """

    def __init__(self, graph: Graph, state: Mapping[str, StateBuffer]) -> None:
        self.graph = graph
        self._state = {value.name: state[value.name] for value in graph.state}

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        """One call: the outputs, as fresh arrays. The state is updated at the end."""
        refuse_reentry(self.graph.name)
        with HOST:
            return self._run(inputs)

    def _run(self, inputs: Sequence[Array]) -> list[Array]:
        outputs, after = evaluate(self.graph, inputs, self._arrays())
        # Outputs and new contents may be the very arrays that are overwritten next.
        fresh = [np.array(output) for output in outputs]
        updates = {old.name: np.array(after[old.name]) for old, _ in self.graph.updates}
        for name, contents in updates.items():
            self._state[name].array[...] = contents
            self._state[name].wrote("host")
        return fresh

    def run_checked(self, inputs: Sequence[Array]) -> list[Array]:
        """As `run`; RunError at the first NaN, and then the state is what it was."""
        refuse_reentry(self.graph.name)
        with HOST:
            found = first_nan(self.graph, inputs, self._arrays())
            if found is not None:
                value, node = found
                raise RunError(f"{nan_message(value, node)}; the state is unchanged")
            return self._run(inputs)

    def profile(self, inputs: Sequence[Array], repeats: int = 20) -> list[tuple[str, int, float]]:
        """(op, calls, microseconds of all calls) per node, in order. The state is left as it
        was."""
        nanoseconds = np.zeros(len(self.graph.nodes), np.int64)
        refuse_reentry(self.graph.name)
        for _ in range(repeats):
            marks = [time.perf_counter_ns()]

            def mark(*_: Any, marks: list[int] = marks) -> None:
                marks.append(time.perf_counter_ns())

            with HOST:
                evaluate(self.graph, inputs, self._arrays(), mark)
            nanoseconds += np.diff(marks)
        names = [_kernel_name(node) for node in self.graph.nodes]
        return [(n, repeats, float(t) / 1000) for n, t in zip(names, nanoseconds, strict=True)]

    def _arrays(self) -> dict[str, Array]:
        for buffer in self._state.values():
            buffer.refresh_host()
        return {name: buffer.array for name, buffer in self._state.items()}


def first_nan(
    graph: Graph, inputs: Sequence[Array], state: Mapping[str, Array]
) -> tuple[Value, Node | None] | None:
    """The first value that holds a NaN and the node that made it; the node is None for an input
    or a piece of state. None if no value does."""
    arrays = [*inputs, *(state[value.name] for value in graph.state)]
    for value, array in zip((*graph.inputs, *graph.state), arrays, strict=True):
        if has_nan(array):
            return value, None

    def look(node: Node, results: Sequence[Array]) -> None:
        for value, result in zip(node.outputs, results, strict=True):
            if has_nan(result):
                raise _Found(value, node)

    try:
        evaluate(graph, inputs, state, look)
    except _Found as found:
        return found.value, found.node
    return None


def nan_message(value: Value, node: Node | None) -> str:
    """What is said of a NaN in `value`, made by `node`, or by nobody."""
    if node is None:
        return f"NaN in {value} : {value.type}, before the first kernel"
    where = f", {node.where}" if str(node.where) else ""
    return f"NaN in {value} : {value.type}, written by {_kernel_name(node)}{where}"


def has_nan(array: Array) -> bool:
    """Whether any element is NaN; False for dtypes that have none."""
    array = shown(array)
    return array.dtype.kind == "f" and bool(np.isnan(array).any())


def value_types(graph: Graph | None) -> dict[str, Type]:
    """The type of each value that a node makes, in the bodies of loops too, by its name."""
    types: dict[str, Type] = {}
    for node in graph.nodes if graph else ():
        types.update({v.name: v.type for v in node.outputs})
        if isinstance(node.op, Scan):
            types.update(value_types(node.op.body))
    return types


def iterations_text(iterations: Sequence[int]) -> str:
    """Such as ` (iteration 3)`, the outermost loop first; nothing outside of loops."""
    return f" (iteration {', '.join(map(str, iterations))})" if iterations else ""


class _Found(Exception):
    def __init__(self, value: Value, node: Node) -> None:
        super().__init__()
        self.value, self.node = value, node


def _kernel_name(node: Node) -> str:
    return str(getattr(node.op, "kernel", node.op.name))
