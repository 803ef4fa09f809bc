"""Convert and check the arguments of functions: tensors, dtypes of results, axes, shapes."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TypeGuard

import numpy as np

from graphc.base.dlpack import host_array
from graphc.base.dtypes import array_of, convert
from graphc.base.errors import GraphError
from graphc.base.source_lines import error as error
from graphc.ir import DTYPES, FLOATS, DTypeLike, TensorLike, dtype_name
from graphc.ir.state import StateBuffer
from graphc.ops.constant import Constant
from graphc.ops.pointwise.logic import Cast
from graphc.trace import Operand, Tensor, current_builder, emit

Scalar = bool | int | float
Axes = int | Sequence[int] | None
Shape = int | Sequence[int]
# fmt: off
_RANK = {"bool": 0, "u8": 1, "i8": 1, "i32": 2, "i64": 3, "f16": 4, "bf16": 4, "f32": 5, "f64": 6}
# fmt: on
_ABOVE_BOTH = {frozenset({"u8", "i8"}): "i32", frozenset({"f16", "bf16"}): "f32"}
"""Two dtypes of one rank, neither of which holds the other's numbers."""


def as_tensor(x: object, dtype: str | None = None) -> Tensor:
    """Return `x` as a tensor: itself, the contents of a parameter, or a constant.

    Args:
        x: A tensor, parameter, Python number, nested list of numbers, or anything with `__array__`.
        dtype: The dtype of a constant made from a number or list; by default f32, i64 or bool.

    Raises:
        GraphError: `x` is nothing of the kind.

    Example:
        >>> graphc.compile(lambda: graphc.as_tensor([1, 2]))()
        array([1, 2])
    """
    if isinstance(x, Operand):
        return x.contents(current_builder())
    state = getattr(x, "state", None)
    if isinstance(state, StateBuffer):
        return current_builder().contents(state)
    if hasattr(x, "__array__"):
        array = host_array(x, "constant")
        return emit(Constant.of(array if dtype is None else convert(array, DTYPES[dtype])))
    if isinstance(x, bool | int | float):
        return _scalar(x, dtype or scalar_dtype(x))
    if isinstance(x, list | tuple) and x and not any(isinstance(e, Tensor) for e in x):
        array = np.asarray(x)
        if array.dtype.kind in "bif":
            return emit(Constant.of(array.astype(np.float32) if array.dtype.kind == "f" else array))
    raise error(f"expected a tensor, a parameter, an array or a number, got {type(x).__name__}")


def is_scalar(x: object) -> TypeGuard[float]:
    """Return whether `x` is a number that adopts the dtype of the tensors it meets."""
    return isinstance(x, bool | int | float | np.generic)


def is_integer(x: object) -> TypeGuard[int]:
    """Return whether `x` is a Python or NumPy integer, but not a boolean."""
    return isinstance(x, int | np.integer) and not isinstance(x, bool)


def scalar_dtype(x: object) -> str:
    """Return the dtype of a Python number that meets no tensor."""
    if isinstance(x, bool | np.bool_):
        return "bool"
    return "i64" if isinstance(x, int | np.integer) else "f32"


def _scalar(x: Scalar, dtype: str) -> Tensor:
    try:
        return emit(Constant.of(array_of(x, DTYPES[dtype])))
    except OverflowError:
        raise error(f"the number {x} does not fit {dtype}") from None


def promoted(*arguments: TensorLike) -> list[Tensor]:
    """Return all arguments as tensors of one dtype, that of `torch.result_type`.

    The dtype comes from tensors with axes, then from scalars, then from Python numbers; the later
    groups count only where they are of a higher kind (boolean, integer, float).
    """
    found = operands(*arguments)
    dtype = promoted_dtype(found)
    return [
        cast(x, dtype) if isinstance(x, Tensor) else _scalar(np.asarray(x).item(), dtype)
        for x in found
    ]


def operands(*arguments: TensorLike) -> list[Tensor | float]:
    """Return the arguments as tensors, except numbers, which have no dtype of their own."""
    return [x if is_scalar(x) else as_tensor(x) for x in arguments]


def promoted_dtype(operands: Sequence[Tensor | float]) -> str:
    """Return the dtype that `promoted` gives to tensors and numbers."""
    tensors = [x for x in operands if isinstance(x, Tensor)]
    return result_dtype(
        [t.dtype for t in tensors if t.ndim],
        [t.dtype for t in tensors if not t.ndim],
        [scalar_dtype(x) for x in operands if not isinstance(x, Tensor)],
    )


