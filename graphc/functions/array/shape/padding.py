"""Padding."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeGuard

from graphc import ops
from graphc.functions.array.shape.shapes import broadcast_to, concat, flip
from graphc.functions.array.tensors import as_tensor, error, is_integer, part
from graphc.ir import TensorLike
from graphc.trace import Tensor, emit


def pad(
    x: TensorLike, widths: int | Sequence[Sequence[int]], value: float = 0.0, mode: str = "constant"
) -> Tensor:
    """Add elements around a tensor.

    Args:
        x: The input.
        widths: (before, after) for each axis, or one number for all sides.
        value: The value of the new elements in mode "constant".
        mode: "constant"; "reflect" mirrors the elements without repeating the edge, "replicate"
            repeats the edge, "circular" takes those of the opposite end.

    Raises:
        GraphError: The mode is unknown or the widths do not fit.

    Example:
        >>> graphc.compile(lambda: graphc.pad([1, 2, 3], [(2, 1)], mode="reflect"))()
        array([3, 2, 1, 2, 3, 2])
    """
    tensor = as_tensor(x)
    pairs = _pairs(widths, tensor)
    if mode != "constant":
        return _from_within(tensor, pairs, mode)
    low, high = tuple(p[0] for p in pairs), tuple(p[1] for p in pairs)
    return emit(ops.Pad(low, high, (0,) * tensor.ndim, value), tensor)


def _pairs(widths: object, x: Tensor) -> list[tuple[int, int]]:
    """Return (before, after) of each axis of x, or raise GraphError.

    A single pair is an error: in PyTorch it would be that of the last axis.
    """
    given = [(widths, widths)] * x.ndim if _is_width(widths) else widths
    pairs = [tuple(p) for p in given] if _holds_sequences(given) else []
    if len(pairs) != x.ndim or any(len(p) != 2 or not all(map(_is_width, p)) for p in pairs):
        raise error(
            f"pad: expected a pair of non-negative widths for each axis of {x.value.type}, "
            f"or one number, got {pairs or widths}"
        )
    return [(int(before), int(after)) for before, after in pairs]


def _is_width(value: object) -> TypeGuard[int]:
    return is_integer(value) and value >= 0


def _holds_sequences(value: object) -> TypeGuard[Iterable[Sequence[int]]]:
    return isinstance(value, Iterable) and all(hasattr(v, "__len__") for v in value)


def _from_within(tensor: Tensor, widths: Sequence[tuple[int, ...]], mode: str) -> Tensor:
    """`pad` with its elements from the tensor."""
    if mode not in ("reflect", "replicate", "circular"):
        raise error(
            f'pad: mode expected "constant", "reflect", "replicate" or "circular", got {mode!r}'
        )
    for axis, (before, after) in enumerate(widths):
        extent = tensor.shape[axis]
        most = {"reflect": extent - 1, "circular": extent}.get(mode, max(before, after))
        if max(before, after) > most or (not extent and before + after):
            raise error(
                f'pad: mode="{mode}" adds at most {most} elements to axis {axis} of '
                f"{tensor.value.type}, got {(before, after)}"
            )
        parts = _around(tensor, axis, before, after, mode)
        tensor = concat([p for p in parts if p.shape[axis]], axis) if before + after else tensor
    return tensor


def _around(x: Tensor, axis: int, before: int, after: int, mode: str) -> tuple[Tensor, ...]:
    extent = x.shape[axis]
    if mode == "circular":
        return part(x, axis, extent - before, extent), x, part(x, axis, 0, after)
    if mode == "reflect":
        low, high = part(x, axis, 1, before + 1), part(x, axis, extent - 1 - after, extent - 1)
        return flip(low, axis), x, flip(high, axis)
    shape = list(x.shape)
    edges = []
    for start, count in ((0, before), (extent - 1, after)):
        shape[axis] = count
        edges.append(broadcast_to(part(x, axis, start, start + 1), tuple(shape)))
    return edges[0], x, edges[1]
