"""The loop nest of a fused contraction: its axes, operand addresses and borders.

The iteration axes come from the op; operands are traced through affine views to the kernel's
inputs. An operand's address is a sum of terms, one per axis of the input:

    stride * ((sum of coefficients[a] * i[a] + offset) / divisor)

All terms without a division are combined into one stride per iteration axis. Reads may fall outside
the operand, where they give zero; a `Border` tells when they do not.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from graphc.base.cached import cached_property
from graphc.ir import Graph, Node, Type, Value
from graphc.ir.graph import remembered
from graphc.ir.sections import Sections
from graphc.ops.base import Affine, Contraction, Op, View
from graphc.ops.base import Operand as OperandIndex
from graphc.ops.pointwise.bf16 import ReadBf16
from graphc.ops.pointwise.tf32 import ReadTf32
from graphc.ops.pooling import MaxPool2d

Window = tuple[tuple[int, int], tuple[int, int]]
"""The iteration axes of output rows and columns, and the pooling window's extent along each."""


@dataclass(frozen=True)
class Axis:
    """An iteration axis; `kept` axes index the output, the others are summed over."""

    name: str
    """The axis's letter in the op, such as k."""
    extent: int
    kept: bool
    """Whether the axis indexes the output; else it is summed over."""


@dataclass(frozen=True)
class Border:
    """A bounds condition of a read: value / divisor is a whole number in [0, extent), where value
    is the sum of coefficients[a] * i[a] plus offset."""

    coefficients: tuple[int, ...]
    """The factor of each iteration index."""
    offset: int
    extent: int
    divisor: int = 1

    @cached_property
    def axes(self) -> frozenset[int]:
        """The iteration axes that the condition depends on."""
        return frozenset(a for a, c in enumerate(self.coefficients) if c)


@dataclass(frozen=True)
class Quotient:
    """A divided term of an address: `stride` elements per unit of the border's quotient."""

    border: Border
    stride: int


@dataclass(frozen=True)
class Read:
    """How an operand is read."""

    input: int
    """The number of the kernel's input."""
    type: Type
    """The type of the input."""
    strides: tuple[int, ...]
    """Elements per step of each iteration axis."""
    offset: int
    """Elements before the first."""
    borders: tuple[Border, ...]
    """Conditions under which the read is inside the operand."""
    quotients: tuple[Quotient, ...] = ()
    """Divided terms of the address."""
    lanes: int | None = None
    """The iteration axis in lanes, if any. Its index i has the address `i / width * block + i %
    width`, and strides[lanes] is 0."""
    block: int = 0
    """Elements from one block of lanes to the next."""
    rounded: str = ""
    """What elements are rounded to when read, "tf32" or "bf16"; "" for no rounding."""

    @property
    def width(self) -> int:
        """Lanes of the input's layout."""
        return self.type.layout.width

    def depends_on(self, axis: int) -> bool:
        """Whether the address depends on `axis`."""
        return (
            self.strides[axis] != 0
            or self.lanes == axis
            or any(axis in q.border.axes for q in self.quotients)
        )

    @property
    def used(self) -> frozenset[int]:
        """The axes that the address depends on."""
        return frozenset(a for a in range(len(self.strides)) if self.depends_on(a))


@dataclass(frozen=True)
class Nest:
    """The loop nest of a contraction node. Nests of different nodes may be equal."""

    node: Node = field(compare=False)
    """The contraction."""
    axes: tuple[Axis, ...]
    """The iteration axes, kept ones first."""
    a: Read
    """The read of the first operand."""
    b: Read
    """The read of the second operand."""
    output: tuple[Affine, ...]
    """The index along each axis of the output."""
    sections: int | None = None
    """The axis whose sums the epilogue combines, if it reads the output by sections; else None."""

    @cached_property
    def kept(self) -> tuple[int, ...]:
        """The numbers of the kept axes."""
        return tuple(i for i, axis in enumerate(self.axes) if axis.kept)

    @cached_property
    def summed(self) -> tuple[int, ...]:
        """The numbers of the summed axes."""
        return tuple(i for i, axis in enumerate(self.axes) if not axis.kept)

    @property
    def section_count(self) -> int:
        """Sums that the epilogue combines; 1 if it does not read sections."""
        return 1 if self.sections is None else self.axes[self.sections].extent

    @property
    def section_place(self) -> tuple[Affine, ...]:
        """The index within a section along each axis of the output."""
        return tuple(
            replace(place, coefficients=_without(place.coefficients, self.sections))
            for place in self.output
        )

    @property
    def flops(self) -> int:
        """FLOPs of the products inside all borders; products with padding do not count."""
        products = math.prod(axis.extent for axis in self.axes)
        for border in (*self.a.borders, *self.b.borders):
            inside, total = self._inside(border)
            products = products * inside // max(1, total)
        return 2 * products

    def _inside(self, border: Border) -> tuple[int, int]:
        """How many values of the border's index are inside, and how many there are."""
        ranges = [range(self.axes[a].extent) for a in sorted(border.axes)]
        factors = [border.coefficients[a] for a in sorted(border.axes)]
        places = itertools.product(*ranges)
        values = [sum(map(operator.mul, factors, at)) + border.offset for at in places]
        inside = [
            v % border.divisor == 0 and 0 <= v // border.divisor < border.extent for v in values
        ]
        return sum(inside), len(values)

    def extents(self, axes: Sequence[int]) -> int:
        """The product of the extents of `axes`."""
        return math.prod(self.axes[a].extent for a in axes)


