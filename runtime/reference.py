"""The reference device: a graph in NumPy, node by node, for comparison and to find a NaN."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from graphc.base import config
from graphc.base.dtypes import Array
from graphc.base.errors import RunError
from graphc.base.locks import HOST, completed, refuse_reentry
from graphc.ir import Graph
from graphc.ir.interpret import evaluate
from graphc.ir.state import StateBuffer, wrote
from graphc.runtime.checks.nan import first_nan, kernel_name
from graphc.runtime.tuning.timing import Timing, timing


class ReferenceExecutable:
    """A graph, at any stage of the passes, bound to state buffers by the state values' names.

    Calls of all programs of the host run one after another. A call from within a call raises
    RunError.
    """

    threads = 1

    def __init__(self, graph: Graph, state: Mapping[str, StateBuffer]) -> None:
        self.graph = graph
        self._state = {value.name: state[value.name] for value in graph.state}
        self._flush = config.denormals() == "flush"

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        """One call: returns the outputs as new arrays and updates the state at the end."""
        refuse_reentry(self.graph.name)
        with HOST:
            return self._run(inputs)

    def _run(self, inputs: Sequence[Array]) -> list[Array]:
        outputs, after = evaluate(self.graph, inputs, self._arrays(), flush=self._flush)
        # Outputs and new contents may be the very arrays that are overwritten next.
        fresh = [np.array(output) for output in outputs]
        updates = {old.name: np.array(after[old.name]) for old, _ in self.graph.updates}

        def write() -> None:
            for name, contents in updates.items():
                self._state[name].array[...] = contents
            wrote([self._state[name] for name in updates], "host")

        completed(write)
        return fresh

    def run_checked(self, inputs: Sequence[Array]) -> list[Array]:
        """As `run`; raises RunError at the first NaN, and then the state is as before."""
        refuse_reentry(self.graph.name)
        with HOST:
            found = first_nan(self.graph, inputs, self._arrays(), self._flush)
            if found is not None:
                raise RunError(found.message)
            return self._run(inputs)

    def profile(self, inputs: Sequence[Array], repeats: int = 20) -> list[Timing]:
        """The times of each node, in order. The state is restored."""
        spent = np.zeros((repeats, len(self.graph.nodes)))
        refuse_reentry(self.graph.name)
        for call in range(repeats):
            marks = [time.perf_counter_ns()]

            def mark(*_: Any, marks: list[int] = marks) -> None:
                marks.append(time.perf_counter_ns())

            with HOST:
                evaluate(self.graph, inputs, self._arrays(), mark, flush=self._flush)
            spent[call] = np.diff(marks) / 1000
        names = [kernel_name(node) for node in self.graph.nodes]
        return [timing(n, name, spent[:, n]) for n, name in enumerate(names)]

    def calls(self, inputs: Sequence[Array], repeats: int = 20) -> list[float]:
        """Microseconds of each of `repeats` calls. The state is restored."""
        marks = [time.perf_counter_ns()]
        refuse_reentry(self.graph.name)
        for _ in range(repeats):
            with HOST:
                evaluate(self.graph, inputs, self._arrays(), flush=self._flush)
            marks.append(time.perf_counter_ns())
        return [float(spent) for spent in np.diff(marks) / 1000]

    def _arrays(self) -> dict[str, Array]:
        for buffer in self._state.values():
            buffer.refresh_host()
        return {name: buffer.array for name, buffer in self._state.items()}
