"""Reductions over axes, with the names and arguments of the Python Array API."""

from __future__ import annotations

import math

from graphc import ops
from graphc.functions.array.averages import average, biased_variance
from graphc.functions.array.elementwise.elementwise import (
    abs,
    equal,
    isnan,
    logical_or,
    multiply,
    not_equal,
    pow,
    sqrt,
    square,
    where,
)
from graphc.functions.array.elementwise.precision import giving_float32
from graphc.functions.array.shape.shapes import reshape
from graphc.functions.array.tensors import (
    Axes,
    as_tensor,
    axes_of,
    axis_of,
    cast,
    error,
    summable,
)
from graphc.functions.array.values_alone import values_alone
from graphc.ir import FLOATS, DTypeLike, TensorLike
from graphc.trace import Tensor, emit


def sum(
    x: TensorLike, axis: Axes = None, dtype: DTypeLike | None = None, keepdims: bool = False
) -> Tensor:
    """Sum over axes; the sum of no elements is 0.

    Args:
        x: The input.
        axis: The axis or axes to reduce; None reduces all.
        dtype: The dtype of the sum; by default that of floats, and i64 for integers and booleans.
        keepdims: Whether to keep the reduced axes, with size 1.

    Example:
        >>> graphc.compile(lambda: graphc.sum([[1, 2], [3, 4]], axis=1))()
        array([3, 7])
    """
    tensor = summable(x, dtype)
    return emit(ops.Sum(axes_of("sum", axis, tensor), keepdims), tensor)


def prod(
    x: TensorLike, axis: Axes = None, dtype: DTypeLike | None = None, keepdims: bool = False
) -> Tensor:
    """Multiply over axes; the product of no elements is 1.

    Args:
        x: The input.
        axis: The axis or axes to reduce; None reduces all.
        dtype: The dtype of the product; by default that of floats, and i64 for integers and
            booleans.
        keepdims: Whether to keep the reduced axes, with size 1.

    Example:
        >>> graphc.compile(lambda: graphc.prod([[1, 2], [3, 4]], axis=0))()
        array([3, 8])
    """
    tensor = summable(x, dtype)
    return emit(ops.Prod(axes_of("prod", axis, tensor), keepdims), tensor)


