"""Helpers of test_played_plans.py and of tests beside it."""

from __future__ import annotations

import ctypes
import zlib
from collections.abc import Mapping, Sequence

import numpy as np

from graphc.ir import Graph, Node, Value
from graphc.kernels.program.kernel import Kernel
from graphc.ops.loops.scan import Scan
from graphc.runtime.compilers.shared_objects import CppSource, build

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
    (library,) = build([CppSource("random_kernels", "\n".join(text), "a test")], "")
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
