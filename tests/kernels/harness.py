"""Lowers nodes for the CPU, builds many kernels in one file and runs them: chunks in shuffled
order, arrays in their layouts, with bytes around them that must stay as they are."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import re
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from graphc.base.target import Target
from graphc.ir import ROW_MAJOR, Graph, Layout, Node, Type, Value
from graphc.kernels.lower import lower
from graphc.kernels.program.kernel import Kernel
from graphc.ops.base import Array, Op
from graphc.ops.fused import Fused, KernelNode
from graphc.passes.fuse.widen import widen
from graphc.runtime.compilers.shared_objects import FLAGS, KERNEL_HEADERS, cpu_target, find_compiler
from graphc.trace import Builder

GUARD = 256
"""Bytes before and after each array that a kernel must not change."""
PER_FILE = 24


def fuse(body: Graph) -> Node:
    """The fused node with this body."""
    return KernelNode(Fused(body.name, body), body.inputs, body.outputs)


def single(
    op: Op, inputs: Sequence[Type], name: str = "single", layout: Layout = ROW_MAJOR
) -> Node:
    """The fused node that computes `op` alone; its outputs get `layout`."""
    values = tuple(Value(f"x{i}", t) for i, t in enumerate(inputs))
    outputs = tuple(Value(f"y{i}", t.with_layout(layout)) for i, t in enumerate(op.infer(*inputs)))
    return fuse(Graph(name, values, (), (Node(op, values, outputs),), outputs))


def traced(
    name: str,
    function: Callable[..., Any],
    inputs: Sequence[Type],
    outputs: Sequence[Layout] = (),
) -> Node:
    """The fused node of a function of tensors, whose outputs get the given layouts."""
    builder = Builder(name)
    tensors = [builder.input(f"x{i}", t) for i, t in enumerate(inputs)]
    with builder.building():
        results = function(*tensors)
    results = results if isinstance(results, tuple) else (results,)
    graph = widen(builder.graph(results), Target("cpu"))
    if not any(o != ROW_MAJOR for o in outputs):
        return fuse(graph)
    new = {
        v: Value(v.name, v.type.with_layout(layout))
        for v, layout in zip(graph.outputs, outputs, strict=True)
    }
    nodes = tuple(
        replace(
            n,
            inputs=tuple(new.get(v, v) for v in n.inputs),
            outputs=tuple(new.get(v, v) for v in n.outputs),
        )
        for n in graph.nodes
    )
    return fuse(replace(graph, nodes=nodes, outputs=tuple(new[v] for v in graph.outputs)))


def pack(array: Array, type: Type) -> Array:
    """The elements of `array` as they lie in memory under the type's layout."""
    axis, width = type.layout.axis, type.layout.width
    if axis is None:
        return np.ascontiguousarray(array)
    short = -array.shape[axis] % width
    padded = np.pad(array, [(0, short if d == axis else 0) for d in range(array.ndim)])
    blocks = -(-array.shape[axis] // width)
    split = (*array.shape[:axis], blocks, width, *array.shape[axis + 1 :])
    return np.ascontiguousarray(np.moveaxis(padded.reshape(split), axis + 1, -1))


def unpack(storage: Array, type: Type) -> Array:
    """The inverse of `pack`; asserts that the lanes beyond the extent hold zeros."""
    axis = type.layout.axis
    if axis is None:
        return storage.reshape(type.shape)
    moved = np.moveaxis(storage.reshape(type.storage_shape), -1, axis + 1)
    padded = type.storage_shape[axis] * type.layout.width
    whole = moved.reshape(*type.shape[:axis], padded, *type.shape[axis + 1 :])
    index = [slice(None)] * len(type.shape)
    index[axis] = slice(type.shape[axis], None)
    assert not np.any(whole[tuple(index)]), f"lanes beyond the extent of {type} are not zero"
    index[axis] = slice(0, type.shape[axis])
    return whole[tuple(index)]


class Buffer:
    """Guarded memory with the given contents."""

    def __init__(self, contents: Array) -> None:
        self.dtype, self.shape, self.nbytes = contents.dtype, contents.shape, contents.nbytes
        self._raw = np.full(self.nbytes + 2 * GUARD + 64, 0xFF, np.uint8)
        self._start = GUARD + -(self._raw.ctypes.data + GUARD) % 64
        self.bytes[:] = contents.reshape(-1).view(np.uint8)
        self._before = self._outside()

    @property
    def bytes(self) -> Array:
        return self._raw[self._start : self._start + self.nbytes]

    @property
    def address(self) -> int:
        return self._raw.ctypes.data + self._start

    def contents(self) -> Array:
        return self.bytes.view(self.dtype).reshape(self.shape)

    def check(self, what: str) -> None:
        """Assert that nothing around the contents has changed."""
        assert self._outside() == self._before, f"{what} writes beyond its bounds"

    def _outside(self) -> bytes:
        raw = self._raw
        return raw[: self._start].tobytes() + raw[self._start + self.nbytes :].tobytes()


@dataclass(frozen=True)
class Built:
    """A node, its kernel and the address of its function."""

    node: Node
    kernel: Kernel
    function: Callable[..., None]
    description: bytes = b""
    """What a prebuilt function reads in front of its arguments."""

    def run(self, inputs: Sequence[Array], seed: int = 0, inplace: bool = False) -> list[Array]:
        """The outputs, row-major. With `inplace` outputs lie in the memory of inputs, where the
        kernel allows it. No two chunks of a phase may write the same byte of the workspace."""
        pairs = _matching(self.kernel.inplace, seed) if inplace else []
        random = np.random.default_rng(seed)
        given = [Buffer(pack(a, v.type)) for a, v in zip(inputs, self.node.inputs, strict=True)]
        before = [b.contents().copy() for b in given]
        made = [Buffer(_garbage(v.type)) for v in self.node.outputs]
        if inplace:
            for source, target in pairs:
                made[target] = given[source]
        workspace = Buffer(np.full(self.kernel.workspace, 0xAA, np.uint8))
        buffers = [*given, *made, workspace]
        description = Buffer(np.frombuffer(self.description, np.uint8))
        table = (ctypes.c_void_p * (1 + len(buffers)))(
            description.address, *(b.address + self.kernel.offset(n) for n, b in enumerate(buffers))
        )
        arguments = ctypes.c_void_p(ctypes.addressof(table) + ctypes.sizeof(ctypes.c_void_p))
        for phase, chunks in enumerate(self.kernel.phases):
            written = np.zeros(self.kernel.workspace, bool)
            for chunk in random.permutation(chunks):
                held = workspace.bytes.copy()
                self.function(arguments, ctypes.c_int(phase), ctypes.c_int(int(chunk)))
                changed = workspace.bytes != held
                assert not np.any(written & changed), f"chunks of {self.kernel.name} meet"
                written |= changed
        for buffer in buffers:
            buffer.check(self.kernel.name)
        overwritten = {i for i, _ in pairs}
        for i, (buffer, old) in enumerate(zip(given, before, strict=True)):
            same = np.array_equal(buffer.contents().view(np.uint8), old.view(np.uint8))
            assert i in overwritten or same, f"{self.kernel.name} changes input {i}"
        return [unpack(b.contents(), v.type) for b, v in zip(made, self.node.outputs, strict=True)]


def _matching(pairs: Sequence[tuple[int, int]], seed: int) -> list[tuple[int, int]]:
    """Some of the pairs, no input and no output twice; others for another seed."""
    chosen: list[tuple[int, int]] = []
    for place in np.random.default_rng(seed).permutation(len(pairs)):
        source, target = pairs[place]
        if all(source != i and target != o for i, o in chosen):
            chosen.append((source, target))
    return chosen


def _garbage(type: Type) -> Array:
    raw = np.full(type.nbytes, 0xEE, np.uint8)
    return raw.view(type.numpy_dtype).reshape(type.storage_shape)


def build(nodes: Sequence[Node], target: Target | None = None) -> list[Built]:
    """Each node lowered and built; one file holds many kernels, each in a namespace."""
    target = target or cpu_target()
    named = [_renamed(n, f"k{i}_{_plain(n)}") for i, n in enumerate(nodes)]
    kernels = [lower(n, target) for n in named]
    files = [kernels[i : i + PER_FILE] for i in range(0, len(kernels), PER_FILE)]
    folder = _folder()
    with ThreadPoolExecutor(2) as pool:
        libraries = list(
            pool.map(lambda f: _compile(folder, _unity(f, target.lanes), target.lanes), files)
        )
    return [
        Built(node, kernel, getattr(libraries[i // PER_FILE], kernel.name))
        for i, (node, kernel) in enumerate(zip(named, kernels, strict=True))
    ]


def _plain(node: Node) -> str:
    return node.op.kernel if isinstance(node.op, Fused) else node.op.name


def _renamed(node: Node, name: str) -> Node:
    if isinstance(node.op, Fused):
        return replace(node, op=replace(node.op, kernel=name))
    return replace(node, outputs=(Value(name, node.output.type),))


def _unity(kernels: Sequence[Kernel], lanes: int) -> str:
    """The text of one file. Kernels have namespaces that differ with their text and the lanes, as
    libraries of one process share static variables of inline functions with one name."""
    includes: dict[str, None] = {}
    texts = []
    for kernel in kernels:
        includes.update(dict.fromkeys(re.findall(r"^#include.*$", kernel.source, re.M)))
        text = re.sub(r"^#include.*$", "", kernel.source, flags=re.M)
        digest = hashlib.sha256(f"{lanes} {text}".encode()).hexdigest()[:16]
        texts.append(f"namespace space_{digest} {{\n{text}}}\n")
    return "\n".join([*includes, *texts])


@functools.cache
def _keeper() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="graphc-kernels-")


def _folder() -> Path:
    return Path(_keeper().name)


@functools.cache
def _compile(folder: Path, source: str, lanes: int) -> ctypes.CDLL:
    """The library of a source, built once per process, with light optimisation."""
    name = hashlib.sha256(f"{lanes} {source}".encode()).hexdigest()[:16]
    file = folder / f"{name}.cpp"
    file.write_text(source)
    flags = [f for f in FLAGS if f != "-O3"]
    command = [*find_compiler().command, *flags, "-O1", "-Wall", "-Wno-psabi"]
    command += [f"-DGRAPHC_LANES={lanes}", f"-I{KERNEL_HEADERS}", str(file)]
    output = file.with_suffix(".so")
    result = subprocess.run([*command, "-o", str(output)], capture_output=True, text=True)
    assert result.returncode == 0, f"{file}\n{result.stderr[:4000]}\n{source[:6000]}"
    return ctypes.CDLL(str(output))