def result_dtype(*classes: Sequence[str]) -> str:
    """Return the dtype of a result from its operands' dtypes, most important class first."""
    return _result_dtype(*map(tuple, classes))


@functools.lru_cache(maxsize=1024)
def _result_dtype(*classes: tuple[str, ...]) -> str:
    found = ""
    for dtypes in classes:
        for highest in _joined(dtypes):
            found = highest if not found or _kind(highest) > _kind(found) else found
    return found


def _joined(dtypes: Sequence[str]) -> list[str]:
    """The dtype that holds all of these, if there are any."""
    if not dtypes:
        return []
    top = max(_RANK[dtype] for dtype in dtypes)
    highest = frozenset(dtype for dtype in dtypes if _RANK[dtype] == top)
    return [_ABOVE_BOTH.get(highest) or next(iter(highest))]


def _kind(dtype: str) -> int:
    return 2 if dtype in FLOATS else int(dtype != "bool")


def cast(x: Tensor, dtype: str) -> Tensor:
    """Convert a tensor to `dtype`; return it unchanged if it has that dtype."""
    return x if x.dtype == dtype else emit(Cast(dtype), x)


def astype(x: TensorLike, dtype: DTypeLike) -> Tensor:
    """Convert a tensor to another dtype.

    Floats are truncated towards zero when they become integers. Conversion to bool gives x != 0.

    Args:
        x: The input.
        dtype: A name such as "float32" or "f32", or a NumPy dtype.

    Raises:
        GraphError: The dtype is unknown.

    Example:
        >>> graphc.compile(lambda: graphc.astype([1.7, -1.7], "int32"))()
        array([ 1, -1], dtype=int32)
    """
    return cast(as_tensor(x), dtype_of(dtype))


def dtype_of(dtype: DTypeLike) -> str:
    """Return the short name of `dtype`, or raise GraphError."""
    try:
        return dtype_name(dtype)
    except GraphError as unknown:
        raise error(str(unknown)) from None


def floating(x: TensorLike) -> Tensor:
    """Return `x` as a tensor of a float dtype; integers and booleans become f32."""
    tensor = as_tensor(x)
    return tensor if tensor.dtype in FLOATS else cast(tensor, "f32")


def axis_of(name: str, axis: object, x: Tensor, extra: int = 0) -> int:
    """Return `axis` counted from the front, or raise GraphError.

    `extra` is the number of axes that the result has more than x.
    """
    rank = x.ndim + extra
    if not isinstance(axis, int | np.integer) or isinstance(axis, bool):
        raise error(f"{name}: an axis is an integer, got {axis!r}")
    if not -rank <= axis < rank:
        raise error(f"{name}: axis {axis} is out of range for x {x.value.type}")
    return int(axis) % rank


def axes_of(name: str, axis: Axes, x: Tensor) -> tuple[int, ...]:
    """Return axes counted from the front and sorted, or raise GraphError; None is all of them.

    As in PyTorch, a scalar has an axis 0 or -1 of size 1.
    """
    if axis is None:
        return tuple(range(x.ndim))
    items = axis if isinstance(axis, Sequence) else (axis,)
    if not x.ndim and len(items) <= 1 and all(type(a) is int and a in (0, -1) for a in items):
        return ()
    axes = sorted(axis_of(name, a, x) for a in items)
    if len(set(axes)) != len(axes):
        raise error(f"{name}: axis {tuple(items)} names an axis of x {x.value.type} twice")
    return tuple(axes)


def shape_of(name: str, shape: Shape) -> tuple[int, ...]:
    """Return `shape` as a tuple of integers that are not negative, or raise GraphError."""
    extents = tuple(shape) if isinstance(shape, Sequence) else (shape,)
    for extent in extents:
        if not isinstance(extent, int | np.integer) or isinstance(extent, bool) or extent < 0:
            raise error(f"{name}: a shape holds non-negative integers, got {shape!r}")
    return tuple(int(e) for e in extents)


def summable(x: TensorLike, dtype: DTypeLike | None) -> Tensor:
    """Return `x` in the dtype to sum in: `dtype`, else its own if that is a float, else i64."""
    tensor = as_tensor(x)
    if dtype is not None:
        return cast(tensor, dtype_of(dtype))
    return tensor if tensor.dtype in FLOATS else cast(tensor, "i64")


def part(x: Tensor, axis: int, start: int | None, stop: int | None, step: int = 1) -> Tensor:
    """Return the elements from index `start` up to `stop` along `axis`."""
    return x[(*(slice(None),) * axis, slice(start, stop, step))]
