"""associative_scan: running results of an associative function in a logarithmic number of steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from graphc.functions.array.looping import at, difference
from graphc.functions.array.shape.shapes import concat, flip, reshape, stack
from graphc.functions.array.tensors import as_tensor, error
from graphc.ir import tree
from graphc.trace import Tensor


def associative_scan(
    fn: Callable[[Any, Any], Any], elems: Any, reverse: bool = False, axis: int = 0
) -> Any:
    """Return running results y[t] = fn(y[t - 1], x[t]) of an associative function.

    It takes about 2 log2(n) steps, each on many elements at once, and about twice the work of a
    loop; elements are joined in another order, so that results differ in rounding.

    Args:
        fn: A function of two trees like `elems`, with any extent of the axis, that joins element t
            of the first with element t of the second. It is associative:
            `fn(fn(a, b), c) = fn(a, fn(b, c))`.
        elems: A tensor, or tuples, lists and dicts of tensors, of one size n along the axis.
        reverse: Whether to run from the last element to the first: y[t] = fn(y[t + 1], x[t]).
        axis: The axis.

    Returns:
        y, of the structure, shapes and dtypes of `elems`; y[0] is x[0].

    Raises:
        GraphError: The tensors have no such axis or not one size along it, or `fn` returns another
            structure, shape or dtype.

    Example:
        >>> def join(a, b):  # of the recurrence h[t] = f[t] h[t - 1] + x[t]
        ...     return a[0] * b[0], b[0] * a[1] + b[1]
        ...
        >>> h = lambda f, x: graphc.associative_scan(join, (f, x))[1]
        >>> specs = graphc.spec(3), graphc.spec(3)
        >>> graphc.compile(h, *specs)(np.full(3, 0.5, np.float32), np.ones(3, np.float32))
        array([1.  , 1.5 , 1.75], dtype=float32)
    """
    tensors = tree.map_leaves(lambda _, leaf: as_tensor(leaf), elems)
    sizes = set()
    for path, leaf in tree.leaves(tensors):
        if not -leaf.ndim <= axis < leaf.ndim:
            raise error(f"associative_scan: {leaf.value.type}{at(path)} has no axis {axis}")
        sizes.add(leaf.shape[axis])
    if len(sizes) > 1:
        shown = ", ".join(f"{path} {leaf.value.type}" for path, leaf in tree.leaves(tensors))
        raise error(f"associative_scan: expected one size along axis {axis}, got {shown}")
    running = _Running(fn, axis)
    if reverse:
        return running.flipped(running.results(running.flipped(tensors)))
    return running.results(tensors)


class _Running:
    """Running results of trees of tensors along an axis."""

    def __init__(self, fn: Callable[[Any, Any], Any], axis: int) -> None:
        self.fn, self.axis = fn, axis

    def results(self, x: Any) -> Any:
        """Join neighbours, find the results of half as many, and from them those between."""
        size = next((leaf.shape[self.axis] for _, leaf in tree.leaves(x)), 0)
        if size < 2:
            return x
        pairs = self.joined(self.part(x, slice(0, size - 1, 2)), self.part(x, slice(1, None, 2)))
        odd = self.results(pairs)
        rest = self.part(x, slice(2, None, 2))
        if size == 2:
            even = self.part(x, slice(0, 1))
        else:
            before = self.part(odd, slice(0, (size - 1) // 2))
            even = self.both(self.part(x, slice(0, 1)), self.joined(before, rest))
        return self.interleaved(even, odd)

    def joined(self, a: Any, b: Any) -> Any:
        """Return `fn(a, b)`, or raise GraphError unless it is like `b`."""
        found = tree.map_leaves(lambda _, leaf: as_tensor(leaf), self.fn(a, b))
        if (differs := difference(b, found)) is not None:
            place, want, got = differs
            raise error(
                f"associative_scan: expected the function to return {want}{place}, got {got}"
            )
        return found

    def part(self, x: Any, places: slice) -> Any:
        """Return these places along the axis."""

        def of(_: str, leaf: Tensor) -> Tensor:
            before = self.axis % leaf.ndim
            return leaf[(*(slice(None),) * before, places)]

        return tree.map_leaves(of, x)

    def both(self, a: Any, b: Any) -> Any:
        """Return the elements of `a`, then those of `b`."""
        return _pairwise(lambda x, y: concat([x, y], axis=self.axis % x.ndim), a, b)

    def interleaved(self, even: Any, odd: Any) -> Any:
        """Return even[0], odd[0], even[1], ...; there may be one more of the even ones."""
        return _pairwise(self._interleaved, even, odd)

    def _interleaved(self, even: Tensor, odd: Tensor) -> Tensor:
        axis, count = self.axis % odd.ndim, odd.shape[self.axis]
        first = self.part(even, slice(0, count))
        shape = (*odd.shape[:axis], 2 * count, *odd.shape[axis + 1 :])
        mixed = reshape(stack([first, odd], axis=axis + 1), shape)
        if even.shape[axis] == count:
            return mixed
        return concat([mixed, self.part(even, slice(count, None))], axis=axis)

    def flipped(self, x: Any) -> Any:
        """Return the elements in the other direction."""
        return tree.map_leaves(lambda _, leaf: flip(leaf, self.axis), x)


def _pairwise(function: Callable[[Tensor, Tensor], Tensor], a: Any, b: Any) -> Any:
    others = iter([leaf for _, leaf in tree.leaves(b)])
    return tree.map_leaves(lambda _, leaf: function(leaf, next(others)), a)
