"""Generated CUDA kernels without a device: built by g++ with a host header and run by fibers on one
core, and built by nvcc to count registers."""

from __future__ import annotations

import ctypes
import re
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import graphc
from graphc.ir import FLOATS, Graph, Node, Type, Value
from graphc.kernels.lower import lower
from graphc.kernels.program.kernel import Kernel
from graphc.ops.base import Array, Op
from graphc.ops.fused import Fused
from graphc.target import Target

HERE = Path(__file__).parent
KERNELS = HERE.parent.parent / "kernels"
TARGET = Target("cuda", lanes=1, arch="sm_90a")
GUARD = 256
"""Bytes before and after each array that a kernel must leave alone."""


def single(op: Op, inputs: Sequence[Value], name: str) -> Node:
    """The fused node that computes `op` alone."""
    outputs = tuple(Value(f"y{i}", t) for i, t in enumerate(op.infer(*(v.type for v in inputs))))
    body = Graph(name, tuple(inputs), (), (Node(op, tuple(inputs), outputs),), outputs)
    return fused(body)


def fused(body: Graph) -> Node:
    """The fused node with this body."""
    return Node(Fused(body.name, body), body.inputs, body.outputs)


def traced(name: str, fn: Callable[..., Any], *specs: Type) -> Node:
    """The fused node of one kernel that does all that `fn` does."""
    graph = graphc.trace(fn, *specs)
    inputs = (*graph.inputs, *graph.state)
    return fused(Graph(name, inputs, (), graph.nodes, graph.outputs))


def arrays_of(node: Node, seed: int = 0) -> list[Array]:
    """One array per input: floats from a normal distribution, integers from 0 to 8."""
    random = np.random.default_rng(seed)
    return [
        random.standard_normal(v.type.shape).astype(v.type.numpy_dtype)
        if v.type.dtype in FLOATS
        else random.integers(0, 9, v.type.shape).astype(v.type.numpy_dtype)
        for v in node.inputs
    ]


@dataclass(frozen=True)
class Host:
    """Kernels built for the host."""

    library: ctypes.CDLL
    kernels: dict[str, Kernel]

    def run(self, node: Node, inputs: Sequence[Array], reverse: bool = False) -> list[Array]:
        """The outputs of the node's kernel; threads and blocks run in order or in reverse."""
        assert isinstance(node.op, Fused)
        kernel = self.kernels[node.op.kernel]
        given = [_Buffer(a) for a in inputs]
        made = [_Buffer(np.full(v.type.shape, 119, v.type.numpy_dtype)) for v in node.outputs]
        scratch = _Buffer(np.full(kernel.workspace, 0xFF, np.uint8))
        buffers = [*given, *made, *([scratch] if kernel.workspace else [])]
        pointers = (ctypes.c_void_p * len(buffers))(*(b.address for b in buffers))
        for launch in kernel.launches:
            grid = (ctypes.c_uint * 3)(*launch.grid)
            entry = getattr(self.library, f"run_{launch.symbol}")
            entry(pointers, grid, ctypes.c_uint(launch.block[0]), ctypes.c_bool(reverse))
        for buffer in buffers:
            buffer.check(kernel.name)
        return [b.array for b in made]


class _Buffer:
    """A copy of an array at an address that 64 divides, between guards."""

    def __init__(self, array: Array) -> None:
        self._bytes = np.full(array.nbytes + 2 * GUARD + 64, 0xA5, np.uint8)
        self._start = GUARD + -(self._bytes.ctypes.data + GUARD) % 64
        self._stop = self._start + array.nbytes
        self.address = self._bytes.ctypes.data + self._start
        flat = self._bytes[self._start : self._stop].view(array.dtype)
        self.array = flat.reshape(array.shape)
        self.array[...] = array

    def check(self, name: str) -> None:
        outside = (self._bytes[: self._start], self._bytes[self._stop :])
        assert all((part == 0xA5).all() for part in outside), f"{name} wrote outside an array"


def assert_close(got: Array, want: Array, length: int) -> None:
    """Equal but for the rounding of `length` sums of floats, in units of the largest element."""
    assert (got.shape, got.dtype) == (want.shape, want.dtype)
    if got.dtype.kind != "f":
        np.testing.assert_array_equal(got, want)
        return
    finite = np.abs(want[np.isfinite(want)])
    scale = max(1.0, float(finite.max(initial=0.0)))
    tolerance = 8 * np.sqrt(length) * float(np.finfo(got.dtype).eps) * scale
    np.testing.assert_allclose(got, want, rtol=0, atol=tolerance, equal_nan=True)


def joined(kernels: Sequence[Kernel]) -> str:
    return "\n".join(k.source for k in kernels)


def build_host(nodes: Sequence[Node], folder: Path, compiler: str) -> Host:
    """Lower the nodes and build their kernels for the host, all in one file."""
    lowered = {n.op.kernel: lower(n, TARGET) for n in nodes if isinstance(n.op, Fused)}
    assert len(lowered) == len(nodes), "names are unique"
    entries = [
        f'extern "C" void run_{launch.symbol}(void** a, const unsigned* grid, unsigned threads, '
        f"bool reverse) {{ host::start(&graphc::{re.sub('[^0-9A-Za-z]+', '_', name)}_text::"
        f"{launch.symbol}, a, grid, threads, reverse); }}"
        for name, kernel in lowered.items()
        for launch in kernel.launches
    ]
    text, library = folder / "kernels.cpp", folder / "kernels.so"
    text.write_text("\n".join([joined(list(lowered.values())), *entries, ""]))
    flags = ["-std=c++17", "-O1", "-fPIC", "-shared", "-march=x86-64-v3", "-ffp-contract=fast"]
    warnings = ["-Wall", "-Wno-unknown-pragmas", "-Wno-maybe-uninitialized"]
    header = str(HERE / "cuda_host.h")
    command = [compiler, *flags, *warnings, "-Werror", "-I", str(KERNELS), "-include", header]
    _run([*command, str(text), "-o", str(library)])
    return Host(ctypes.CDLL(str(library)), lowered)


@dataclass(frozen=True)
class Usage:
    """What a CUDA kernel takes: registers per thread, bytes spilled, bytes of shared memory."""

    registers: int
    spilled: int
    shared: int


def build_device(
    kernels: Sequence[Kernel], folder: Path, compiler: str, arch: str
) -> dict[str, Usage]:
    """Build kernels by nvcc, all in one file; the usage of each symbol."""
    text = folder / f"kernels_{arch}.cu"
    text.write_text(joined(kernels))
    command = [compiler, "-std=c++17", f"-arch={arch}", "-cubin", "-Xptxas", "-v"]
    command += ["-Werror", "all-warnings", "-I", str(KERNELS), str(text)]
    printed = _run([*command, "-o", str(text.with_suffix(".cubin"))])
    usage = {}
    for part in printed.split("Compiling entry function '")[1:]:
        symbol = part.partition("'")[0]
        numbers = [
            int(found.group(1)) if (found := re.search(rf"(\d+) {what}", part)) else 0
            for what in ("registers", "bytes spill stores", "bytes smem")
        ]
        usage[symbol] = Usage(*numbers)
    return usage


def _run(command: Sequence[str]) -> str:
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, f"{' '.join(command)}\n{result.stderr[:4000]}"
    return result.stdout + result.stderr
