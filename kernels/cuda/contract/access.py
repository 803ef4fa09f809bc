"""Print how a contraction's operand is read, as the access type that contract.cuh describes.

The kernel names an operand's element by three linear indices: batch, outer (a row or a column of
the product) and k. Each stands for some axes of the nest. Neighbouring axes that an operand steps
through as through one are one factor of its index; what is left is decomposed by constant
divisions. Borders and divided terms are kept as partial sums of the outer index and of k, which
`at` adds and compares; or the outer index does, where k changes none of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from graphc.kernels.program.kernel import TensorMap
from graphc.kernels.program.nest import Border, Nest, Read
from graphc.ops.pointwise.logic import C_TYPES

AGAIN = 2
"""How often an element is read, on average over an operand, that copies are to keep in L1."""
ROUNDED = {"tf32": "tf32", "bf16": "as_bfloat"}
"""The C++ types of floats that are read as the nearest number of less."""
UNTESTED = -1
"""The extent of a border that is only there for its sum."""


@dataclass(frozen=True)
class Factor:
    """The part `index / step % extent` of a linear index, by the operand's stride in elements and
    by its coefficient in each of the operand's borders."""

    extent: int
    step: int
    stride: int
    borders: tuple[int, ...]

    def text(self, index: str, size: int) -> str:
        """The factor's value; `size` is the number of values of the linear index."""
        quotient = f"{index} / {self.step}" if self.step > 1 else index
        return quotient if self.step * self.extent == size else f"{quotient} % {self.extent}"


