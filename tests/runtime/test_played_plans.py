"""Planned random graphs, played for real: the same bits as NumPy for all streams and threads.

This is where a wrong overlap in the arena, a missing event, an update in place that comes too
early or a step that leaves something behind for the next call would give wrong numbers.
"""

from __future__ import annotations

import ctypes
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest

from graphc.ir import Graph, Node, Value
from graphc.ir.state import StateBuffer
from graphc.kernels.program.kernel import Kernel
from graphc.ops.loops.scan import Scan
from graphc.runtime.compilers.shared_objects import Source, build
from graphc.runtime.cpu.executable import CpuExecutable
from graphc.runtime.plan.plan import Loop
from graphc.runtime.planner.planner import make_plan
from tests.runtime.random_graphs import add_updates, random_graph, training_graph
from tests.runtime.random_loops import layered_loops, random_loops

CHUNKS = 3

TEMPLATE = """
#include <cstdint>
// Phase 0 adds up each chunk's inputs, in the workspace if there is one. Phase 1 makes the outputs'
// elements j from the inputs' elements j, all read before any is written.
template <int inputs, int outputs, bool workspace>
void mix(void* const* arguments, const long* sizes, uint32_t seed, int phase, int chunk) {
    uint32_t* const* data = (uint32_t* const*)arguments;
    uint32_t* sums = workspace ? data[inputs + outputs] : nullptr;
    long longest = 0;
    for (int i = 0; i < inputs + outputs; i++) longest = sizes[i] > longest ? sizes[i] : longest;
    if (phase == 0) {
        uint32_t sum = 0;
        for (int i = 0; i < inputs; i++)
            for (long j = chunk; j < sizes[i]; j += 3) sum += data[i][j] * uint32_t(j + 7);
        if (workspace) sums[chunk] = sum;
        return;
    }
    const uint32_t total = workspace ? sums[0] + sums[1] + sums[2] : 0;
    for (long j = chunk; j < longest; j += 3) {
        uint32_t value = seed + total;
        for (int i = 0; i < inputs; i++) value = value * 31 + (j < sizes[i] ? data[i][j] : 5);
        for (int o = 0; o < outputs; o++)
            if (j < sizes[inputs + o]) data[inputs + o][j] = value * (2 * o + 3) + uint32_t(j);
    }
}
"""


def kernel_nodes(graph: Graph) -> list[Node]:
    """The nodes that are kernels, those of the bodies of loops too."""
    found = []
    for node in graph.nodes:
        if isinstance(node.op, Scan):
            found += kernel_nodes(node.op.body)
        elif node.op.name != "reshape":
            found.append(node)
    return found


def functions_of(graph: Graph, kernels: Mapping[str, Kernel]) -> dict[str, int]:
    """The address of a real function for each of the graph's opaque kernels, by kernel name."""
    text = [TEMPLATE]
    for node in kernel_nodes(graph):
        kernel = kernels[node.outputs[0].name]
        sizes = ", ".join(str(v.type.size) for v in (*node.inputs, *node.outputs))
        counts = f"{len(node.inputs)}, {len(node.outputs)}, {int(kernel.workspace > 0)}"
        text.append(
            f'extern "C" void {kernel.name}(void* const* arguments, int phase, int chunk) {{\n'
            f"const long sizes[] = {{{sizes}}};\n"
            f"mix<{counts}>(arguments, sizes, {seed_of(kernel)}u, phase, chunk);\n}}\n"
        )
    (library,) = build([Source("random_kernels", "\n".join(text), "a test")], "")
    names = {kernels[n.outputs[0].name].name for n in kernel_nodes(graph)}
    addresses = {name: ctypes.cast(library[name], ctypes.c_void_p).value for name in names}
    return {name: address for name, address in addresses.items() if address is not None}


def seed_of(kernel: Kernel) -> int:
    return zlib.crc32(kernel.name.encode())


def mixed(node: Node, inputs: list[np.ndarray], seed: int, workspace: bool) -> list[np.ndarray]:
    """What `mix` writes."""
    total = np.full(1, seed, np.uint32)
    if workspace:
        for array in inputs:
            total += (array * (np.arange(array.size, dtype=np.uint32) + 7)).sum(dtype=np.uint32)
    longest = max(v.type.size for v in (*node.inputs, *node.outputs))
    value = np.repeat(total, longest)
    for array in inputs:
        padded = np.full(longest, 5, np.uint32)
        padded[: array.size] = array
        value = value * np.uint32(31) + padded
    value_of = [value * np.uint32(2 * o + 3) for o in range(len(node.outputs))]
    index = np.arange(longest, dtype=np.uint32)
    return [(v + index)[: o.type.size] for v, o in zip(value_of, node.outputs, strict=True)]


def evaluated(
    graph: Graph,
    kernels: Mapping[str, Kernel],
    inputs: Sequence[np.ndarray],
    state: dict[str, np.ndarray],
) -> tuple[list[np.ndarray], dict[str, np.ndarray]]:
    """Outputs and new state of one call, all as uint32 without axes."""
    values: dict[Value, np.ndarray] = dict(zip(graph.inputs, inputs, strict=True))
    values.update((v, state[v.name]) for v in graph.state)
    for node in graph.nodes:
        arrays = [values[v] for v in node.inputs]
        if isinstance(node.op, Scan):
            results = looped(node.op, kernels, arrays)
        elif node.op.name == "reshape":
            results = arrays
        else:
            kernel = kernels[node.outputs[0].name]
            results = mixed(node, arrays, seed_of(kernel), kernel.workspace > 0)
        values.update(zip(node.outputs, results, strict=True))
    changed = {old.name: values[new] for old, new in graph.updates}
    return [values[v] for v in graph.outputs], {**state, **changed}


def looped(
    op: Scan, kernels: Mapping[str, Kernel], arrays: Sequence[np.ndarray]
) -> list[np.ndarray]:
    """What a scan makes of these."""
    constants, carries, xs = op.split_inputs(arrays)
    stacks = [np.zeros((op.length, v.type.size), np.uint32) for v in op.stacks]
    for t in reversed(range(op.length)) if op.reverse else range(op.length):
        elements = [x.reshape(op.length, -1)[t] for x in xs]
        results, _ = evaluated(op.body, kernels, [*constants, *carries, *elements], {})
        carries, made = op.split_outputs(results)
        for stack, element in zip(stacks, made, strict=True):
            stack[t] = element
    return [*carries, *(stack.reshape(-1) for stack in stacks)]


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
