"""What kernels of factorizations have in common: their operands, memory and calls.

The calls are those of kernels/factorizations.h and kernels/spectra.h, in one text for all devices.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from graphc.ir import Node, Value
from graphc.kernels.program.operands import StridedOperand, constant_operands, find_operands
from graphc.ops.base import Array
from graphc.ops.cost import node_flops
from graphc.ops.fused import KernelNode
from graphc.ops.pointwise.logic import C_TYPES

MOST_COLUMNS = 64
"""Columns of the right-hand sides of a triangular system that are computed together."""
GROUP = 8
"""Columns that an LU factorization computes one by one, as in kernels/factorizations.h."""
BLOCK = 4
"""Reflections that change a matrix together, as in kernels/reflections.h."""
PAD = 16
"""Elements to whose multiples rows are padded, unless they are short."""
LEAST_PADDED = 4
"""Up to so many elements a row is not padded."""
ALIGNMENT = 64
"""Bytes to whose multiples pieces of the workspace are aligned."""


@dataclass(frozen=True)
class Factor:
    """An op on matrices in a fused node, which computes the matrices one by one."""

    node: KernelNode
    """The fused node."""
    inner: Node
    """The node in its body."""
    operands: tuple[StridedOperand, ...]
    """How the op's inputs are read."""
    sources: Mapping[Value, str]
    """The pointer names of operands that are constants."""
    arrays: Mapping[str, Array]
    """The elements of these constants by name."""

    @property
    def dtype(self) -> str:
        """The dtype that it is computed in."""
        return self.inner.inputs[0].type.dtype

    @property
    def count(self) -> int:
        """The number of matrices."""
        return math.prod(self.inner.inputs[0].type.shape[:-2])

    @property
    def strips(self) -> int:
        """The number of units of work per matrix: a unit is a matrix or some columns of one."""
        if self.inner.op.name != "triangular_solve":
            return 1
        return max(1, -(-self.inner.inputs[1].type.shape[-1] // MOST_COLUMNS))

    @property
    def units(self) -> int:
        """The number of units of work."""
        return self.count * self.strips

    @property
    def rows(self) -> int:
        """The largest number of elements that can be computed at once: of a row or a column."""
        return max(max(v.type.shape[-2:]) for v in self.inner.inputs)

    @property
    def pitch(self) -> int:
        """Elements between rows of the matrix, or the right-hand sides, that the kernel changes."""
        columns = min(MOST_COLUMNS, self.inner.inputs[-1].type.shape[-1])
        if self.inner.op.name != "triangular_solve":
            columns = self.inner.inputs[0].type.shape[-1]
        short = columns <= LEAST_PADDED and self.inner.op.name not in ("qr", "eigh", "svd")
        return columns if short else _padded(columns)

    @property
    def flops(self) -> int:
        """Floating-point operations of the op."""
        return node_flops(self.inner)

    @property
    def workspace(self) -> int:
        """Bytes of the workspace of a unit: its scratch, and results that are not wanted."""
        return sum(size for _, size in self._pieces)

    def lines(self, unit: str, pointers: Mapping[Value, str], workspace: str) -> list[str]:
        """Return the statements that compute a unit.

        Args:
            unit: The C++ expression of its number.
            pointers: The names of the body's inputs and outputs.
            workspace: The C++ expression of its workspace, an address of bytes.
        """
        column = f"({unit}) % {self.strips} * {MOST_COLUMNS}" if self.strips > 1 else "0"
        definitions = self.definitions(unit, pointers, workspace)
        return [*definitions, *CALLS[self.inner.op.name](self, column)]

    def definitions(self, unit: str, pointers: Mapping[Value, str], workspace: str) -> list[str]:
        """Return the statements that name what a unit reads, its results and its scratch."""
        lines = [f"using T = {C_TYPES[self.dtype]};"]
        matrix = f"({unit})" if self.strips == 1 else f"({unit}) / {self.strips}"
        lines.append(f"const long matrix = {matrix};")
        names = {**pointers, **self.sources}
        inputs = [
            self._reader(name, value, operand, names[operand.source])
            for name, value, operand in zip("ab", self.inner.inputs, self.operands, strict=False)
        ]
        memory, offset = {}, 0
        for name, size in self._pieces:
            memory[name] = offset
            offset += size
        for name, value in zip(RESULTS[self.inner.op.name], self.inner.outputs, strict=True):
            kind, size = C_TYPES[value.type.dtype], value.type.size // max(1, self.count)
            if name in memory:
                lines.append(f"{kind}* const {name} = ({kind}*)({workspace} + {memory[name]});")
            else:
                lines.append(f"{kind}* const {name} = {pointers[value]} + matrix * {size};")
        for name, _ in self._scratch:
            kind = "int" if name in ("pivots", "integers") else "T"
            lines.append(f"{kind}* const {name} = ({kind}*)({workspace} + {memory[name]});")
        return [*lines, *inputs]

    @property
    def _scratch(self) -> list[tuple[str, int]]:
        """The name and the number of elements of each scratch array."""
        m, n = self.inner.inputs[0].type.shape[-2:]
        names, matrices = ("d", "e", "values"), ("rows", "new_rows")

        def turns(name: str, length: int, count: int) -> list[tuple[str, int]]:
            sizes = {"turns": count * _padded(length), "scales": count, "products": BLOCK * count}
            return [(name + what, size) for what, size in sizes.items()]

        spectral = [
            ("work", m * self.pitch),
            *((name, self.pitch) for name in names),
            *((name, n * self.pitch) for name in matrices),
            *turns("", n, n),
            ("sums", 2 * self.pitch),
            ("vectors", 6 * self.pitch),
            ("integers", 9 * self.pitch),
        ]
        sizes: dict[str, list[tuple[str, int]]] = {
            "cholesky": [("work", m * self.pitch)],
            "triangular_solve": [("work", m * self.pitch)],
            "lu": [("work", m * self.pitch), ("columns", GROUP * self.pitch), ("pivots", n)],
            "qr": [("work", m * self.pitch), *turns("", m, n)],
            "eigh": spectral,
            "svd": [
                *spectral,
                ("left_rows", n * self.pitch),
                ("new_left_rows", n * self.pitch),
                *turns("left_", m, n),
                ("row_products", _padded(m)),
            ],
        }
        return sizes.get(self.inner.op.name, [])

    @property
    def _pieces(self) -> list[tuple[str, int]]:
        """The name and the bytes of each array of a unit's workspace."""
        bytes_of = self.inner.inputs[0].type.numpy_dtype.itemsize
        found = [(name, size * bytes_of) for name, size in self._scratch]
        for name, value in zip(RESULTS[self.inner.op.name], self.inner.outputs, strict=True):
            if value not in self.node.body.outputs:
                found.append((name, value.type.nbytes // max(1, self.count)))
        return [(name, max(1, -(-size // ALIGNMENT)) * ALIGNMENT) for name, size in found]

    def _reader(self, name: str, value: Value, operand: StridedOperand, pointer: str) -> str:
        """The definition of a function that reads an element of an operand's matrix."""
        terms, step = [], self.count
        for extent, stride in zip(value.type.shape[:-2], operand.strides[:-2], strict=True):
            step //= max(1, extent)
            if stride:
                terms.append(f"matrix / {step} % {extent} * {stride}")
        offset = " + ".join([str(operand.offset), *terms])
        rows, columns = operand.strides[-2:]
        return (
            f"const auto {name} = [p = {pointer} + ({offset})](long i, long k) "
            f"{{ return T(p[i * {rows} + k * {columns}]); }};"
        )


def find_factor(node: KernelNode) -> Factor:
    """Return the op on matrices in a fused node; its operands are row-major inputs and
    constants."""
    body = node.body
    (inner,) = (n for n in body.nodes if n.op.own_template == "factor")
    operands = find_operands(body, inner.inputs)
    found = Factor(node, inner, tuple(operands), *constant_operands(body, operands))
    assert found.dtype in ("f32", "f64"), f"{node.op.kernel} is not computed in {found.dtype}"
    return found


def _cholesky(factor: Factor, _: str) -> list[str]:
    n, pitch = factor.inner.inputs[0].type.shape[-1], factor.pitch
    return [
        f"load_transposed(team, {n}, {n}, {pitch}, work, {pitch}, "
        "[&](long i, long k) { return a(k, i); });",
        f"cholesky(team, {n}, work, {pitch}, y);",
    ]


def _triangular_solve(factor: Factor, column: str) -> list[str]:
    op: Any = factor.inner.op
    n, m = factor.inner.inputs[1].type.shape[-2:]
    forward, pitch = op.lower != op.transposed, factor.pitch
    i, j = ("i", "j") if forward else (f"{n - 1} - i", f"{n - 1} - j")
    read = f"a({j}, {i})" if op.transposed else f"a({i}, {j})"
    return [
        f"const long column = {column}, width = least_of({MOST_COLUMNS}, {m} - column);",
        f"const long end = least_of({pitch}, (width + {PAD - 1}) / {PAD} * {PAD});",
        f"load(team, {n}, width, end, work, {pitch}, "
        f"[&](long i, long k) {{ return b({i}, column + k); }});",
        f"solve_lower<{str(op.unit).lower()}>(team, {n}, end, work, {pitch}, "
        f"[&](long i, long j) {{ return {read}; }});",
        f"load(team, {n}, width, width, x + column, {m}, "
        f"[&](long i, long k) {{ return work[({i}) * {pitch} + k]; }});",
    ]


def _lu(factor: Factor, _: str) -> list[str]:
    n, pitch = factor.inner.inputs[0].type.shape[-1], factor.pitch
    return [
        f"load(team, {n}, {n}, {pitch}, work, {pitch}, a);",
        f"lu(team, {n}, work, {pitch}, rows, sign, pivots, columns);",
        f"load(team, {n}, {n}, {n}, packed, {n}, "
        f"[&](long i, long k) {{ return work[i * {pitch} + k]; }});",
    ]


def _qr(factor: Factor, _: str) -> list[str]:
    (m, n), pitch = factor.inner.inputs[0].type.shape[-2:], factor.pitch
    return [
        _reflections("all", n, 0, _padded(m), "turns, scales, products"),
        f"qr(team, all, {m}, {n}, {pitch}, work, a, q, r);",
    ]


def _reflections(name: str, count: int, place: int, length: int, memory: str) -> str:
    """Some reflections, number j from row place + j on."""
    return f"const Reflections<T> {name}{{{max(0, count)}, {place}, {length}, {memory}}};"


def _parts(factor: Factor, left: bool) -> str:
    """The memory of the divide and conquer method."""
    n = factor.inner.inputs[0].type.shape[-1]
    names = ["d", "e", "values"]
    names += ["rows", "left_rows" if left else "nullptr"]
    names += ["new_rows", "new_left_rows" if left else "nullptr", "work"]
    vectors = [f"vectors + {i * factor.pitch}" for i in range(6)]
    integers = [f"integers + {i * factor.pitch}" for i in range(9)]
    return f"Parts<T> parts{{{n}, {factor.pitch}, {', '.join([*names, *vectors, *integers])}}};"


def _eigh(factor: Factor, _: str) -> list[str]:
    n, pitch = factor.inner.inputs[0].type.shape[-1], factor.pitch
    return [
        f"load(team, {n}, {n}, {pitch}, work, {pitch}, "
        "[&](long i, long k) { return i < k ? a(k, i) : a(i, k); });",
        _parts(factor, left=False),
        _reflections("right", n - 2, 1, pitch, "turns, scales, products"),
        "eigh(team, parts, work, w, v, d, e, sums, right);",
    ]


def _svd(factor: Factor, _: str) -> list[str]:
    (m, n), pitch = factor.inner.inputs[0].type.shape[-2:], factor.pitch
    return [
        f"load(team, {m}, {n}, {pitch}, work, {pitch}, a);",
        _parts(factor, left=True),
        _reflections("left", n, 0, _padded(m), "left_turns, left_scales, left_products"),
        _reflections("right", n - 2, 1, pitch, "turns, scales, products"),
        f"svd(team, parts, {m}, work, u, s, vt, d, e, sums, row_products, left, right);",
    ]


def _padded(columns: int) -> int:
    return -(-columns // PAD) * PAD


RESULTS: Mapping[str, tuple[str, ...]] = {
    "cholesky": ("y",),
    "triangular_solve": ("x",),
    "lu": ("packed", "rows", "sign"),
    "qr": ("q", "r"),
    "eigh": ("w", "v"),
    "svd": ("u", "s", "vt"),
}
"""The names of the results of each op in the calls."""
CALLS: Mapping[str, Callable[[Factor, str], list[str]]] = {
    "cholesky": _cholesky,
    "triangular_solve": _triangular_solve,
    "lu": _lu,
    "qr": _qr,
    "eigh": _eigh,
    "svd": _svd,
}
"""What prints the statements that compute a unit, given its first column."""