@remembered
def contraction_nest(body: Graph, lanes: bool = True) -> Nest:
    """The nest of the one contraction of `body`.

    Its operands are inputs read through affine views, widened from f16 or bf16, or rounded from f32
    to tf32 or bf16. Without `lanes`, an axis in lanes must fit one block and is an ordinary axis
    that runs fastest.
    """
    (node,) = (n for n in body.nodes if isinstance(n.op, Contraction))
    assert isinstance(node.op, Contraction)
    a, b = node.inputs
    nest = node.op.iteration(a.type, b.type)
    axes = tuple(
        Axis(name, extent, i < nest.kept)
        for i, (name, extent) in enumerate(zip(nest.names, nest.extents, strict=True))
    )
    extents = nest.extents
    return Nest(
        node,
        axes,
        _read(body, a, nest.a, extents, lanes),
        _read(body, b, nest.b, extents, lanes),
        nest.output,
    )


def sectioned_nest(nest: Nest, sections: Sections) -> Nest:
    """`nest` with the axis of the sections split in two: the section, and the index within it."""
    (axis,) = (a for a, c in enumerate(nest.output[sections.axis].coefficients) if c)
    name = nest.axes[axis].name
    cut = (Axis(f"{name}_section", sections.count, True), Axis(name, sections.size, True))
    return replace(cut_axis(nest, axis, cut), sections=axis)


def cut_axis(nest: Nest, axis: int, cut: tuple[Axis, Axis]) -> Nest:
    """`nest` with `axis` split in two.

    Its index is that of the first times the extent of the second plus that of the second. The two
    together may be longer than the axis.
    """
    size = cut[1].extent

    def affine(place: Affine) -> Affine:
        return replace(place, coefficients=_cut(place.coefficients, axis, size))

    return replace(
        nest,
        axes=(*nest.axes[:axis], *cut, *nest.axes[axis + 1 :]),
        a=_cut_read(nest.a, axis, size),
        b=_cut_read(nest.b, axis, size),
        output=tuple(map(affine, nest.output)),
    )


def _cut(factors: tuple[int, ...], axis: int, size: int) -> tuple[int, ...]:
    return (*factors[:axis], size * factors[axis], *factors[axis:])


