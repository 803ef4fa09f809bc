"""Whether kernels of the CPU add in the orders that their nodes state: part of
GRAPHC_CHECK=meaning.

Each kernel with a stated order is run once on random numbers, and must give the bits that the
reference gives, which adds in that order (`graphc.ir.ordered_sum`). Left out are kernels with
functions that NumPy rounds in another way, and those that take NumPy too long.
"""

from __future__ import annotations

import ctypes
import math
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from graphc.base.dtypes import Array
from graphc.base.errors import GraphError
from graphc.ir import FLOATS, Graph, Node, Type
from graphc.ir.interpret import evaluate
from graphc.ir.state import aligned_empty, elements, stored
from graphc.kernels.program.kernel import Kernel
from graphc.ops.base import ORDERED, Contraction, Pointwise, Reduction
from graphc.ops.constant import Constant, Iota
from graphc.ops.fused import KernelNode
from graphc.ops.join import Concat, Pad
from graphc.ops.pooling import MaxPool2d, MaxPool2dGrad
from graphc.ops.random import PhiloxUniform
from graphc.runtime.checks.nan import kernels_of

MOST_TERMS = 1 << 22
"""Terms that NumPy adds in a second or so."""
EXACT = (
    Concat,
    Constant,
    Contraction,
    Iota,
    MaxPool2d,
    MaxPool2dGrad,
    Pad,
    PhiloxUniform,
    Reduction,
)
"""Further ops that the reference gives the bits of: those with sums only if these are stated or of
integers."""
BEHIND = 64
"""Bytes that a kernel may read behind a row-major array."""


@dataclass(frozen=True)
class Tried:
    """The kernels with stated orders: those that were run, and those that were left out."""

    same: tuple[str, ...]
    left_out: tuple[str, ...]

    def __str__(self) -> str:
        found = f"{len(self.same)} of {len(self.same) + len(self.left_out)}"
        return f"meaning: {found} kernels with sums were run and add in the order stated"


def check_orders(
    graph: Graph, kernels: Mapping[str, Kernel], functions: Mapping[str, int]
) -> Tried:
    """Run the kernels of a planned graph, whose functions lie at these addresses.

    Raises GraphError for a kernel that adds in another order.
    """
    same, left_out = [], []
    for name, node in kernels_of(graph).items():
        orders = [*_orders(node)]
        if not orders or name not in kernels:
            continue
        if not _exact(node) or _terms(node) > MOST_TERMS:
            left_out.append(name)
            continue
        inputs = [_numbers(v.type, v.name) for v in node.inputs]
        want, _ = evaluate(_body(node), inputs)
        got = run_kernel(node, kernels[name], functions[name], inputs)
        for value, x, y in zip(node.outputs, got, want, strict=True):
            differ = ~((x == y) | ((x != x) & (y != y)))
            if differ.any():
                place = tuple(map(int, np.argwhere(differ)[0]))
                raise GraphError(
                    f"meaning: kernel {name} does not add in the order stated, "
                    f"{' and '.join(orders)}: {value.name} {value.type} at {list(place)} expected "
                    f"{y[place]!r}, got {x[place]!r}"
                )
        same.append(name)
    return Tried(tuple(same), tuple(left_out))


def run_kernel(node: Node, kernel: Kernel, function: int, inputs: list[Array]) -> list[Array]:
    """The outputs of a kernel for these elements of its node's inputs."""
    given = [
        _memory(stored(a, v.type.layout).ravel().view(np.uint8).ravel())
        for a, v in zip(inputs, node.inputs, strict=True)
    ]
    made = [_memory(np.zeros(v.type.nbytes, np.uint8)) for v in node.outputs]
    arrays = [*given, *made, _memory(np.zeros(kernel.workspace, np.uint8))]
    addresses = [a.ctypes.data + kernel.offset(n) for n, a in enumerate(arrays)]
    arguments = (ctypes.c_void_p * len(arrays))(*addresses)
    call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_int)(function)
    for phase, chunks in enumerate(kernel.phases):
        for chunk in range(chunks):
            call(ctypes.addressof(arguments), phase, chunk)
    return [
        elements(a[: v.type.nbytes].view(v.type.numpy_dtype), v.type)
        for a, v in zip(made, node.outputs, strict=True)
    ]


def _memory(contents: Array) -> Array:
    memory = aligned_empty((contents.size + BEHIND,), np.uint8)
    memory[: contents.size] = contents
    return memory


def _body(node: Node) -> Graph:
    assert isinstance(node, KernelNode)
    return node.body


def _orders(node: Node) -> Iterator[str]:
    """The orders that a kernel's sums state."""
    for inner in _body(node).nodes if isinstance(node, KernelNode) else ():
        if isinstance(inner.op, Contraction | Reduction) and inner.op.order:
            yield f"{inner.op.name} {inner.op.order}"


def _exact(node: Node) -> bool:
    """Whether the reference gives the bits of a kernel."""
    return all(map(_is_exact, _body(node).nodes))


def _is_exact(node: Node) -> bool:
    op = node.op
    if isinstance(op, Pointwise):
        return op.units <= 0.5
    if isinstance(op, Contraction | Reduction) and node.output.type.dtype in FLOATS:
        return bool(op.order) or (isinstance(op, Reduction) and op.combine not in ORDERED)
    return op.moves or isinstance(op, EXACT)


def _terms(node: Node) -> int:
    """The most terms that a sum of a kernel adds."""
    found = [0]
    for inner in _body(node).nodes:
        types = [v.type for v in inner.inputs]
        if isinstance(inner.op, Contraction):
            found.append(math.prod(inner.op.iteration(*types).extents))
        elif isinstance(inner.op, Reduction):
            found.append(types[0].size)
    return max(found)


def _numbers(type: Type, name: str) -> Array:
    """Random elements, of integers small ones."""
    random = np.random.default_rng(zlib.crc32(name.encode()))
    if type.dtype == "bool":
        return random.random(type.shape) < 0.5
    if type.dtype not in FLOATS:
        return random.integers(0, 3, type.shape).astype(type.numpy_dtype)
    numbers = random.standard_normal(type.shape)
    if type.dtype == "bf16":  # held as two bytes
        return (
            (numbers.astype(np.float32).view(np.uint32) >> 16)
            .astype(np.uint16)
            .view(type.numpy_dtype)
        )
    return numbers.astype(type.numpy_dtype)
