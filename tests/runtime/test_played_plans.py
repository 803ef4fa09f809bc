"""Planned random graphs, played for real: the same bits as NumPy for all streams and threads.

This is where a wrong overlap in the arena, a missing event, an update in place that comes too
early or a step that leaves something behind for the next call would give wrong numbers.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from graphc.ir.state import StateBuffer
from graphc.runtime.cpu.executable import CpuExecutable
from graphc.runtime.plan.plan import Loop
from graphc.runtime.planner.planner import make_plan
from tests.runtime.random_graphs import add_updates, random_graph, training_graph
from tests.runtime.random_loops import layered_loops, random_loops
from tests.support.played_plans import (
    CHUNKS,
    evaluated,
    functions_of,
)


def random_words(rng: np.random.Generator, size: int) -> np.ndarray:
    return rng.integers(0, 1 << 32, size, np.uint32)


GRAPHS = {
    **{f"random {seed}": random_graph(seed) for seed in range(5)},
    **{f"random {seed}, updated in place": add_updates(*random_graph(seed)) for seed in (5, 6)},
    "training": training_graph(4, batch=500, wide=3),
    **{f"loops {seed}": random_loops(seed) for seed in range(16)},
    **{f"layers {seed}": layered_loops(seed) for seed in (3, 5, 6, 8, 12, 13)},
    "long loops": random_loops(40, lengths=(70,), depth=1),
}


WAVEFRONTS = {"layers 5": 2, "layers 6": 2, "layers 8": 2, "layers 12": 3, "layers 13": 2}
"""The stages of the graphs that have some."""


@pytest.mark.parametrize("name", GRAPHS)
def test_planned_graphs_have_the_bits_of_numpy_for_all_streams_and_threads(name):
    graph, opaque = GRAPHS[name]
    kernels = {k: replace(v, phases=(CHUNKS, CHUNKS)) for k, v in opaque.items()}
    functions = functions_of(graph, kernels)
    rng = np.random.default_rng(0)
    inputs = [random_words(rng, v.type.size) for v in graph.inputs]
    first = {v.name: random_words(rng, v.type.size) for v in graph.state}
    calls, state = [], first
    for _ in range(3):
        outputs, state = evaluated(graph, kernels, inputs, state)
        calls.append((outputs, state))
    # Planned as for a GPU, layers are a wavefront even of kernels that take all threads.
    device = "cuda" if name in WAVEFRONTS else "cpu"
    stages = set()
    for streams in (1, 2, 3, 4, 8):
        plan = make_plan(graph, kernels, device=device, streams=streams)
        stages |= {step.stages for step in plan.steps if isinstance(step, Loop)}
        for threads in (1, 2, 3):
            buffers = {n: StateBuffer(array.view(np.float32)) for n, array in first.items()}
            executable = CpuExecutable(plan, buffers, threads, functions)
            for outputs, state in calls:
                got = executable.run([array.view(np.float32) for array in inputs])
                for value, wanted in zip(got, outputs, strict=True):
                    np.testing.assert_array_equal(value.view(np.uint32).reshape(-1), wanted)
                for key, buffer in buffers.items():
                    np.testing.assert_array_equal(buffer.array.view(np.uint32), state[key])
    assert max(stages, default=1) == WAVEFRONTS.get(name, 1)