@dataclass(frozen=True)
class OperandAccess:
    """`batch`, `outer` and `depth` are factors of the three linear indices, the last one running
    fastest. `vector` elements are copied as one, along k if `along_k`, else along outer; those
    beyond the border numbered `tail` are zeros."""

    read: Read
    borders: tuple[Border, ...]
    batch: tuple[Factor, ...]
    outer: tuple[Factor, ...]
    depth: tuple[Factor, ...]
    along_k: bool
    vector: int
    tail: int | None = None
    outer_index: tuple[str, ...] = ()
    """Statements that make the linear outer index of the kernel's own index i."""

    @property
    def element(self) -> str:
        """The C++ type of an element, in memory and in shared tiles."""
        return ROUNDED.get(self.read.rounded) or C_TYPES[self.read.type.dtype]

    @property
    def is_matrix(self) -> bool:
        """Whether it is one of elements of two bytes, without borders, that lie side by side along
        one index; the other's steps are whole copies of 16 bytes."""
        plain = not (self.borders or self.read.quotients or self.read.rounded or self.batch)
        return (
            plain
            and self.read.type.numpy_dtype.itemsize == 2
            and self.vector == 8
            and len(self.outer) == len(self.depth) == 1
            and min(self.outer[0].stride, self.depth[0].stride) > 0
            and not self.outer_index
        )

    def map_of(self) -> TensorMap:
        """The matrix as TMA copies it."""
        assert self.is_matrix
        along, across = self.depth[0], self.outer[0]
        if not self.along_k:
            along, across = across, along
        kind, size = self.read.type, self.read.type.numpy_dtype.itemsize
        sizes = along.extent, across.extent, across.stride * size
        return TensorMap(self.read.input, kind.dtype, self.read.offset * size, *sizes)

    @property
    def again(self) -> bool:
        """Whether elements stand for several pairs of an outer index and k."""
        return _size(self.outer) * _size(self.depth) >= AGAIN * self.read.type.size

    def text(self, name: str, comment: str) -> list[str]:
        """The lines of the access type `name`."""
        offset = "long long" if self._wide else "unsigned"
        partial = "".join(f" int border{i};" for i in range(len(self.borders)))
        known, rest = (" int live;", "") if self._settled else (partial, partial)
        return [
            f"// {comment}",
            f"struct {name} {{",
            f"  using element = {self.element};",
            f"  static constexpr bool along_k = {str(self.along_k).lower()};",
            f"  static constexpr int vector = {self.vector};",
            f"  static constexpr bool again = {str(self.again).lower()};",
            f"  struct Outer {{ {offset} offset;{known} }};",
            f"  struct Depth {{ {offset} offset;{rest} }};",
            "  GRAPHC_INLINE static Outer outer(int batch, int i) {",
            *(f"    {line}" for line in self.outer_index),
            *self._part({"batch": self.batch, "i": self.outer}, True),
            "  }",
            "  GRAPHC_INLINE static Depth depth(int i) {",
            *self._part({"i": self.depth}, False),
            "  }",
            f"  GRAPHC_INLINE static Place<{offset}> at(const Outer& outer, const Depth& depth) {{",
            *self._at(),
            "  }",
            "};",
        ]

    @property
    def _wide(self) -> bool:
        return self.read.type.size >= 2**30

    @property
    def _settled(self) -> bool:
        """Whether an outer index alone says what exists of its vectors."""
        return bool(self.borders) and not any(b for f in self.depth for b in f.borders)

    def _part(self, indices: dict[str, tuple[Factor, ...]], first: bool) -> list[str]:
        lines, terms = [], []
        sums: list[list[str]] = [[] for _ in self.borders]
        for index, factors in indices.items():
            size = _size(factors)
            for number, factor in enumerate(factors):
                if not factor.stride and not any(factor.borders):
                    continue
                name = f"{index}{number}"
                lines.append(f"const int {name} = {factor.text(index, size)};")
                terms += _term(factor.stride, name, self._wide)
                for total, coefficient in zip(sums, factor.borders, strict=True):
                    total += _term(coefficient, name, False)
        if first:
            terms += [str(self.read.offset)] if self.read.offset else []
            for total, border in zip(sums, self.borders, strict=True):
                total += [str(border.offset)] if border.offset else []
        offset, *rest = (" + ".join(f).replace("+ -", "- ") or "0" for f in (terms, *sums))
        offset = offset if self._wide else f"static_cast<unsigned>({offset})"
        if self._settled:
            lines += [f"const int border{i} = {x};" for i, x in enumerate(rest) if first]
            rest = [self._live] if first else []
            offset = " + ".join([offset, *(self._quotients if first else ())])
        return [f"    {line}" for line in (*lines, f"return {{{', '.join([offset, *rest])}}};")]

    def _at(self) -> list[str]:
        if self._settled:
            return ["    return {outer.offset + depth.offset, outer.live};"]
        sums = (f"border{i}" for i in range(len(self.borders)))
        lines = [f"    const int {x} = outer.{x} + depth.{x};" for x in sums]
        offset = " + ".join(["outer.offset + depth.offset", *self._quotients])
        return [*lines, f"    return {{{offset}, {self._live}}};"]

    @property
    def _live(self) -> str:
        """How many elements of a vector exist, by its borders."""
        tests = []
        for i, border in enumerate(self.borders):
            if border.extent != UNTESTED:
                high = border.extent * border.divisor
                tests += [f"border{i} >= 0", f"border{i} < {high}"]
                tests += [f"border{i} % {border.divisor} == 0"] if border.divisor > 1 else []
        live = str(self.vector)
        if self.tail is not None and self.vector > 1:
            left = self.borders[self.tail].extent
            live = f"smaller({live}, {left} - border{self.tail})"
        return f"{' && '.join(tests)} ? {live} : 0" if tests else live

    @property
    def _quotients(self) -> list[str]:
        """What divided borders add to the offset."""
        offset, terms = "long long" if self._wide else "unsigned", []
        for quotient in self.read.quotients:
            partial = f"border{position(quotient.border, self.borders)}"
            whole = f"static_cast<{offset}>({partial} / {quotient.border.divisor})"
            terms.append(f"{whole} * {quotient.stride}")
        return terms


