"""Statistics and differences along axes, counts of places."""

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
    """The sum over `axis` of the elements that are not NaN; dtypes as of `sum`."""
    tensor = as_tensor(x)
    known = where(isnan(tensor), 0, tensor) if tensor.dtype in FLOATS else tensor
    return sum(known, axis, dtype, keepdims)


def nanmean(x: TensorLike, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The mean over `axis` of the floats that are not NaN; NaN where all are."""
    tensor = as_tensor(x)
    count = sum(cast(logical_not(isnan(tensor)), tensor.dtype), axis, keepdims=keepdims)
    return divide(nansum(tensor, axis, keepdims=keepdims), count)


def aminmax(x: TensorLike, axis: Axes = None, keepdims: bool = False) -> tuple[Tensor, Tensor]:
    """The smallest and the largest element over `axis`, NaN if any is."""
    return min(x, axis, keepdims), max(x, axis, keepdims)


def var_mean(
    x: TensorLike, axis: Axes = None, correction: float = 0.0, keepdims: bool = False
) -> tuple[Tensor, Tensor]:
    """`var` and `mean` over `axis`."""
    return var(x, axis, correction, keepdims), mean(x, axis, keepdims)


def std_mean(
    x: TensorLike, axis: Axes = None, correction: float = 0.0, keepdims: bool = False
) -> tuple[Tensor, Tensor]:
    """`std` and `mean` over `axis`."""
    return std(x, axis, correction, keepdims), mean(x, axis, keepdims)


def diff(
    x: TensorLike,
    n: int = 1,
    axis: int = -1,
    prepend: TensorLike | None = None,
    append: TensorLike | None = None,
) -> Tensor:
    """Each element along `axis` less the one before it, n times over; `prepend` and `append` are
    put around x first."""
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
    """The integral of y along `axis` by trapezoids, between places x or at distances dx."""
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
    """The integrals of y along `axis` from its first element to each later one; as `trapezoid`."""
    return cumsum(_trapezoids("cumulative_trapezoid", y, x, dx, axis), axis)


def bincount(x: TensorLike, weights: TensorLike | None = None, minlength: int = 0) -> Tensor:
    """[minlength] with how many elements of x [n] (integers) are 0, 1, ...: i64; or with the sums
    of their `weights` [n]. Larger elements are not counted: shapes are static."""
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
    """[bins] with how many elements of x lie in each of `bins` equal parts of [min, max], in the
    dtype of x; others are not counted."""
    if not min < max:
        raise error(f"histc: expected min below max, got {min} and {max}")
    tensor = reshape(floating(x), -1)
    inside = logical_and(greater_equal(tensor, min), less_equal(tensor, max))
    part = floor(multiply(subtract(where(inside, tensor, min), min), bins / (max - min)))
    place = where(inside, cast(clip(part, 0, bins - 1), "i32"), -1)
    return emit(ops.TakeGrad(0, bins), place, cast(inside, tensor.dtype))


def cov(x: TensorLike, correction: float = 1.0) -> Tensor:
    """[v, v]: the covariances of the v variables whose n values are the rows of x [v, n]."""
    tensor = floating(x)
    if tensor.ndim != 2:
        raise error(f"cov: expected x of 2 axes, got {tensor.value.type}")
    centred = subtract(tensor, mean(tensor, 1, keepdims=True))
    product = matmul(centred, matrix_transpose(centred))
    return multiply(product, 1 / (tensor.shape[1] - correction))


def corrcoef(x: TensorLike) -> Tensor:
    """[v, v]: the covariances of `cov` over the products of the standard deviations, between -1
    and 1."""
    covariance = cov(x)
    size = sqrt(diagonal(covariance))
    ratio = divide(divide(covariance, expand_dims(size, 1)), size)
    return clip(ratio, -1, 1)
