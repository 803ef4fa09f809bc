"""Compute functions of f16 and bf16 tensors in f32, with one rounding at the end.

An op rounds its result to the dtype of its operands. A function of several ops that PyTorch
computes in one kernel, such as softmax, a normalization or a loss, must not round in between.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from graphc import ops
from graphc.functions.array.tensors import as_tensor, cast, operands, promoted, promoted_dtype
from graphc.ir import NARROW, TensorLike, tree
from graphc.ir.state import StateBuffer
from graphc.ops.base import Op
from graphc.trace import Tensor, current_builder, emit, innermost_builder
from graphc.trace.mixed import in_precision

P = ParamSpec("P")
T = TypeVar("T")


def in_float32(function: Callable[P, T]) -> Callable[P, T]:
    """Decorate a function to take f16 and bf16 arguments as f32 and round its results back.

    Arguments called `running_...` are state and stay as they are.
    """
    return _in_float32(function, keeps=False)


def giving_float32(function: Callable[P, T]) -> Callable[P, T]:
    """Decorate a function as `in_float32`; with mixed precision its results stay f32."""
    return _in_float32(function, keeps=True)


def of_products(function: Callable[P, T]) -> Callable[P, T]:
    """Decorate a function of (x, weight, ...) to take these two as `factors` of a product."""

    @functools.wraps(function)
    def narrow(*args: P.args, **kwargs: P.kwargs) -> T:
        if not current_builder().mixed:
            return function(*args, **kwargs)
        pair: Any = (*args[:2], *(kwargs[name] for name in ("x", "weight") if name in kwargs))
        rest = {name: value for name, value in kwargs.items() if name not in ("x", "weight")}
        call: Callable[..., T] = function
        return call(*factors(*pair), *args[2:], **rest)

    return narrow


def _in_float32(function: Callable[P, T], keeps: bool) -> Callable[P, T]:
    names = function.__code__.co_varnames

    @functools.wraps(function)
    def wide(*args: P.args, **kwargs: P.kwargs) -> T:
        found: set[str] = set()

        def widened(name: str, x: object) -> Any:
            dtype = getattr(x, "dtype", None)
            if dtype not in NARROW or not _is_traced(x) or name.startswith("running_"):
                return x
            found.add(dtype)
            return cast(as_tensor(x), "f32")

        arguments = [widened(name, x) for name, x in zip(names, args, strict=False)]
        arguments += args[len(arguments) :]
        settings = {name: widened(name, x) for name, x in kwargs.items()}
        builder = innermost_builder()
        mixed = builder is not None and builder.mixed
        with in_precision(builder, ""):
            result = function(*arguments, **settings)
        if len(found) != 1 or (keeps and mixed):
            return result
        (dtype,) = found

        def narrowed(_: str, x: object) -> object:
            return cast(x, dtype) if isinstance(x, Tensor) and x.dtype == "f32" else x

        narrow: T = tree.map_leaves(narrowed, result)
        return narrow

    return wide


def biased(product: Callable[[Tensor, Tensor], Tensor], x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    """Return product(x, w) plus the bias `b`; f16 and bf16 are summed in f32 and rounded once."""
    builder = current_builder()
    fits = b.dtype == x.dtype or (builder.mixed and b.dtype in ("f32", *NARROW))
    if x.dtype not in NARROW or not fits:
        return emit(ops.Add(), *promoted(product(x, w), b))
    with in_precision(builder, ""):
        wide = product(cast(x, "f32"), cast(w, "f32"))
    return cast(emit(ops.Add(), wide, cast(b, "f32")), x.dtype)


def with_bias(y: Tensor, b: Tensor) -> Tensor:
    """Return y + b; with mixed precision a bias does not decide on the dtype of the sum."""
    total = emit(ops.Add(), *promoted(y, b))
    return cast(total, y.dtype) if current_builder().mixed and y.dtype in NARROW else total


def factors(*arguments: TensorLike) -> list[Tensor]:
    """Return the operands of a product: `promoted`, with mixed precision in its two-byte dtype.

    Integers, f64, and operands that all have two bytes stay as they are.
    """
    narrow = current_builder().mixed
    found = operands(*arguments)
    if not narrow or promoted_dtype(found) != "f32":
        return promoted(*arguments)
    return [cast(as_tensor(x, "f32") if not isinstance(x, Tensor) else x, narrow) for x in found]


def _is_traced(x: object) -> bool:
    return isinstance(x, Tensor) or isinstance(getattr(x, "state", None), StateBuffer)


def scaled(op: Op, x1: TensorLike, x2: TensorLike) -> Tensor:
    """Emit `op` on promoted arguments, keeping the digits of numbers next to f16 and bf16.

    Where a number or a wider scalar meets f16 or bf16, the op is computed in f32 and its result
    rounded, as in PyTorch.
    """
    found = operands(x1, x2)
    dtype = promoted_dtype(found)
    wider = (not isinstance(x, Tensor) or x.dtype in ("f32", "f64") for x in found)
    if dtype not in NARROW or not any(wider):
        return emit(op, *promoted(*found))
    a, b = (cast(x, "f32") if isinstance(x, Tensor) else as_tensor(x, "f32") for x in found)
    return cast(emit(op, a, b), dtype)
