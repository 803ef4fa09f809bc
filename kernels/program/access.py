"""Affine accesses of a kernel's domain.

A kernel iterates over a `Domain`: axes with extents, one of which may be the lane axis. Along the
lane axis a register holds `width` neighbouring elements, so the loop index steps by `width` and
names the first of them. An `AffineIndex` is the index along one axis of a value as an affine
function of the domain's indices; an `AffineAccess` is the memory offset that the indices along all
axes give under the value's layout.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from graphc.ir import Type
from graphc.ops.base import Affine


@dataclass(frozen=True)
class Domain:
    """The iteration space of a kernel."""

    extents: tuple[int, ...]
    """Elements along each axis."""
    lane: int | None = None
    """The axis that lies in vector lanes; None where a register holds one element, or one value in
    all lanes."""
    width: int = 1
    """Lanes of a register; 1 without vectors."""

    @property
    def rank(self) -> int:
        """Number of axes."""
        return len(self.extents)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.extents)

    def steps(self, axis: int) -> int:
        """Registers along `axis`: its extent, or its blocks of `width` if it is the lane axis."""
        extent = self.extents[axis]
        return -(-extent // self.width) if axis == self.lane else extent

    def axis(self, axis: int) -> AffineIndex:
        """The index of `axis` itself."""
        return AffineIndex(tuple(int(d == axis) for d in range(self.rank)))

    def constant(self, offset: int) -> AffineIndex:
        """The constant index `offset`."""
        return AffineIndex((0,) * self.rank, offset)

    def identity(self, order: Sequence[int] = ()) -> tuple[AffineIndex, ...]:
        """The indices of a value whose axes are the domain's, in `order` or, by default, in the
        same order."""
        return tuple(self.axis(d) for d in self._axes(order))

    def shape(self, order: Sequence[int] = ()) -> tuple[int, ...]:
        """The extents of a value whose axes are the domain's in `order`."""
        return tuple(self.extents[d] for d in self._axes(order))

    def _axes(self, order: Sequence[int]) -> Sequence[int]:
        """The domain axis of each axis of the value."""
        return [order.index(d) for d in range(self.rank)] if order else range(self.rank)


class AffineIndex(NamedTuple):
    """The index `(sum of coefficients[d] * i[d] + offset) / divisor` over the domain indices i.

    With a divisor above 1, a guard excludes inexact quotients. A tuple, as values are known by
    their indices, and tuples are hashed fastest.
    """

    coefficients: tuple[int, ...]
    """The factor of each domain index."""
    offset: int = 0
    divisor: int = 1

    @property
    def constant(self) -> bool:
        """Whether the index is the same at all domain indices."""
        return not any(self.coefficients)


@dataclass(frozen=True)
class AffineAccess:
    """The element offset `(offset + sum of strides[d] * i[d] + lane_stride * l) / divisor` of lane
    l at the domain indices i, where the index along the lane axis is that of lane 0."""

    offset: int
    """Elements at index zero, before the division."""
    strides: tuple[int, ...]
    """Elements per step of each domain index."""
    lane_stride: int = 0
    """Elements from one lane to the next; 0 broadcasts one element."""
    divisor: int = 1
    """The divisor of the offset; above 1 a guard excludes inexact quotients."""

    def text(self, indices: Sequence[str]) -> str:
        """The offset of lane 0 as a C++ expression, before the division."""
        terms = [
            index if stride == 1 else f"{stride} * {index}"
            for stride, index in zip(self.strides, indices, strict=True)
            if stride
        ]
        if self.offset or not terms:
            terms.append(str(self.offset))
        return " + ".join(terms).replace("+ -", "- ")


@dataclass(frozen=True)
class Guard:
    """A condition under which an element is read: the access is exact and within [0, high)."""

    access: AffineAccess
    """The index that is checked."""
    high: int
    """Its exclusive bound, times the access's divisor."""


