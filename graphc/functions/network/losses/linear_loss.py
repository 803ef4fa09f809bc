"""The loss of a linear layer's logits, which need not be in memory as a whole."""

from __future__ import annotations

import math

from graphc.functions.array.elementwise.precision import in_float32
from graphc.functions.array.loops import scan
from graphc.functions.array.shape.shapes import concat, reshape
from graphc.functions.array.tensors import as_tensor, error, floating
from graphc.functions.network.contraction import linear
from graphc.functions.network.losses.labels import losses_of
from graphc.functions.network.losses.reducing import reduced
from graphc.ir import FLOATS, TensorLike
from graphc.trace import Tensor

CHUNK_LOGITS = 1 << 26
"""Logits that are in memory at a time, at most, where nothing is asked for: 256 MB of float32. A
choice: fewer would read and write the weights' gradient more often."""


@in_float32
def linear_cross_entropy(
    input: TensorLike,
    linear_weight: TensorLike,
    target: TensorLike,
    linear_bias: TensorLike | None = None,
    weight: TensorLike | None = None,
    reduction: str = "mean",
    ignore_index: int | None = -100,
    label_smoothing: float = 0.0,
    chunk: int | None = None,
) -> Tensor:
    """cross_entropy(linear(input, linear_weight, linear_bias), target, ...) of `input`
    [..., features], `linear_weight` [c, features], `linear_bias` [c] and `target` [...] (class
    numbers) or [..., c] (a probability per class).

    Logits of `chunk` rows at a time are in memory, by a loop over the rows whose gradient computes
    them again; by default so many that they take 256 MB as float32, and no loop where all of them
    take less. `reduction` "none" gives [...]. Bits do not depend on threads or streams, but sums of
    gradients are added chunk by chunk.
    """
    x, w, labels = floating(input), as_tensor(linear_weight), as_tensor(target)
    if w.ndim != 2 or not x.ndim:
        raise error(
            "linear_cross_entropy: expected input [..., features] and a weight [c, features], got "
            f"{x.value.type} and {w.value.type}"
        )
    rows, classes = math.prod(x.shape[:-1]), w.shape[0]
    soft = labels.dtype in FLOATS
    if labels.shape != (*x.shape[:-1], *((classes,) if soft else ())):
        raise error(
            f"linear_cross_entropy: input {x.value.type} and target {labels.value.type} do not fit"
        )
    if chunk is not None and (isinstance(chunk, bool) or not isinstance(chunk, int) or chunk < 1):
        raise error(f"linear_cross_entropy: chunk expected a number of rows, got {chunk!r}")
    length = _length(rows, classes) if chunk is None else chunk
    flat = reshape(x, (rows, x.shape[-1]))
    wanted = reshape(labels, (rows, *((classes,) if soft else ())))

    def some(x: Tensor, target: Tensor) -> list[Tensor]:
        """The loss of each row and, where rows count differently, what it counts."""
        logits = linear(x, linear_weight, linear_bias)
        found = losses_of(
            "linear_cross_entropy", logits, target, weight, ignore_index, label_smoothing
        )
        return [t for t in found if t is not None]

    whole, parts = rows // length, []
    if whole > 1 or (whole and rows % length):
        end = whole * length
        pieces = tuple(reshape(t[:end], (whole, length, *t.shape[1:])) for t in (flat, wanted))
        _, stacks = scan(lambda carry, both: (carry, some(*both)), (), pieces, recompute=True)
        parts.append([reshape(t, (end,)) for t in stacks])
        flat, wanted = flat[end:], wanted[end:]
    if flat.shape[0] or not parts:
        parts.append(some(flat, wanted))
    each = [reshape(concat(list(t)), x.shape[:-1]) for t in zip(*parts, strict=True)]
    return reduced("linear_cross_entropy", each[0], reduction, each[1] if each[1:] else None)


def _length(rows: int, classes: int) -> int:
    """Rows of a chunk: as many as are to be in memory, or fewer that leave no rest."""
    most = max(CHUNK_LOGITS // max(classes, 1), 1)
    return next((n for n in range(most, most // 2, -1) if rows % n == 0), most)
