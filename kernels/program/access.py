"""Accesses of a kernel: affine functions of the indices of its domain.

A kernel walks a `Domain`: axes with extents, one of which may be the lane axis. Along the lane
axis a register holds `width` neighbours, so its index steps by `width` and names the first of
them. A `AffineIndex` is the index of a value along one of its axes, from the domain's indices; an
`AffineAccess` is the offset in memory that the places of all axes come to under the value's layout.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from graphc.ir import Type
from graphc.ops.base import Affine


@dataclass(frozen=True)
class Domain:
    """`extents`: elements per axis. `lane`: the axis that lies in the lanes, of `width` elements
    per register; None where registers hold one element or one value for all lanes."""

    extents: tuple[int, ...]
    lane: int | None = None
    width: int = 1

    @property
    def rank(self) -> int:
        return len(self.extents)

    @property
    def size(self) -> int:
        """Elements."""
        return math.prod(self.extents)

    def steps(self, axis: int) -> int:
        """Registers along `axis`: its extent, or its blocks of `width` if it is the lane axis."""
        extent = self.extents[axis]
        return -(-extent // self.width) if axis == self.lane else extent

    def axis(self, axis: int) -> AffineIndex:
        """The place that is the index of `axis` itself."""
        return AffineIndex(tuple(int(d == axis) for d in range(self.rank)))

    def constant(self, offset: int) -> AffineIndex:
        return AffineIndex((0,) * self.rank, offset)

    def identity(self, order: Sequence[int] = ()) -> tuple[AffineIndex, ...]:
        """The places of a value that has the domain's own axes, which are `order` of the value's;
        without it they are the same."""
        return tuple(self.axis(d) for d in self._axes(order))

    def shape(self, order: Sequence[int] = ()) -> tuple[int, ...]:
        """The extents of that value."""
        return tuple(self.extents[d] for d in self._axes(order))

    def _axes(self, order: Sequence[int]) -> Sequence[int]:
        """The domain's axis for each axis of the value."""
        return [order.index(d) for d in range(self.rank)] if order else range(self.rank)


@dataclass(frozen=True)
class AffineIndex:
    """`(sum of coefficients[d] * i[d] + offset) / divisor` over the domain's indices i. A divisor
    above 1 comes with a guard that lets only exact quotients pass."""

    coefficients: tuple[int, ...]
    offset: int = 0
    divisor: int = 1

    @property
    def constant(self) -> bool:
        return not any(self.coefficients)


@dataclass(frozen=True)
class AffineAccess:
    """The element offset `(offset + sum of strides[d] * i[d] + lane_stride * l) / divisor` for
    lane l of the register at indices i (the lane axis's index being that of lane 0)."""

    offset: int
    strides: tuple[int, ...]
    lane_stride: int = 0
    divisor: int = 1

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
    """Lets an element pass where the access is exact and within [0, high)."""

    access: AffineAccess
    high: int


def compose_index(affine: Affine, places: Sequence[AffineIndex], rank: int) -> AffineIndex:
    """`affine` over a value's indices, which lie at `places` of a domain of `rank` axes."""
    used = [(c, p) for c, p in zip(affine.coefficients, places, strict=True) if c]
    divisor = math.lcm(*(p.divisor for _, p in used))
    coefficients = [0] * rank
    offset = affine.offset * divisor
    for factor, place in used:
        scale = factor * (divisor // place.divisor)
        offset += scale * place.offset
        for d, c in enumerate(place.coefficients):
            coefficients[d] += scale * c
    return AffineIndex(tuple(coefficients), offset, divisor)


def broadcast_indices(
    shape: tuple[int, ...], wide: tuple[int, ...], places: Sequence[AffineIndex], domain: Domain
) -> tuple[AffineIndex, ...]:
    """The places of an operand of `shape` in a NumPy broadcast to `wide`, read at `places`."""
    first = len(wide) - len(shape)
    return tuple(
        domain.constant(0) if extent == 1 and wide[first + d] != 1 else places[first + d]
        for d, extent in enumerate(shape)
    )


def linear_index(
    shape: tuple[int, ...], places: Sequence[AffineIndex], domain: Domain
) -> AffineAccess:
    """The row-major element index within `shape` at `places`."""
    place = compose_index(Affine(row_major_strides(shape)), places, domain.rank)
    return index_access(place, domain)


def index_access(place: AffineIndex, domain: Domain) -> AffineAccess:
    """A place as an access: for index registers and guards."""
    lane = 0 if domain.lane is None else place.coefficients[domain.lane]
    return AffineAccess(place.offset, place.coefficients, lane, place.divisor)


def memory_access(type: Type, places: Sequence[AffineIndex], domain: Domain) -> AffineAccess:
    """Where the element of a value of `type` at `places` lies in its memory."""
    if type.layout.axis is None:
        return linear_index(type.shape, places, domain)
    axis, width = type.layout.axis, type.layout.width
    if domain.lane is None and type.layout.in_one_block(type.shape):
        return index_access(compose_index(Affine(type.strides), places, domain.rank), domain)
    *strides, _ = row_major_strides(type.storage_shape)
    batch = places[axis]
    others = [s if d != axis else 0 for d, s in enumerate(strides)]
    rest = compose_index(Affine(tuple(others)), places, domain.rank)
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


def bounds_guard(place: AffineIndex, extent: int, domain: Domain) -> Guard | bool:
    """The guard that `place` is an index below `extent`, or the answer if all indices agree."""
    access = index_access(place, domain)
    reach = [c * (n - 1) for c, n in zip(place.coefficients, domain.extents, strict=True)]
    least = place.offset + sum(min(r, 0) for r in reach)
    most = place.offset + sum(max(r, 0) for r in reach)
    high = extent * place.divisor
    if most < 0 or least >= high:
        return False
    if least >= 0 and most < high and place.divisor == 1:
        return True
    return Guard(access, high)


def row_major_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Elements from one index to the next along each axis."""
    strides, step = [], 1
    for extent in reversed(shape):
        strides.append(step)
        step *= extent
    return tuple(reversed(strides))


def merge_axes(
    domain: Domain, accesses: Sequence[AffineAccess], kinds: Sequence[object] = ()
) -> tuple[Domain, tuple[tuple[int, ...], ...]]:
    """A domain of fewer axes that visits the same elements in the same order, and for each of its
    axes the old axes that it stands for (the last of them has the new axis's strides).

    Neighbours of one kind merge when every access steps through both as through one; axes of
    extent 1 vanish, but for the lane axis.
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
    """Loads of one register, relative to a contiguous vector load."""
    if access.lane_stride == 1:
        return 1.0
    return 0.5 if access.lane_stride == 0 else 0.5 * width
