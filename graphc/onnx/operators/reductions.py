"""Operators that combine elements along axes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from graphc import functions as f
from graphc.onnx.operators.rules import axes_from, highest, is_float, lowest, operator
from graphc.trace import Tensor

Axes = tuple[int, ...]


def _sum(x: Tensor, axes: Axes) -> Tensor:
    return f.astype(f.sum(x, axes, keepdims=True), x.dtype)


def _mean(x: Tensor, axes: Axes) -> Tensor:
    return f.astype(f.mean(x if is_float(x) else f.astype(x, "f64"), axes, keepdims=True), x.dtype)


def _prod(x: Tensor, axes: Axes) -> Tensor:
    return f.astype(f.prod(x, axes, keepdims=True), x.dtype)


def _extreme(
    function: Callable[..., Tensor], neutral: Callable[[str], float]
) -> Callable[[Tensor, Axes], Tensor]:
    def reduction(x: Tensor, axes: Axes) -> Tensor:
        if any(x.shape[a] == 0 for a in axes):
            shape = [1 if a in axes else n for a, n in enumerate(x.shape)]
            return f.broadcast_to(f.as_tensor(neutral(x.dtype), x.dtype), shape)
        if x.dtype == "bool":
            return f.astype(function(f.astype(x, "u8"), axes, keepdims=True), "bool")
        return function(x, axes, keepdims=True)

    return reduction


def _l1(x: Tensor, axes: Axes) -> Tensor:
    return _sum(f.abs(x), axes)


def _l2(x: Tensor, axes: Axes) -> Tensor:
    total = _sum(f.square(x if is_float(x) else f.astype(x, "f64")), axes)
    return f.astype(f.sqrt(total), x.dtype)


def _sum_square(x: Tensor, axes: Axes) -> Tensor:
    return _sum(f.square(x), axes)


def _log_sum(x: Tensor, axes: Axes) -> Tensor:
    return f.astype(f.log(_sum(x if is_float(x) else f.astype(x, "f64"), axes)), x.dtype)


def _log_sum_exp(x: Tensor, axes: Axes) -> Tensor:
    if any(x.shape[a] == 0 for a in axes):
        return _log_sum(x, axes)
    floats = x if is_float(x) else f.astype(x, "f64")
    return f.astype(f.logsumexp(floats, axes, keepdims=True), x.dtype)


_REDUCTIONS: dict[str, Callable[[Tensor, Axes], Tensor]] = {
    "ReduceL1": _l1,
    "ReduceL2": _l2,
    "ReduceLogSum": _log_sum,
    "ReduceLogSumExp": _log_sum_exp,
    "ReduceMax": _extreme(f.max, lowest),
    "ReduceMean": _mean,
    "ReduceMin": _extreme(f.min, highest),
    "ReduceProd": _prod,
    "ReduceSum": _sum,
    "ReduceSumSquare": _sum_square,
}


def _rule(reduction: Callable[[Tensor, Axes], Tensor]) -> Callable[..., Tensor]:
    def rule(x: Tensor, axes: Any = None, keepdims: int = 1, noop_with_empty_axes: int = 0) -> Any:
        found = axes_from(axes, x.ndim) or []
        if not found and noop_with_empty_axes:
            # Along no axis; what is done to each element still is.
            return f.reshape(reduction(f.expand_dims(x, 0), (0,)), x.shape)
        reduced = tuple(sorted(found)) or tuple(range(x.ndim))
        y = reduction(x, reduced) if reduced else reduction(f.reshape(x, (1,)), (0,))
        kept = tuple(n for a, n in enumerate(y.shape) if a not in reduced)
        return f.reshape(y, kept) if not keepdims or not reduced else y

    return rule


for _name, _reduction in _REDUCTIONS.items():
    operator(_name, static="axes")(_rule(_reduction))


def _place(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def rule(x: Tensor, axis: int = 0, keepdims: int = 1, select_last_index: int = 0) -> Tensor:
        if not select_last_index:
            return function(x, axis, keepdims=bool(keepdims))
        found = function(f.flip(x, axis), axis, keepdims=bool(keepdims))
        return f.subtract(x.shape[axis] - 1, found)

    return rule


operator("ArgMax")(_place(f.argmax))
operator("ArgMin")(_place(f.argmin))


@operator("GlobalAveragePool")
def global_average_pool(x: Tensor) -> Tensor:
    return f.mean(x, tuple(range(2, x.ndim)), keepdims=True)


@operator("GlobalMaxPool")
def global_max_pool(x: Tensor) -> Tensor:
    return f.max(x, tuple(range(2, x.ndim)), keepdims=True)


@operator("GlobalLpPool")
def global_lp_pool(x: Tensor, p: int = 2) -> Tensor:
    total = f.sum(f.pow(f.abs(x), p), tuple(range(2, x.ndim)), keepdims=True)
    return f.pow(total, 1 / p)
