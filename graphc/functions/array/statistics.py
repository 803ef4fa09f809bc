"""Statistics, differences and integrals along axes, and histograms."""

from __future__ import annotations

from graphc import ops
from graphc.functions.array.cumulative import cumsum
from graphc.functions.array.elementwise.elementwise import (
    add,
    clip,
    divide,
    floor,
    greater_equal,
    isnan,
    less_equal,
    logical_and,
    logical_not,
    multiply,
    sqrt,
    subtract,
    where,
)
from graphc.functions.array.indexing.indices import checked_indices
from graphc.functions.array.linear.matrix_product import matmul
from graphc.functions.array.reductions import max, mean, min, std, sum, var
from graphc.functions.array.shape.rearrange import diagonal
from graphc.functions.array.shape.shapes import concat, expand_dims, matrix_transpose, reshape
from graphc.functions.array.tensors import Axes, as_tensor, axis_of, cast, error, floating, part
from graphc.ir import FLOATS, DTypeLike, TensorLike
from graphc.trace import Tensor, emit


def nansum(
    x: TensorLike, axis: Axes = None, dtype: DTypeLike | None = None, keepdims: bool = False
) -> Tensor:
    """Sum the elements that are not NaN over axes.

    Args:
        x: The input.
        axis: The axis or axes to reduce; None reduces all.
        dtype: The dtype of the sum, as in `sum`.
        keepdims: Whether to keep the reduced axes, with size 1.

    Example:
        >>> graphc.compile(lambda: graphc.nansum([1.0, np.nan, 2.0]))()
        array(3., dtype=float32)
    """
    tensor = as_tensor(x)
    known = where(isnan(tensor), 0, tensor) if tensor.dtype in FLOATS else tensor
    return sum(known, axis, dtype, keepdims)