def operand_access(
    nest: Nest, read: Read, batch: Sequence[int], outer: Sequence[int], depth: Sequence[int]
) -> OperandAccess:
    """The access of `read` where the linear indices stand for these axes of `nest`."""
    extra = [q.border for q in read.quotients if position(q.border, read.borders) is None]
    borders = (*read.borders, *(replace(b, extent=UNTESTED) for b in extra))
    parts = [_factors(nest, read, borders, axes) for axes in (batch, outer, depth)]
    outer_way, depth_way = (_way(read, borders, parts, number) for number in (1, 2))
    along_k = depth_way > outer_way
    vector, _, tail = depth_way if along_k else outer_way
    batches, rows, depths = parts
    border = None if tail < 0 else tail
    return OperandAccess(read, borders, batches, rows, depths, along_k, vector, border)


def _way(
    read: Read, borders: Sequence[Border], parts: Sequence[tuple[Factor, ...]], number: int
) -> tuple[int, float, int]:
    """What copies along part `number` are worth: elements of one, neighbours in a line; and the
    number of the border that some are beyond, -1 for none."""
    run = parts[number]
    rest = [f for part in parts for f in (part[:-1] if part is run else part)]
    tail = _tail(run, rest, borders)
    return _vector(read, run, rest, tail), _neighbours(run), -1 if tail is None else tail


def _factors(
    nest: Nest, read: Read, borders: Sequence[Border], axes: Sequence[int]
) -> tuple[Factor, ...]:
    """The axes as factors of one linear index, those of extent 1 left out, slowest first."""
    factors: list[Factor] = []
    step = 1
    for axis in reversed(axes):
        extent, stride = nest.axes[axis].extent, read.strides[axis]
        coefficients = tuple(b.coefficients[axis] for b in borders)
        if extent == 1:
            continue
        if factors:
            inner = factors[-1]
            together = (inner.stride * inner.extent, *(b * inner.extent for b in inner.borders))
            if together == (stride, *coefficients):
                factors[-1] = replace(inner, extent=inner.extent * extent)
                step *= extent
                continue
        factors.append(Factor(extent, step, stride, coefficients))
        step *= extent
    return tuple(reversed(factors))


def _neighbours(factors: Sequence[Factor]) -> float:
    """How many of 32 neighbours along a linear index lie in one 128-byte line, about."""
    if not factors or not factors[-1].stride:
        return 0
    return min(factors[-1].extent, 32 / abs(factors[-1].stride))


def _tail(run: Sequence[Factor], rest: Sequence[Factor], borders: Sequence[Border]) -> int | None:
    """The border that is the index along the run itself, if there is one."""
    for number, border in enumerate(borders):
        alone = not any(f.borders[number] for f in rest)
        plain = border.offset == 0 and border.divisor == 1 and border.extent != UNTESTED
        if run and alone and plain and run[-1].borders[number] == 1:
            return number
    return None


def _vector(read: Read, run: Sequence[Factor], rest: Sequence[Factor], tail: int | None) -> int:
    """Elements, at most 16 bytes, that always lie side by side, aligned, all inside or none, but
    for those beyond the border `tail`."""
    if not run or run[-1].stride != 1:
        return 1
    if any(b for number, b in enumerate(run[-1].borders) if number != tail):
        return 1
    multiples = [read.offset, run[-1].extent, *(f.stride for f in rest)]
    multiples += [q.stride for q in read.quotients]
    vector = 16 // read.type.numpy_dtype.itemsize
    while any(m % vector for m in multiples):
        vector //= 2
    return vector


def position(border: Border, borders: Sequence[Border]) -> int | None:
    """Where the sum of `border` is among those of `borders`."""
    key = (border.coefficients, border.offset, border.divisor)
    keys = [(b.coefficients, b.offset, b.divisor) for b in borders]
    return keys.index(key) if key in keys else None


def _size(factors: Sequence[Factor]) -> int:
    return math.prod(f.extent for f in factors)


def _term(coefficient: int, name: str, wide: bool) -> list[str]:
    if not coefficient:
        return []
    name = f"static_cast<long long>({name})" if wide else name
    return [name if coefficient == 1 else f"{coefficient} * {name}"]