def compose_index(affine: Affine, indices: Sequence[AffineIndex], rank: int) -> AffineIndex:
    """The index `affine` of a value with these `indices` over a domain of `rank` axes."""
    used = [(c, p) for c, p in zip(affine.coefficients, indices, strict=True) if c]
    divisor = math.lcm(*(p.divisor for _, p in used))
    coefficients = [0] * rank
    offset = affine.offset * divisor
    for factor, index in used:
        scale = factor * (divisor // index.divisor)
        offset += scale * index.offset
        for d, c in enumerate(index.coefficients):
            coefficients[d] += scale * c
    return AffineIndex(tuple(coefficients), offset, divisor)


def broadcast_indices(
    shape: tuple[int, ...], wide: tuple[int, ...], indices: Sequence[AffineIndex], domain: Domain
) -> tuple[AffineIndex, ...]:
    """The indices of an operand of `shape` that NumPy broadcasting extends to `wide`, read at
    `indices`."""
    first = len(wide) - len(shape)
    return tuple(
        domain.constant(0) if extent == 1 and wide[first + d] != 1 else indices[first + d]
        for d, extent in enumerate(shape)
    )


def linear_index(
    shape: tuple[int, ...], indices: Sequence[AffineIndex], domain: Domain
) -> AffineAccess:
    """The row-major element index at `indices` within `shape`."""
    index = compose_index(Affine(row_major_strides(shape)), indices, domain.rank)
    return index_access(index, domain)


def index_access(index: AffineIndex, domain: Domain) -> AffineAccess:
    """An index as an access, for index registers and guards."""
    lane = 0 if domain.lane is None else index.coefficients[domain.lane]
    return AffineAccess(index.offset, index.coefficients, lane, index.divisor)


def memory_access(type: Type, indices: Sequence[AffineIndex], domain: Domain) -> AffineAccess:
    """The access to the element at `indices` of a value of `type`, under its layout."""
    if type.layout.axis is None:
        return linear_index(type.shape, indices, domain)
    axis, width = type.layout.axis, type.layout.width
    if domain.lane is None and type.layout.in_one_block(type.shape):
        return index_access(compose_index(Affine(type.strides), indices, domain.rank), domain)
    *strides, _ = row_major_strides(type.storage_shape)
    batch = indices[axis]
    others = [s if d != axis else 0 for d, s in enumerate(strides)]
    rest = compose_index(Affine(tuple(others)), indices, domain.rank)
    if batch.constant:
        assert batch.divisor == 1
        block, lane = divmod(batch.offset, width)
        rest = AffineIndex(
            rest.coefficients, rest.offset + block * strides[axis] + lane, rest.divisor
        )
        return index_access(rest, domain)
    own = domain.lane is not None and batch == domain.axis(domain.lane) and domain.width == width
    assert own, f"{type} is read away from the kernel's own batch axis: {batch} in {domain}"
    assert domain.lane is not None and rest.coefficients[domain.lane] == 0
    coefficients = list(rest.coefficients)
    # The lane axis's index steps by the width, so it is one stride per element that is left.
    coefficients[domain.lane] = strides[axis] // width * rest.divisor
    return AffineAccess(rest.offset, tuple(coefficients), rest.divisor, rest.divisor)


def bounds_guard(index: AffineIndex, extent: int, domain: Domain) -> Guard | bool:
    """The guard for 0 <= `index` < `extent`, or True or False where it holds for all indices or for
    none."""
    access = index_access(index, domain)
    reach = [c * (n - 1) for c, n in zip(index.coefficients, domain.extents, strict=True)]
    least = index.offset + sum(min(r, 0) for r in reach)
    most = index.offset + sum(max(r, 0) for r in reach)
    high = extent * index.divisor
    if most < 0 or least >= high:
        return False
    if least >= 0 and most < high and index.divisor == 1:
        return True
    return Guard(access, high)


def row_major_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Elements between neighbouring indices along each axis."""
    strides, step = [], 1
    for extent in reversed(shape):
        strides.append(step)
        step *= extent
    return tuple(reversed(strides))


def merge_axes(
    domain: Domain, accesses: Sequence[AffineAccess], kinds: Sequence[object] = ()
) -> tuple[Domain, tuple[tuple[int, ...], ...]]:
    """Merge neighbouring axes of a domain that every access steps through as one.

    Returns the domain of fewer axes, which visits the same elements in the same order, and for each
    new axis the old axes that it replaces; the last of these has the new axis's strides. Only axes
    of one kind (`kinds`) merge. Axes of extent 1 vanish, except for the lane axis.
    """
    kinds = kinds or (None,) * domain.rank
    groups: list[list[int]] = []
    for axis, extent in enumerate(domain.extents):
        if extent == 1 and axis != domain.lane:
            continue
        last = groups[-1] if groups else None
        if last and kinds[last[-1]] == kinds[axis] and _mergeable(domain, accesses, last, axis):
            last.append(axis)
        else:
            groups.append([axis])
    lane = next((i for i, g in enumerate(groups) if domain.lane in g), None)
    extents = tuple(math.prod(domain.extents[d] for d in g) for g in groups)
    return Domain(extents, lane, domain.width), tuple(map(tuple, groups))


def _mergeable(
    domain: Domain, accesses: Sequence[AffineAccess], group: Sequence[int], axis: int
) -> bool:
    """Whether all accesses step through the merged `group` and `axis` as through one axis."""
    if domain.lane in group:
        return False
    outer, extent = group[-1], domain.extents[axis]
    return all(
        a.strides[outer] == a.strides[axis] * extent
        and (axis != domain.lane or a.lane_stride == a.strides[axis])
        for a in accesses
    )


def merged(access: AffineAccess, groups: Sequence[Sequence[int]]) -> AffineAccess:
    """`access` over the merged axes `groups`."""
    strides = tuple(access.strides[g[-1]] for g in groups)
    return AffineAccess(access.offset, strides, access.lane_stride, access.divisor)


def access_cost(access: AffineAccess, width: int) -> float:
    """The cost of loading one register relative to a contiguous vector load."""
    if access.lane_stride == 1:
        return 1.0
    return 0.5 if access.lane_stride == 0 else 0.5 * width