def nanmean(x: TensorLike, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """Average the elements that are not NaN over axes; NaN if all are.

    Args:
        x: The input, floats.
        axis: The axis or axes to reduce; None reduces all.
        keepdims: Whether to keep the reduced axes, with size 1.

    Example:
        >>> graphc.compile(lambda: graphc.nanmean([1.0, np.nan, 2.0]))()
        array(1.5, dtype=float32)
    """
    tensor = as_tensor(x)
    count = sum(cast(logical_not(isnan(tensor)), tensor.dtype), axis, keepdims=keepdims)
    return divide(nansum(tensor, axis, keepdims=keepdims), count)


def aminmax(x: TensorLike, axis: Axes = None, keepdims: bool = False) -> tuple[Tensor, Tensor]:
    """Return the smallest and the largest element over axes; NaN if any element is NaN.

    Args:
        x: The input.
        axis: The axis or axes to reduce; None reduces all.
        keepdims: Whether to keep the reduced axes, with size 1.

    Example:
        >>> graphc.compile(lambda: graphc.aminmax([3, 1, 2]))()
        (array(1), array(3))
    """
    return min(x, axis, keepdims), max(x, axis, keepdims)


def var_mean(
    x: TensorLike, axis: Axes = None, correction: float = 0.0, keepdims: bool = False
) -> tuple[Tensor, Tensor]:
    """Return the variance and the mean over axes.

    Args:
        x: The input, floats.
        axis: The axis or axes to reduce; None reduces all.
        correction: What is subtracted from the number of elements, as in `var`.
        keepdims: Whether to keep the reduced axes, with size 1.

    Example:
        >>> graphc.compile(lambda: graphc.var_mean([1.0, 3.0]))()
        (array(1., dtype=float32), array(2., dtype=float32))
    """
    return var(x, axis, correction, keepdims), mean(x, axis, keepdims)


def std_mean(
    x: TensorLike, axis: Axes = None, correction: float = 0.0, keepdims: bool = False
) -> tuple[Tensor, Tensor]:
    """Return the standard deviation and the mean over axes.

    Args:
        x: The input, floats.
        axis: The axis or axes to reduce; None reduces all.
        correction: What is subtracted from the number of elements, as in `var`.
        keepdims: Whether to keep the reduced axes, with size 1.

    Example:
        >>> graphc.compile(lambda: graphc.std_mean([1.0, 3.0]))()
        (array(1., dtype=float32), array(2., dtype=float32))
    """
    return std(x, axis, correction, keepdims), mean(x, axis, keepdims)


def diff(
    x: TensorLike,
    n: int = 1,
    axis: int = -1,
    prepend: TensorLike | None = None,
    append: TensorLike | None = None,
) -> Tensor:
    """Return the differences of neighbouring elements along an axis: x[i + 1] - x[i].

    Args:
        x: The input.
        n: How many times to take differences.
        axis: The axis along which to take differences.
        prepend: Elements to put before `x` along the axis first.
        append: Elements to put after `x` along the axis first.

    Example:
        >>> graphc.compile(lambda: graphc.diff([1, 4, 9]))()
        array([3, 5])
    """
    parts = [p for p in (prepend, x, append) if p is not None]
    tensor = concat(parts, axis) if len(parts) > 1 else as_tensor(x)
    place = axis_of("diff", axis, tensor)
    for _ in range(n):
        later, earlier = part(tensor, place, 1, None), part(tensor, place, None, -1)
        differ = ops.NotEqual() if tensor.dtype == "bool" else ops.Subtract()
        tensor = emit(differ, later, earlier)
    return tensor


def trapezoid(
    y: TensorLike, x: TensorLike | None = None, dx: float = 1.0, axis: int = -1
) -> Tensor:
    """Integrate along an axis by the trapezoidal rule.

    Args:
        y: The values of the function.
        x: The points at which the values are taken; without it they are `dx` apart.
        dx: The distance between two points.
        axis: The axis to integrate along.

    Example:
        >>> graphc.compile(lambda: graphc.trapezoid([1.0, 2.0, 3.0]))()
        array(4., dtype=float32)
    """
    return sum(_trapezoids("trapezoid", y, x, dx, axis), axis)


def _trapezoids(name: str, y: TensorLike, x: TensorLike | None, dx: float, axis: int) -> Tensor:
    """The integral between each two neighbours along `axis`."""
    tensor = floating(y)
    place = axis_of(name, axis, tensor)
    both = add(part(tensor, place, 1, None), part(tensor, place, None, -1))
    if x is None:
        return multiply(both, dx / 2)
    places = as_tensor(x)
    if places.ndim == 1:
        places = reshape(places, (-1, *(1,) * (tensor.ndim - 1 - place)))
        return multiply(multiply(both, diff(places, axis=0)), 0.5)
    return multiply(multiply(both, diff(places, axis=place)), 0.5)


def cumulative_trapezoid(
    y: TensorLike, x: TensorLike | None = None, dx: float = 1.0, axis: int = -1
) -> Tensor:
    """Integrate from the first point to each later one by the trapezoidal rule.

    Args:
        y: The values of the function.
        x: The points at which the values are taken; without it they are `dx` apart.
        dx: The distance between two points.
        axis: The axis to integrate along; it is shorter by one in the result.

    Example:
        >>> graphc.compile(lambda: graphc.cumulative_trapezoid([1.0, 2.0, 3.0]))()
        array([1.5, 4. ], dtype=float32)
    """
    return cumsum(_trapezoids("cumulative_trapezoid", y, x, dx, axis), axis)


def bincount(x: TensorLike, weights: TensorLike | None = None, minlength: int = 0) -> Tensor:
    """Count how often each of the integers 0, ..., `minlength` - 1 occurs in a vector.

    Integers of `minlength` or more are not counted, since shapes are static.

    Args:
        x: Integers [n], not negative.
        weights: What each element counts [n]; by default 1.
        minlength: The length of the result.

    Returns:
        Counts i64 [minlength], or sums of `weights` in their dtype.

    Raises:
        GraphError: `minlength` is no positive integer, or the shapes do not fit.

    Example:
        >>> graphc.compile(lambda: graphc.bincount([0, 2, 2], minlength=4))()
        array([1, 0, 2, 0])
    """
    if not isinstance(minlength, int) or minlength < 1:
        raise error(f"bincount: minlength expected the length of the result, got {minlength!r}")
    places = checked_indices("bincount", x, minlength)
    if weights is None:
        ones = emit(ops.BroadcastTo(places.shape), as_tensor(1, "i64"))
        return emit(ops.TakeGrad(0, minlength), places, ones)
    amounts = as_tensor(weights)
    if places.ndim != 1 or amounts.shape != places.shape:
        raise error(
            f"bincount: x {places.value.type} and weights {amounts.value.type} must have one axis "
            "and one shape"
        )
    return emit(ops.TakeGrad(0, minlength), places, amounts)


def histc(x: TensorLike, bins: int, min: float, max: float) -> Tensor:
    """Count the elements that lie in each of `bins` equal parts of [min, max].

    Args:
        x: The values; those outside the range are not counted.
        bins: The number of parts.
        min: The lower end of the range.
        max: The upper end of the range.

    Returns:
        Counts [bins] in the dtype of `x`.

    Raises:
        GraphError: `min` is not below `max`.

    Example:
        >>> graphc.compile(lambda: graphc.histc([0.5, 1.5, 1.6], bins=2, min=0.0, max=2.0))()
        array([1., 2.], dtype=float32)
    """
    if not min < max:
        raise error(f"histc: expected min below max, got {min} and {max}")
    tensor = reshape(floating(x), -1)
    inside = logical_and(greater_equal(tensor, min), less_equal(tensor, max))
    part = floor(multiply(subtract(where(inside, tensor, min), min), bins / (max - min)))
    place = where(inside, cast(clip(part, 0, bins - 1), "i32"), -1)
    return emit(ops.TakeGrad(0, bins), place, cast(inside, tensor.dtype))


def cov(x: TensorLike, correction: float = 1.0) -> Tensor:
    """Return the covariance matrix of variables.

    Args:
        x: One variable per row: [variables, samples].
        correction: What is subtracted from the number of samples; 1 gives the unbiased estimate.

    Returns:
        A matrix [variables, variables].

    Raises:
        GraphError: `x` is not a matrix.

    Example:
        >>> graphc.compile(lambda: graphc.cov([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]]))()
        array([[ 1., -1.],
               [-1.,  1.]], dtype=float32)
    """
    tensor = floating(x)
    if tensor.ndim != 2:
        raise error(f"cov: expected x of 2 axes, got {tensor.value.type}")
    centred = subtract(tensor, mean(tensor, 1, keepdims=True))
    product = matmul(centred, matrix_transpose(centred))
    return multiply(product, 1 / (tensor.shape[1] - correction))


def corrcoef(x: TensorLike) -> Tensor:
    """Return the matrix of Pearson correlation coefficients of variables.

    Args:
        x: One variable per row: [variables, samples].

    Returns:
        A matrix [variables, variables] of numbers between -1 and 1.

    Example:
        >>> graphc.compile(lambda: graphc.corrcoef([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]]))()
        array([[ 1., -1.],
               [-1.,  1.]], dtype=float32)
    """
    covariance = cov(x)
    size = sqrt(diagonal(covariance))
    ratio = divide(divide(covariance, expand_dims(size, 1)), size)
    return clip(ratio, -1, 1)
