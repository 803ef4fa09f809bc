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
from graphc.trace import Tensor, emit

P = ParamSpec("P")
T = TypeVar("T")


def in_float32(function: Callable[P, T]) -> Callable[P, T]:
    """Decorate a function to take f16 and bf16 arguments as f32 and round its results back.

    Arguments called `running_...` are state and stay as they are.
    """
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
        result = function(*arguments, **settings)
        if len(found) != 1:
            return result
        (dtype,) = found

        def narrowed(_: str, x: object) -> object:
            return cast(x, dtype) if isinstance(x, Tensor) and x.dtype == "f32" else x

        narrow: T = tree.map_leaves(narrowed, result)
        return narrow

    return wide


def biased(product: Callable[[Tensor, Tensor], Tensor], x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    """Return product(x, w) plus the bias `b`; f16 and bf16 are summed in f32 and rounded once."""
    if x.dtype not in NARROW or b.dtype != x.dtype:
        return emit(ops.Add(), *promoted(product(x, w), b))
    wide = product(cast(x, "f32"), cast(w, "f32"))
    return cast(emit(ops.Add(), wide, cast(b, "f32")), x.dtype)


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
