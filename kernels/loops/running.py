"""Running results in NumPy, joined in the order that a schedule states."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from graphc.ir import dtype_name
from graphc.kernels.program.body.along import Along
from graphc.ops.base import Array
from graphc.ops.prefix import Prefix

State = tuple[Array, ...]
"""What elements [rows, n] have come to: values and, for extremes, their indices along the axis."""


def along_rows(along: Along, x: Array, registers: bool) -> State:
    """The results of the elements `x` [rows, n].

    With `registers` the order is that of the op, along a last axis where `along` joins runs.
    """
    op = replace(along.op, axis=1)
    if not isinstance(op, Prefix):
        return op.reference(x)
    if registers:
        if along.by > 1:
            return op.reference(x)
        return tuple(np.swapaxes(y, 0, 1) for y in replace(op, axis=0).reference(x.T))
    length = x.shape[1]
    state: State = (x, np.broadcast_to(np.arange(length), x.shape))[: 2 if op.combine.picks else 1]
    neutral = np.asarray(op.combine.neutral_of(dtype_name(x.dtype)), x.dtype)
    carry: State = (np.full((len(x), 1), neutral), np.zeros((len(x), 1), np.int64))[: len(state)]
    made, ahead = tuple(map(np.array, state)), carry
    for runs in _pieces(along, op.reverse, length):
        total = _joined(op, along.by, state, carry, runs, made)
        _joined(op, along.by, state, ahead, runs, made)
        ahead = _join(op, ahead, total)
    return made


def _pieces(along: Along, reverse: bool, length: int) -> Iterable[list[Array]]:
    """The runs of each piece, each the indices of its elements, in the order in which they join."""
    by, pieces = along.by, along.pieces
    places = np.arange(length)[:: -1 if reverse else 1]
    for piece in range(pieces):
        own = places[length * piece // pieces : length * (piece + 1) // pieces]
        yield [own[k : k + by] for k in range(0, len(own), by)]


def _joined(
    op: Prefix, by: int, state: State, carry: State, runs: list[Array], made: State
) -> State:
    """Store into `made` what the elements of each run come to after `carry`; returns what all of
    them come to."""
    for run in runs:
        found, distance = tuple(a[:, run] for a in state), 1
        while distance < by:
            before = tuple(a[:, :-distance] for a in found)
            late = _join(op, before, tuple(a[:, distance:] for a in found))
            first = (a[:, :distance] for a in found)
            found = tuple(np.concatenate(p, 1) for p in zip(first, late, strict=True))
            distance *= 2
        found = _join(op, carry, found)
        for a, b in zip(made, found, strict=True):
            a[:, run] = b
        carry = tuple(a[:, -1:] for a in found)
    return carry


def _join(op: Prefix, a: State, b: State) -> State:
    """What the elements of `a` and then those of `b` come to: the op's own meaning, of two."""
    pair = np.stack(np.broadcast_arrays(a[0], b[0]))
    value, *picked = (y[-1] for y in replace(op, axis=0, reverse=False).reference(pair))
    return (value, *(np.where(p == 1, b[1], a[1]) for p in picked))
