"""The gradient of a gather for index.cuh: a body of one take_grad."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from graphc.ir import Graph, Value
from graphc.kernels.cuda.shell import (
    FEW_THREADS,
    Launches,
    constant_arrays,
    decomposed,
    index_type,
)
from graphc.kernels.program.access import Domain
from graphc.kernels.program.axis import only_node
from graphc.kernels.program.counts import check_counts
from graphc.kernels.program.expression import Walk
from graphc.kernels.program.kernel import Kernel
from graphc.kernels.program.names import Names
from graphc.kernels.program.pieces import element_at
from graphc.ops.fused import KernelNode
from graphc.ops.indexing import TakeGrad
from graphc.ops.logic import C_TYPES


def lower_index(node: KernelNode) -> Kernel:
    """The kernel of a fused node around a take_grad; every value is row-major."""
    (gather, op), body = only_node(node, TakeGrad), node.body
    (indices, dy), table = gather.inputs, gather.output
    axis = op.axis
    before, after = math.prod(table.type.shape[:axis]), math.prod(table.type.shape[axis + 1 :])
    count, extent = indices.type.size, table.type.shape[axis]
    check_counts(node, rows=before, indices=count, elements_per_row=after, places=extent)
    names = Names()
    pointers = names.pointers(body)
    kind = C_TYPES[dy.type.dtype]
    text = Text(body, pointers, names)
    sizes = f"{kind}, {before}, {count}, {after}, {extent}"
    lines = [
        f"take_grad<{sizes}>(",
        "    [&](int i) {",
        *text.read(indices, {"i": indices.type.shape}),
        "    },",
        "    [&](int before, int i, int after) {",
        *text.read(dy, split_axes(dy, axis, indices.type.rank)),
        "    },",
        f"    [&](int before, int i, int after, {kind} sum) {{",
        *text.write(table, split_axes(table, axis, 1)),
        "    });",
    ]
    warps = before * extent * -(-after // 32)
    launches = Launches(node, pointers)
    launches.add(lines, -(-warps // (FEW_THREADS // 32)), threads=FEW_THREADS)
    return launches.kernel(("index",), [text.constants])


def split_axes(value: Value, axis: int, middle: int) -> dict[str, tuple[int, ...]]:
    """The extents that each of the three linear indices of a value stands for."""
    shape = value.type.shape
    return {
        "before": shape[:axis],
        "i": shape[axis : axis + middle],
        "after": shape[axis + middle :],
    }


class Text:
    """The bodies of the functors, and the constants that they read."""

    def __init__(self, body: Graph, pointers: Mapping[Value, str], names: Names) -> None:
        self._body, self._pointers, self._names = body, pointers, names
        self._index = index_type(body)
        self.constants: list[str] = []

    def _walk(self, value: Value) -> Walk:
        return Walk(self._body, Domain(value.type.shape), self._pointers, self._names)

    def read(self, value: Value, indices: Mapping[str, tuple[int, ...]]) -> list[str]:
        """Statements that return an element of `value`."""
        walk = self._walk(value)
        register = walk.value(value, walk.domain.identity())
        return [*self._lines(walk, indices), f"      return {register};"]

    def write(self, value: Value, indices: Mapping[str, tuple[int, ...]]) -> list[str]:
        """Statements that store the outputs, given the element `sum` of `value`."""
        walk = self._walk(value)
        places = walk.domain.identity()
        walk.give(value, places, "sum")
        walk.store_all([element_at(v, places) for v in self._body.outputs])
        return self._lines(walk, indices)

    def _lines(self, walk: Walk, indices: Mapping[str, Sequence[int]]) -> list[str]:
        program = walk.taken()
        self.constants += constant_arrays(program)
        names = [f"{whole}{d}" for whole, extents in indices.items() for d in range(len(extents))]
        used = program.used(names)
        split: list[str] = []
        for whole, extents in indices.items():
            mine = [f"{whole}{d}" for d in range(len(extents))]
            split += decomposed(whole, mine, extents, self._index, used)
        return [f"      {line}" for line in (*split, *program.lines(names, "1"))]