def count_nonzero(x: TensorLike, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """Count the elements that are not 0, as i64.

    Args:
        x: The input.
        axis: The axis or axes to reduce; None reduces all.
        keepdims: Whether to keep the reduced axes, with size 1.

    Example:
        >>> graphc.compile(lambda: graphc.count_nonzero([[0, 2], [3, 4]], axis=0))()
        array([1, 2])
    """
    return sum(cast(as_tensor(x), "bool"), axis, keepdims=keepdims)


@giving_float32
def norm(x: TensorLike, ord: float = 2, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """Return the vector norm over axes: (sum of |x|^ord)^(1 / ord).

    Args:
        x: The input, floats.
        ord: The order; inf and -inf give the largest and smallest magnitude, 0 the number of
            elements that are not 0.
        axis: The axis or axes to reduce; None reduces all.
        keepdims: Whether to keep the reduced axes, with size 1.

    Raises:
        GraphError: `x` holds no floats.

    Example:
        >>> graphc.compile(lambda: graphc.norm([3.0, 4.0]))()
        array(5., dtype=float32)
    """
    tensor = _floats("norm", x)
    if ord == math.inf:
        return max(abs(tensor), axis, keepdims)
    if ord == -math.inf:
        return min(abs(tensor), axis, keepdims)
    if ord == 0:
        return cast(count_nonzero(tensor, axis, keepdims), tensor.dtype)
    if ord == 1:
        return sum(abs(tensor), axis, keepdims=keepdims)
    if ord == 2:
        return _root(sum(square(tensor), axis, keepdims=keepdims))
    # The powers of 0 have no slope, or one of NaN, and neither has the root: PyTorch takes 0.
    size = abs(tensor)
    origin = equal(size, 0)
    powers = where(origin, 0.0 if ord > 0 else math.inf, pow(where(origin, 1, size), ord))
    total = sum(powers, axis, keepdims=keepdims)
    nothing = equal(total, 0)
    root = pow(where(nothing, 1, total), 1 / ord)
    return where(nothing, 0.0 if ord > 0 else math.inf, root)


def _root(x: Tensor) -> Tensor:
    """The square root, through which no gradient flows at 0, where it has no slope."""
    nothing = equal(x, 0)
    return where(nothing, 0, sqrt(where(nothing, 1, x)))


@giving_float32
def mean(x: TensorLike, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """Average over axes; the mean of no elements is NaN.

    Args:
        x: The input, floats.
        axis: The axis or axes to reduce; None reduces all.
        keepdims: Whether to keep the reduced axes, with size 1.

    Raises:
        GraphError: `x` holds no floats.

    Example:
        >>> graphc.compile(lambda: graphc.mean([[1.0, 2.0], [3.0, 6.0]], axis=0))()
        array([2., 4.], dtype=float32)
    """
    tensor = _floats("mean", x)
    return average(tensor, axes_of("mean", axis, tensor), keepdims)


def max(x: TensorLike, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """Return the largest element over axes; NaN if any element is NaN.

    Unlike PyTorch's, it gives the values alone; `argmax` gives indices. Equal elements share the
    gradient.

    Args:
        x: The input.
        axis: The axis or axes to reduce; None reduces all.
        keepdims: Whether to keep the reduced axes, with size 1.

    Example:
        >>> graphc.compile(lambda: graphc.max([[1, 5], [3, 4]], axis=1))()
        array([5, 4])
    """
    return _extreme("max", ops.Max, x, axis, keepdims)


def min(x: TensorLike, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """Return the smallest element over axes; NaN if any element is NaN.

    Unlike PyTorch's, it gives the values alone; `argmin` gives indices. Equal elements share the
    gradient.

    Args:
        x: The input.
        axis: The axis or axes to reduce; None reduces all.
        keepdims: Whether to keep the reduced axes, with size 1.

    Example:
        >>> graphc.compile(lambda: graphc.min([[1, 5], [3, 4]], axis=1))()
        array([1, 3])
    """
    return _extreme("min", ops.Min, x, axis, keepdims)


def _extreme(
    name: str, op: type[ops.Max] | type[ops.Min], x: TensorLike, axis: Axes, keepdims: bool
) -> Tensor:
    tensor = as_tensor(x)
    numbers = cast(tensor, "i32") if tensor.dtype == "bool" else tensor
    found = cast(emit(op(axes_of(name, axis, tensor), keepdims), numbers), tensor.dtype)
    return values_alone(found, name, axis)


@giving_float32
def var(
    x: TensorLike, axis: Axes = None, correction: float = 0.0, keepdims: bool = False
) -> Tensor:
    """Return the variance over axes: the sum of (x - mean)^2 divided by (count - correction).

    Args:
        x: The input, floats.
        axis: The axis or axes to reduce; None reduces all.
        correction: What is subtracted from the number of elements; 1 gives the unbiased estimate.
        keepdims: Whether to keep the reduced axes, with size 1.

    Raises:
        GraphError: `x` holds no floats, or there are no more than `correction` elements.

    Example:
        >>> graphc.compile(lambda: graphc.var([1.0, 2.0, 3.0], correction=1))()
        array(1., dtype=float32)
    """
    tensor = _floats("var", x)
    axes = axes_of("var", axis, tensor)
    count = math.prod(tensor.shape[a] for a in axes)
    if count <= correction:
        raise error(
            f"var: {count} elements along axes {axes} of {tensor.value.type} "
            f"are not more than correction={correction}"
        )
    biased = biased_variance(tensor, average(tensor, axes, keepdims=True), axes)
    unbiased = biased if not correction else multiply(biased, count / (count - correction))
    return unbiased if keepdims else sum(unbiased, axes)


@giving_float32
def std(
    x: TensorLike, axis: Axes = None, correction: float = 0.0, keepdims: bool = False
) -> Tensor:
    """Return the standard deviation over axes: the square root of `var`.

    The gradient where the deviation is 0 is 0.

    Args:
        x: The input, floats.
        axis: The axis or axes to reduce; None reduces all.
        correction: What is subtracted from the number of elements; 1 gives the unbiased variance.
        keepdims: Whether to keep the reduced axes, with size 1.

    Raises:
        GraphError: `x` holds no floats, or there are no more than `correction` elements.

    Example:
        >>> graphc.compile(lambda: graphc.std([2.0, 4.0]))()
        array(1., dtype=float32)
    """
    return _root(var(x, axis, correction, keepdims))


def any(x: TensorLike, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """Return whether any element over axes is not 0; false for no elements.

    Args:
        x: The input.
        axis: The axis or axes to reduce; None reduces all.
        keepdims: Whether to keep the reduced axes, with size 1.

    Example:
        >>> graphc.compile(lambda: graphc.any([[False, True], [False, False]], axis=1))()
        array([ True, False])
    """
    tensor = as_tensor(x)
    flags = cast(cast(tensor, "bool"), "i32")
    largest = max if _has_elements("any", tensor, axis) else sum
    return not_equal(largest(flags, axis, keepdims=keepdims), 0)


def all(x: TensorLike, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """Return whether all elements over axes are not 0; true for no elements.

    Args:
        x: The input.
        axis: The axis or axes to reduce; None reduces all.
        keepdims: Whether to keep the reduced axes, with size 1.

    Example:
        >>> graphc.compile(lambda: graphc.all([[True, True], [True, False]], axis=1))()
        array([ True, False])
    """
    tensor = as_tensor(x)
    flags = cast(cast(tensor, "bool"), "i32")
    smallest = min if _has_elements("all", tensor, axis) else prod
    return not_equal(smallest(flags, axis, keepdims=keepdims), 0)


def _has_elements(name: str, x: Tensor, axis: Axes) -> bool:
    return math.prod(x.shape[a] for a in axes_of(name, axis, x)) > 0


def argmax(x: TensorLike, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """Return the index of the largest element along an axis, or of the first NaN.

    Args:
        x: The input.
        axis: The axis to search; None searches all elements in row-major order.
        keepdims: Whether to keep the reduced axes, with size 1.

    Returns:
        Indices, i64; the first of equal elements.

    Example:
        >>> graphc.compile(lambda: graphc.argmax([[1, 5], [7, 4]], axis=1))()
        array([1, 0])
    """
    return _first("argmax", x, axis, keepdims)


def argmin(x: TensorLike, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """Return the index of the smallest element along an axis, or of the first NaN.

    Args:
        x: The input.
        axis: The axis to search; None searches all elements in row-major order.
        keepdims: Whether to keep the reduced axes, with size 1.

    Returns:
        Indices, i64; the first of equal elements.

    Example:
        >>> graphc.compile(lambda: graphc.argmin([[1, 5], [7, 4]], axis=1))()
        array([0, 1])
    """
    return _first("argmin", x, axis, keepdims)


def _first(name: str, x: TensorLike, axis: int | None, keepdims: bool) -> Tensor:
    tensor = as_tensor(x)
    if axis is None or not tensor.ndim:
        axes_of(name, axis, tensor)
        found = _first(name, reshape(tensor, -1), 0, False)
        return reshape(found, (1,) * tensor.ndim) if keepdims else found
    place = axis_of(name, axis, tensor)
    extent = tensor.shape[place]
    shape = tuple(extent if a == place else 1 for a in range(tensor.ndim))
    extreme = (max if name == "argmax" else min)(tensor, place, keepdims=True)
    found = equal(tensor, extreme)
    if tensor.dtype in FLOATS:
        found = logical_or(found, isnan(tensor))
    ramp = emit(ops.Iota(shape, place, "i64"))
    return min(where(found, ramp, extent), place, keepdims)


def _floats(name: str, x: TensorLike) -> Tensor:
    tensor = as_tensor(x)
    if tensor.dtype not in FLOATS:
        raise error(f"{name}: expected floats, got {tensor.value.type}")
    return tensor
