"""What must hold for a random program of scans (`random_scans.py`), whatever the passes do."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

import graphc
from graphc import optim
from graphc.base.target import Target
from graphc.ir import Graph
from graphc.ir.interpret import evaluate
from graphc.ops.constant import PLACED, Constant
from graphc.ops.loops.scan import bodies
from graphc.passes.pipeline import AFTER_GRADIENT, OPTIONAL
from graphc.passes.rewriting.runner import run_passes
from graphc.program import Program
from graphc.text import graph_text, large_constants, parse
from tests.random_scans import RandomScans

Array = np.ndarray[Any, np.dtype[Any]]
EXACT = 1e-6
"""Relative to an output's largest magnitude, at least 1: float64 everywhere but in the constants,
which passes fold in float32."""


def run(model: RandomScans, *inputs: Any) -> Any:
    return model(*inputs)


class Case:
    """The program of a seed and a kind on the reference device; if `loops`, one of Python loops."""

    def __init__(
        self,
        seed: int,
        kind: type[RandomScans] = RandomScans,
        loops: bool = False,
        **options: Any,
    ) -> None:
        self.seed, self.kind, self.loops = seed, kind, loops
        self.model, self.program = self.compile(**options)
        self.arrays = self.model.arrays()

    def compile(self, device: str = "reference", **options: Any) -> tuple[RandomScans, Program]:
        model = self.kind(self.seed)
        if self.loops:
            model.use_loops()
        update = optim.SGD(lr=0.5) if model.mode == "train" else None
        specs = model.inputs
        settings = {"device": device, "update": update, "seed": 0, **options}
        return model, graphc.compile(run, model, *specs, **settings)

    def stages(self) -> dict[str, Graph]:
        """The program's stages, and again those behind the gradient for vectors of 16."""
        found = dict(self.program.stages)
        later = {*dict(AFTER_GRADIENT), "order_sums"}
        first = [graph for name, graph in found.items() if name not in later][-1]
        target = Target("cpu", lanes=16)
        run_passes(
            first, target, AFTER_GRADIENT, lambda name, graph: found.update({f"{name} 16": graph})
        )
        return found

    def traced(self) -> Graph:
        """What the program means: the first stage with all outputs and updates."""
        found = self.program.stages
        return found.get("differentiate", found["trace"])

    def meaning(self, graph: Graph, dtype: Any = np.float64) -> list[Array]:
        """The outputs of a graph, then the updated state, in NumPy."""
        state = {v.name: _wide(self._initial(v.name, graph), dtype) for v in graph.state}
        outputs, after = evaluate(graph, [_wide(a, dtype) for a in self.arrays], state)
        return [*outputs, *(after[name] for name in sorted(old.name for old, _ in graph.updates))]

    def _initial(self, name: str, graph: Graph) -> Array:
        parameters = dict(self.kind(self.seed).named_parameters())
        if name in parameters:
            return parameters[name].numpy()
        if not name.startswith(PLACED):
            return self.program.state_dict()[name]
        return self.constants[name]

    @cached_property
    def constants(self) -> dict[str, Array]:
        """What the stages hold as constants, by the names of state that they may become."""
        return {
            PLACED + n.op.value.digest: n.op.array
            for stage in self.program.stages.values()
            for graph in (stage, *bodies(stage))
            for n in graph.nodes
            if isinstance(n.op, Constant)
        }


def assert_stages_agree(case: Case) -> None:
    """Every stage parses back, and means what the trace means (or its derivative)."""
    expected: dict[int, list[Array]] = {}
    for name, graph in case.stages().items():
        text = graph_text(graph)
        assert parse(text) == graph, name
        assert graph_text(parse(text, large_constants(graph))) == text, name
        got = case.meaning(graph)
        assert_close(got, expected.setdefault(len(got), got), name)


def assert_unrolled_agrees(case: Case) -> None:
    """The program and one of Python loops compute the same, gradients included."""
    loop = Case(case.seed, case.kind, loops=True)
    assert_close(case.meaning(case.program.graph), loop.meaning(loop.traced()), "unrolled")


def assert_passes_are_optional(case: Case, passes: Sequence[str] = OPTIONAL) -> None:
    """Without any one of the optional passes the program computes the same."""
    expected = case.meaning(case.traced())
    for name in passes:
        other = Case(case.seed, case.kind, disable=(name,))
        assert_close(other.meaning(other.program.graph), expected, f"without {name}")


def assert_device_agrees(case: Case, device: str, **options: Any) -> None:
    """`device` computes what NumPy computes in float64, as closely as float32 allows: 1e-4 of an
    output's largest magnitude, or 100 times the error that NumPy makes in float32."""
    exact = case.meaning(case.traced())
    single = case.meaning(case.traced(), np.float32)
    for number, got in enumerate(played(case, device, **options)):
        assert got.shape == exact[number].shape
        if not got.size:
            continue
        own, want = (a.astype(np.float64) for a in (single[number], exact[number]))
        bound = 1e-4 * max(1.0, np.abs(want).max()) + 100 * np.abs(own - want).max()
        error = np.abs(got - want).max()
        assert error <= bound, f"{device} {options}, output {number}: {error} > {bound}"


def played(case: Case, device: str, **options: Any) -> list[Array]:
    """The outputs of one call on `device`, then the updated state."""
    program = case.compile(device, **options)[1]
    outputs = program(*case.arrays)
    results = [np.asarray(a) for a in (outputs if isinstance(outputs, tuple | list) else [outputs])]
    state = program.state_dict()
    updated = sorted(old.name for old, _ in program.graph.updates)
    return [*results, *(state[name] for name in updated)]


def assert_bits_agree(case: Case) -> None:
    """Streams and threads change no bit."""
    seen = {
        tuple(a.tobytes() for a in played(case, "cpu", streams=streams, threads=threads))
        for streams, threads in ((1, 1), (2, 2), (4, 3))
    }
    assert len(seen) == 1


def assert_close(got: Sequence[Array], expected: Sequence[Array], what: str) -> None:
    assert len(got) == len(expected), what
    for number, (a, b) in enumerate(zip(got, expected, strict=True)):
        assert a.shape == b.shape, f"{what}, output {number}: {a.shape}, expected {b.shape}"
        if b.size:
            scale = max(1.0, float(np.abs(b).max()))
            error = float(np.abs(a.astype(np.float64) - b).max()) / scale
            assert error < EXACT, f"{what}, output {number} {b.shape}: {error}"


def _wide(array: Array, dtype: Any) -> Array:
    return array.astype(dtype) if array.dtype == np.float32 else array
