"""Which memory the workers of a loop share out: each touches only its own of equal parts."""

from __future__ import annotations

from graphc.kernels.loops.language import Loop, Nest, walk
from graphc.kernels.program.access import AffineAccess, Domain
from graphc.kernels.program.body.statement import Address, Load, Store


def own_shares(nest: Nest, shares: int) -> frozenset[str]:
    """The memory of which the i-th of `shares` equal parts of the iterations touches only the i-th
    of as many equal parts.

    The nest is of one loop over all axes, perhaps in runs, with what is the same for all iterations
    in front. Memory that it touches under a condition, by a call or in front is not among them, nor
    are constants.
    """
    loop, size = nest.body[-1], nest.domain.size
    assert isinstance(loop, Loop) and loop.axes == tuple(range(nest.domain.rank)), f"{nest.body}"
    if not size or size % shares:
        return frozenset()
    sizes = {m.name: m.size for m in nest.memory if m.elements is None}
    touched = dict.fromkeys(sizes, True)
    for statement, around in walk(nest.body):
        plain = isinstance(statement, Load | Store) and bool(around)
        for argument in statement.arguments:
            if isinstance(argument, Address) and argument.pointer in sizes:
                whole = sizes[argument.pointer]
                own = plain and _is_own(argument.access, nest.domain, whole, shares)
                touched[argument.pointer] &= own
    return frozenset(name for name, own in touched.items() if own)


def _is_own(access: AffineAccess | None, domain: Domain, size: int, shares: int) -> bool:
    """Whether the elements of each part of the iterations lie in the same part of `size` elements.

    A part has `along` neighbouring indices of each axis: one of the first axes, all of the last.
    Those that follow along the axis belong to the part that comes `apart` parts later, and the
    access has to move by as many parts of the memory.
    """
    if access is None or access.divisor != 1 or size % shares:
        return False
    part, count, inner = size // shares, domain.size // shares, domain.size
    least = most = access.offset
    for extent, stride in zip(domain.extents, access.strides, strict=True):
        inner //= extent
        along = min(extent, max(1, count // inner))
        apart = max(1, along * inner // count)
        aligned = along * inner == apart * count and extent % along == 0
        if along < extent and (not aligned or stride * along != apart * part):
            return False
        reached = stride * (along - 1)
        least, most = least + min(0, reached), most + max(0, reached)
    return 0 <= least and most < part
