"""Cross-entropy of a linear layer, without all its logits in memory at once."""

from __future__ import annotations

import math

from graphc.functions.array.elementwise.precision import giving_float32
from graphc.functions.array.loops import scan
from graphc.functions.array.shape.shapes import concat, reshape
from graphc.functions.array.tensors import as_tensor, cast, error, floating
from graphc.functions.network.contraction import linear
from graphc.functions.network.losses.labels import losses_of
from graphc.functions.network.losses.reducing import reduced
from graphc.ir import FLOATS, NARROW, TensorLike
from graphc.trace import Tensor, current_builder
from graphc.trace.mixed import in_precision

CHUNK_LOGITS = 1 << 26
"""Logits that are in memory at a time, at most, where nothing is asked for: 256 MB of float32. A
choice: fewer would read and write the weights' gradient more often."""


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
    """Compute cross_entropy(linear(input, linear_weight, linear_bias), target) in chunks of rows.

    A loop holds the logits of `chunk` rows at a time; its gradient computes them again. Results do
    not depend on threads or streams, but gradients are summed chunk by chunk.

    Args:
        input: The features [..., features].
        linear_weight: The weight of the layer [c, features].
        target: Classes [...], integers; or a probability per class [..., c].
        linear_bias: The bias of the layer [c].
        weight: A weight per class [c].
        reduction: "mean", "sum" or "none", which returns [...].
        ignore_index: The label that is left out; None leaves out none.
        label_smoothing: The share of probability that is spread over all classes.
        chunk: The number of rows; by default as many as take 256 MB in float32, without a loop if
            those are all.

    Raises:
        GraphError: The shapes do not fit, or `chunk` is no number of rows.

    Example:
        >>> x, w = np.zeros((4, 3), np.float32), np.zeros((2, 3), np.float32)
        >>> loss = graphc.compile(lambda: graphc.linear_cross_entropy(x, w, [0, 1, 1, 0]))
        >>> print(loss().round(4))
        0.6931
    """
    return _of_products(
        current_builder().mixed,
        input,
        linear_weight,
        target,
        linear_bias,
        weight,
        reduction,
        ignore_index,
        label_smoothing,
        chunk,
    )


@giving_float32
def _of_products(
    mixed: str,
    input: TensorLike,
    linear_weight: TensorLike,
    target: TensorLike,
    linear_bias: TensorLike | None,
    weight: TensorLike | None,
    reduction: str,
    ignore_index: int | None,
    label_smoothing: float,
    chunk: int | None,
) -> Tensor:
    """The same, with products of the two-byte dtype `mixed` unless that is ""."""
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
        with in_precision(current_builder(), mixed):
            logits = linear(x, linear_weight, linear_bias)
        logits = cast(logits, "f32") if mixed and logits.dtype in NARROW else logits
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
