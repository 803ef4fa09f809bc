"""The sizes that an axis has plans for, and how a call reaches one of them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from graphc.base.source_lines import error
from graphc.ir import Array, NamedType, tree
from graphc.program.program import Program
from graphc.program.tracing import type_of
from graphc.trace.sized_arguments import Sizes

if TYPE_CHECKING:  # nothing of it is needed before something is looked at
    from graphc.inspect.profile import Profile


class Buckets:
    """Sizes of a named axis; calls of sizes between them are padded up to the next one.

    A call is padded only where its results keep their bits: by a program without `update=` whose
    outputs all have the axis, and that computes row i of each from row i of its inputs alone. That
    is proved on the traced function. Elsewhere, in a loss or a training step for example, a size
    that is no bucket has a plan of its own. On a GPU the kernels of another size may add in another
    order, so that there the last bits may be those of the bucket. A size above the largest bucket
    is an error.

    Args:
        *sizes: The sizes, in any order.

    Raises:
        GraphError: There are none, or one is no positive integer.

    Example:
        >>> model = nn.Linear(3, 2)
        >>> f = graphc.compile(model, graphc.spec(("batch", 3)), batch=graphc.Buckets(1, 4, 16))
        >>> f(np.ones((5, 3), np.float32)).shape, f(np.ones((9, 3), np.float32)).shape
        ((5, 2), (9, 2))
        >>> f.sizes
        [{'batch': 16}]
    """

    def __init__(self, *sizes: int) -> None:
        fits = [
            isinstance(n, int | np.integer) and not isinstance(n, bool) and n > 0 for n in sizes
        ]
        if not sizes or not all(fits):
            got = ", ".join(map(repr, sizes)) or "nothing"
            raise error(f"Buckets: expected positive integers, got {got}")
        self.sizes = tuple(sorted({int(n) for n in sizes}))
        """In ascending order, each once."""

    def fit(self, size: int) -> int:
        """Return the smallest bucket of at least `size`, which is not above the largest."""
        return self.sizes[bisect_left(self.sizes, size)]

    def __repr__(self) -> str:
        return f"Buckets({', '.join(map(str, self.sizes))})"


def buckets_of(batch: Any, sizes: Any) -> dict[str, Buckets]:
    """Return the buckets by axis that these arguments of `compile` give, or raise GraphError."""
    given = {} if sizes is None else sizes
    if not isinstance(given, Mapping):
        raise error(f"sizes: expected a dict from names to Buckets, got {type(given).__name__}")
    if batch is not None:
        if "batch" in given:
            raise error("sizes: expected 'batch' once, got it here and as batch=")
        given = {**given, "batch": batch}
    for name, own in given.items():
        if not isinstance(own, Buckets):
            said = "batch" if own is batch else f"sizes[{name!r}]"
            raise error(f"{said}: expected graphc.Buckets(1, 2, 4), got {own!r}")
    return dict(given)


def sizes_text(sizes: Mapping[str, int]) -> str:
    """Return sizes as arguments, such as "batch=4"."""
    return ", ".join(f"{name}={size}" for name, size in sizes.items())


def kind_of(path: str, value: Any) -> Any:
    """Return the type of an argument's leaf, of whatever size."""
    return value if isinstance(value, NamedType) else type_of(path, value)


def has_names(args: Sequence[Any]) -> bool:
    """Return whether a spec among arguments of `compile` has a named axis."""
    return any(isinstance(leaf, NamedType) for _, leaf in tree.leaves(list(args)))


@dataclass(frozen=True)
class Route:
    """How a call of some sizes is computed: by a plan of these sizes, or of larger ones."""

    program: Program
    sizes: Sizes
    """Those of the program."""
    reason: str
    cuts: tuple[tuple[slice, ...], ...] = ()
    """The part of each output to return, if the call is padded."""

    def takes(self, args: Sequence[Any]) -> bool:
        """Return whether `args` are what `call` takes, without a closer look."""
        return not self.cuts and self.program._arguments.exact(args, self.program._arguments.kinds)

    def call(self, arrays: Sequence[Array]) -> Any:
        """Return the results for checked arrays, in the order of the graph's inputs."""
        results = self.program._called(self._padded(arrays))
        if not self.cuts:
            return results
        cuts = iter(self.cuts)
        return tree.map_leaves(lambda _, x: np.ascontiguousarray(x[next(cuts)]), results)

    def profiled(self, arrays: Sequence[Array], repeats: int) -> Profile:
        """Return the profile of such a call."""
        return self.program._profiled(self._padded(arrays), repeats)

    def reported(self, arrays: Sequence[Array], measure: bool) -> Any:
        """Return what a report shows, measured by such a call."""
        return self.program._report_of(self._padded(arrays), measure)

    def _padded(self, arrays: Sequence[Array]) -> Sequence[Array]:
        if not self.cuts:
            return arrays
        kinds = self.program._arguments.inputs
        return [_grown(x, t.shape) for x, (_, t) in zip(arrays, kinds, strict=True)]


def _grown(array: Array, shape: tuple[int, ...]) -> Array:
    """Return `array` up to `shape`: its last rows again, where zeros might make other NaNs."""
    if array.shape == shape:
        return array
    whole = np.empty(shape, array.dtype)
    whole[tuple(map(slice, array.shape))] = array
    for axis, (size, extent) in enumerate(zip(array.shape, shape, strict=True)):
        if size < extent:
            before = tuple(map(slice, shape[:axis]))
            behind = tuple(map(slice, array.shape[axis + 1 :]))
            last = whole[(*before, slice(size - 1, size), *behind)]
            whole[(*before, slice(size, None), *behind)] = last
    return whole
