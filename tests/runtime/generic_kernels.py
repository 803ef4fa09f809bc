"""Opaque kernels that compute something, on the CPU and on the simulated GPU, without compiling
anything for a graph: what a kernel reads and writes stands in a table."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from graphc.ir import Graph, Node
from graphc.kernels.program.kernel import GridLaunch, Kernel
from graphc.runtime.compilers.shared_objects import CppSource, build
from graphc.runtime.sim import Simulator
from graphc.runtime.sim.queues import Bytes, StreamOperation
from tests.support.played_plans import mixed, seed_of

CHUNKS = 3
MOST = 64
"""Kernels in a graph."""

TEXT = """
#include <atomic>
#include <cstdint>
#include <thread>
#include <utility>
// Element j of each output is made from the elements j of the inputs, all read before any is
// written; with a workspace also from sums over the inputs, which an earlier phase leaves there.
struct Spec { int32_t inputs, outputs, workspace; uint32_t seed; int64_t sizes[32]; };
static Spec specs[64];
static std::atomic<uint32_t> salt{0};
// Now and then a chunk begins late, so that others overtake it.
static void dawdle() {
    uint32_t x = salt.fetch_add(0x9E3779B9u) * 0x85EBCA6Bu;
    if (x >> 30 == 0) for (uint32_t i = 0; i < (x & 3); i++) std::this_thread::yield();
    if (x >> 27 == 5) for (uint32_t i = 0; i < (x & 4095); i++) asm volatile("");
}
static void mix(const Spec& s, void* const* arguments, int phase, int chunk) {
    dawdle();
    uint32_t* const* data = (uint32_t* const*)arguments;
    uint32_t* sums = s.workspace ? data[s.inputs + s.outputs] : nullptr;
    long longest = 0;
    for (int i = 0; i < s.inputs + s.outputs; i++) if (s.sizes[i] > longest) longest = s.sizes[i];
    if (phase == 0) {
        uint32_t sum = 0;
        for (int i = 0; i < s.inputs; i++)
            for (long j = chunk; j < s.sizes[i]; j += 3) sum += data[i][j] * uint32_t(j + 7);
        if (sums) sums[chunk] = sum;
        return;
    }
    const uint32_t total = sums ? sums[0] + sums[1] + sums[2] : 0;
    for (long j = chunk; j < longest; j += 3) {
        uint32_t value = s.seed + total;
        for (int i = 0; i < s.inputs; i++) value = value * 31 + (j < s.sizes[i] ? data[i][j] : 5);
        for (int o = 0; o < s.outputs; o++)
            if (j < s.sizes[s.inputs + o])
                data[s.inputs + o][j] = value * (2 * o + 3) + uint32_t(j);
    }
}
template <int n> void kernel(void* const* arguments, int phase, int chunk) {
    mix(specs[n], arguments, phase, chunk);
}
using Function = void (*)(void* const*, int, int);
template <int... n> Function choose(int i, std::integer_sequence<int, n...>) {
    static const Function all[] = {kernel<n>...};
    return all[i];
}
extern "C" void* generic_function(int i) {
    return (void*)choose(i, std::make_integer_sequence<int, 64>());
}
extern "C" void* generic_specs() { return specs; }
"""


class Spec(ctypes.Structure):
    _fields_ = (
        ("inputs", ctypes.c_int32),
        ("outputs", ctypes.c_int32),
        ("workspace", ctypes.c_int32),
        ("seed", ctypes.c_uint32),
        ("sizes", ctypes.c_int64 * 32),
    )


@cache
def library() -> ctypes.CDLL:
    (built,) = build([CppSource("generic_kernels", TEXT, "a test")], "")
    built.generic_function.restype = built.generic_specs.restype = ctypes.c_void_p
    return built


def played_kernels(graph: Graph, kernels: Mapping[str, Kernel]) -> dict[str, Kernel]:
    """The kernels in chunks and with a launch, each of a text of its own."""
    return {
        value: replace(
            kernel,
            text=str(number),
            origin="",
            phases=(CHUNKS, CHUNKS),
            launches=(GridLaunch(kernel.name, (1, 1, 1), (32, 1, 1)),),
        )
        for number, (value, kernel) in enumerate(kernels.items())
    }


def cpu_functions(graph: Graph, kernels: Mapping[str, Kernel]) -> dict[str, int]:
    """The address of a function for each kernel, until this is called again."""
    specs = (Spec * MOST).from_address(library().generic_specs())
    functions = {}
    for number, node in enumerate(_nodes(graph)):
        kernel = kernels[node.outputs[0].name]
        sizes = [v.type.size for v in (*node.inputs, *node.outputs)]
        specs[number] = Spec(
            len(node.inputs), len(node.outputs), kernel.workspace > 0, seed_of(kernel),
            (ctypes.c_int64 * 32)(*sizes),
        )  # fmt: skip
        functions[kernel.name] = library().generic_function(number)
    return functions


class GenericSimulator(Simulator):
    """A simulated GPU whose streams, events, graphs and checks are the real ones, and whose kernels
    are functions of NumPy."""

    def give(self, graph: Graph, kernels: Mapping[str, Kernel], seed: int) -> None:
        """Let the kernels be those of the graph, and the order of streams that of the seed."""
        self.scheduler.random.seed(seed)
        named = {kernels[n.outputs[0].name].name: n for n in _nodes(graph)}
        workspaces = {k.name: k.workspace > 0 for k in kernels.values()}
        seeds = {k.name: seed_of(k) for k in kernels.values()}
        self.work = {name: (node, seeds[name], workspaces[name]) for name, node in named.items()}

    def compile(self, text: str, name: str, where: str = "") -> bytes:
        return name.encode()

    def compile_all(self, kernels: Sequence[tuple[str, str, str]]) -> list[bytes]:
        return [name.encode() for _, name, _ in kernels]

    def module_from_buffer(self, buffer: bytes, *_: Any, **__: Any) -> Any:
        return GenericModule(self)


class GenericModule:
    def __init__(self, driver: GenericSimulator) -> None:
        self.driver = driver

    def get_function(self, name: str) -> GenericFunction:
        return GenericFunction(self.driver, name)


class GenericFunction:
    def __init__(self, driver: GenericSimulator, name: str) -> None:
        self.driver, self.name = driver, name

    def _launch_kernel(
        self,
        grid: Any,
        block: Any,
        packed: bytes,
        shared: int,
        stream: Any,
        reads: Iterable[Sequence[Any]] = (),
        writes: Iterable[Sequence[Any]] = (),
        scratch: Iterable[Sequence[Any]] = (),
        completes: bool = True,
    ) -> None:
        node, seed, workspace = self.driver.work[self.name]
        pointers = struct.unpack(f"{len(packed) // 8}P", packed)
        garbage = list(scratch)

        def run(_: Any) -> None:
            for start, stop, *_rest in garbage:
                _words(start, (stop - start) // 4)[:] = 0xDEAD
            places = [
                _words(pointer, value.type.size)
                for pointer, value in zip(pointers, (*node.inputs, *node.outputs), strict=False)
            ]
            count = len(node.inputs)
            results = mixed(node, [p.copy() for p in places[:count]], seed, workspace)
            for place, result in zip(places[count:], results, strict=True):
                place[:] = result

        read, written = (tuple(Bytes(*r) for r in places) for places in (reads, writes))
        touched = (*written, *(Bytes(*r) for r in garbage))
        self.driver.put(stream, StreamOperation(self.name, run, read, touched))


def _nodes(graph: Graph) -> list[Node]:
    return [node for node in graph.nodes if node.op.name != "reshape"]


def _words(address: int, count: int) -> np.ndarray[Any, np.dtype[np.uint32]]:
    if not count:
        return np.zeros(0, np.uint32)
    return np.ctypeslib.as_array((ctypes.c_uint32 * count).from_address(address))