def _cut_read(read: Read, axis: int, size: int) -> Read:
    def border(old: Border) -> Border:
        return replace(old, coefficients=_cut(old.coefficients, axis, size))

    lanes = read.lanes if read.lanes is None or read.lanes < axis else read.lanes + 1
    strides = _cut(read.strides, axis, size)
    if read.lanes == axis:
        assert size % read.width == 0, "sections are whole blocks of lanes"
        strides = (*strides[:axis], size // read.width * read.block, *strides[axis + 1 :])
    return replace(
        read,
        strides=strides,
        borders=tuple(map(border, read.borders)),
        quotients=tuple(replace(q, border=border(q.border)) for q in read.quotients),
        lanes=lanes,
    )


def _without(factors: tuple[int, ...], axis: int | None) -> tuple[int, ...]:
    return tuple(0 if a == axis else c for a, c in enumerate(factors))


def pooled_nest(nest: Nest, pool: MaxPool2d) -> tuple[Nest, Window]:
    """`nest` without the output pixels that no window of `pool` contains, and the window."""
    axes = list(nest.axes)
    window = []
    pixels = pool.pixels(nest.node.output.type.shape[2:])  # type: ignore[arg-type]
    for place, size, count in zip(nest.output[2:], pool.kernel_size, pixels, strict=True):
        (axis,) = (a for a, c in enumerate(place.coefficients) if c)
        axes[axis] = replace(axes[axis], extent=count * size)
        window.append((axis, size))
    return replace(nest, axes=tuple(axes)), (window[0], window[1])


def _read(
    body: Graph, value: Value, operand: OperandIndex, extents: tuple[int, ...], lanes: bool
) -> Read:
    """The read of `value`, given its index per axis over iteration axes of `extents`."""
    borders: list[Border] = []
    places: list[_NestIndex] = []
    for affine, divisor, extent in zip(
        operand.index, operand.divisors, value.type.shape, strict=True
    ):
        place = Border(affine.coefficients, affine.offset, extent, divisor)
        # The index of an axis of extent 1 is 0; without it the border has fewer axes.
        wide = tuple(c if n > 1 else 0 for c, n in zip(affine.coefficients, extents, strict=True))
        border = Border(wide, affine.offset, extent, divisor)
        places.append(_NestIndex.of(place if divisor == 1 else border))
        if not _always_inside(border, extents):
            borders.append(border)
    producers = body.producers
    rounded = ""
    if value in producers and producers[value].op.converts_reads:
        rounded = rounded_to(producers[value].op)
        (value,) = producers[value].inputs
    while value in producers:
        view = producers[value]
        assert isinstance(view.op, View), f"a contraction reads {view.op.name} in its own body"
        (source,) = view.inputs
        index = view.op.index(source.type)
        assert index is not None, f"{view.op.name} is not affine"
        places = [_compose(affine, places, len(extents)) for affine in index]
        value = source
    number, type = body.inputs.index(value), value.type
    steps = _storage_strides(type) if lanes else type.strides
    blocked = type.layout.axis if lanes else None
    read = _address(number, type, steps, blocked, places, tuple(borders), len(extents))
    return replace(read, rounded=rounded)


def rounded_to(op: Op) -> str:
    """The format that a converting op rounds floats to as it reads; "" if it does not round."""
    if isinstance(op, ReadTf32):
        return "tf32"
    return "bf16" if isinstance(op, ReadBf16) else ""


@dataclass(frozen=True)
class _NestIndex:
    """An index as the sum of coefficients[a] * i[a], of `offset` and of quotients with factors.
    Terms with different divisors stay separate."""

    coefficients: tuple[int, ...]
    offset: int
    quotients: tuple[tuple[int, Border], ...] = ()

    @staticmethod
    def of(border: Border) -> _NestIndex:
        if border.divisor == 1:
            return _NestIndex(border.coefficients, border.offset)
        nothing = (0,) * len(border.coefficients)
        if not border.axes:
            return _NestIndex(nothing, border.offset // border.divisor)
        return _NestIndex(nothing, 0, ((1, border),))


def _compose(affine: Affine, places: Sequence[_NestIndex], rank: int) -> _NestIndex:
    used = [(c, p) for c, p in zip(affine.coefficients, places, strict=True) if c]
    return _NestIndex(
        tuple(sum(c * p.coefficients[a] for c, p in used) for a in range(rank)),
        affine.offset + sum(c * p.offset for c, p in used),
        tuple((c * factor, q) for c, p in used for factor, q in p.quotients),
    )


def _address(
    index: int,
    type: Type,
    steps: Sequence[int],
    blocked: int | None,
    places: Sequence[_NestIndex],
    borders: tuple[Border, ...],
    rank: int,
) -> Read:
    """The read of an input of `type` with the strides `steps`; the axis `blocked` is in lanes."""
    strides, offset, quotients = [0] * rank, 0, []
    lanes, block = None, 0
    for axis, (place, step) in enumerate(zip(places, steps, strict=True)):
        if axis == blocked:
            assert not place.quotients and place.offset == 0, (
                f"lanes of {type} are read as they lie"
            )
            if any(place.coefficients):
                assert sum(place.coefficients) == 1, f"lanes of {type} are read one by one"
                lanes, block = place.coefficients.index(1), step
            continue
        quotients += [Quotient(border, step * factor) for factor, border in place.quotients]
        offset += step * place.offset
        for a, c in enumerate(place.coefficients):
            strides[a] += step * c
    return Read(index, type, tuple(strides), offset, borders, tuple(quotients), lanes, block)


def _storage_strides(type: Type) -> tuple[int, ...]:
    """Elements per step of each axis; along the axis in lanes, per block."""
    storage = type.storage_shape
    steps = [math.prod(storage[d + 1 :]) for d in range(type.rank)]
    return tuple(steps)


def _always_inside(border: Border, extents: tuple[int, ...]) -> bool:
    """Whether the condition holds at all indices within `extents`."""
    if border.divisor != 1:
        return False
    reach = [c * (n - 1) for c, n in zip(border.coefficients, extents, strict=True)]
    low = border.offset + sum(min(r, 0) for r in reach)
    high = border.offset + sum(max(r, 0) for r in reach)
    return low >= 0 and high < border.extent
