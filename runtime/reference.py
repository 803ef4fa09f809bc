"""The reference device: a graph in NumPy, node by node, to compare with and to find a NaN."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from graphc import config
from graphc.errors import RunError
from graphc.interpret import evaluate
from graphc.ir import Graph
from graphc.locks import HOST, refuse_reentry
from graphc.runtime.nan import first_nan, kernel_name
from graphc.state import StateBuffer

Array = np.ndarray[Any, np.dtype[Any]]


class ReferenceExecutable:
    """A graph, at any stage of the passes, bound to state buffers by the state values' names.

    Calls of all programs of the host run one after another. RunError for a call from within a call.
    """

    def __init__(self, graph: Graph, state: Mapping[str, StateBuffer]) -> None:
        self.graph = graph
        self._state = {value.name: state[value.name] for value in graph.state}
        self._flush = config.denormals() == "flush"

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        """One call: the outputs, as fresh arrays. The state is updated at the end."""
        refuse_reentry(self.graph.name)
        with HOST:
            return self._run(inputs)

    def _run(self, inputs: Sequence[Array]) -> list[Array]:
        outputs, after = evaluate(self.graph, inputs, self._arrays(), flush=self._flush)
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
            found = first_nan(self.graph, inputs, self._arrays(), self._flush)
            if found is not None:
                raise RunError(found.message)
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
                evaluate(self.graph, inputs, self._arrays(), mark, flush=self._flush)
            nanoseconds += np.diff(marks)
        names = [kernel_name(node) for node in self.graph.nodes]
        return [(n, repeats, float(t) / 1000) for n, t in zip(names, nanoseconds, strict=True)]

    def _arrays(self) -> dict[str, Array]:
        for buffer in self._state.values():
            buffer.refresh_host()
        return {name: buffer.array for name, buffer in self._state.items()}
