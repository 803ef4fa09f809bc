"""Connectionist temporal classification (Graves et al., ICML 2006)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from graphc import ops
from graphc.functions.array.creation import full_like
from graphc.functions.array.cumulative import cumsum
from graphc.functions.array.elementwise.elementwise import (
    add,
    divide,
    equal,
    exp,
    less,
    log,
    logical_and,
    logical_or,
    maximum,
    minimum,
    multiply,
    negative,
    not_equal,
    subtract,
    where,
)
from graphc.functions.array.elementwise.precision import giving_float32
from graphc.functions.array.indexing.gathering import take_along_axis
from graphc.functions.array.loops import scan
from graphc.functions.array.reductions import max, sum
from graphc.functions.array.shape.rearrange import roll
from graphc.functions.array.shape.shapes import broadcast_to, expand_dims, reshape
from graphc.functions.array.tensors import as_tensor, cast, error, floating
from graphc.functions.network.losses.reducing import reduced
from graphc.ir import INTEGERS, TensorLike
from graphc.trace import Tensor, emit
from graphc.trace.index_bounds import expect_below

NEVER = -1e30
"""The logarithm of the probability of what cannot be. Finite, so that gradients are numbers."""

Lengths = TensorLike | Sequence[int]


@giving_float32
def ctc_loss(
    log_probs: TensorLike,
    targets: TensorLike,
    input_lengths: Lengths,
    target_lengths: Lengths,
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> Tensor:
    """Connectionist temporal classification loss.

    It is the negative logarithm of the probability of all paths, one class per step, that spell the
    target once repetitions and then blanks are removed. The gradient is that with respect to
    `log_probs`. PyTorch adds exp(log_probs) to it, which makes no difference after log_softmax.

    Args:
        log_probs: Logarithms of probabilities [t, n, c] or [t, c], such as `log_softmax` gives.
        targets: Classes [n, s], or those of all samples one after another.
        input_lengths: The number of steps of each sample [n].
        target_lengths: The number of classes of each target [n].
        blank: The class that stands for no class.
        reduction: "mean" of loss / max(length of target, 1), "sum", or "none", which returns [n].
        zero_infinity: Whether a target that no path spells gives 0 instead of infinity; its
            gradient is 0 anyway.

    Raises:
        GraphError: The shapes do not fit or `blank` is no class.

    Example:
        >>> steps = np.log(np.full((2, 1, 2), 0.5, np.float32))
        >>> loss = graphc.compile(lambda: graphc.ctc_loss(steps, [[1]], [2], [1], reduction="sum"))
        >>> print(loss().round(4))
        0.2877
    """
    x = floating(log_probs)
    single = x.ndim == 2
    x = expand_dims(x, 1) if single else x
    if x.ndim != 3:
        raise error(f"ctc_loss: expected log_probs [t, n, c] or [t, c], got {x.value.type}")
    _, count, classes = x.shape
    if isinstance(blank, bool) or not isinstance(blank, int) or not 0 <= blank < classes:
        raise error(f"ctc_loss: blank expected one of {classes} classes, got {blank!r}")
    times, sizes = (
        _lengths(name, given, count)
        for name, given in (("input_lengths", input_lengths), ("target_lengths", target_lengths))
    )
    labels = _labels(targets, sizes, count, single)
    expect_below("ctc_loss", labels, classes)
    losses = _losses(x, _between_blanks(labels, blank), times, sizes, blank)
    impossible = less(-NEVER / 2, losses)
    losses = where(impossible, 0.0 if zero_infinity else math.inf, losses)
    if reduction == "mean":
        losses = divide(losses, cast(maximum(sizes, 1), losses.dtype))
    return reduced("ctc_loss", reshape(losses, ()) if single else losses, reduction)


def _lengths(name: str, given: Lengths, count: int) -> Tensor:
    """i32[count]."""
    tensor = as_tensor(np.asarray(given) if isinstance(given, (tuple, list)) else given)
    if tensor.dtype not in INTEGERS or tensor.size != count:
        raise error(f"ctc_loss: {name} expected {count} integers, got {tensor.value.type}")
    return cast(reshape(tensor, (count,)), "i32")


def _labels(targets: TensorLike, sizes: Tensor, count: int, single: bool) -> Tensor:
    """i32[count, s]; what is behind the length of a target is any of its labels."""
    tensor = as_tensor(targets)
    if tensor.dtype not in INTEGERS or not 1 <= tensor.ndim <= 2:
        raise error(f"ctc_loss: targets expected integers [n, s] or [s], got {tensor.value.type}")
    labels = cast(tensor, "i32")
    if labels.ndim == 2 or single:
        labels = reshape(labels, (1, *labels.shape)) if labels.ndim == 1 else labels
        if labels.shape[0] != count:
            raise error(
                f"ctc_loss: targets expected {count} rows, as log_probs has, "
                f"got {tensor.value.type}"
            )
        return labels
    size = labels.shape[0]
    if not size:
        return reshape(labels, (1, 0)) if count == 1 else broadcast_to(labels, (count, 0))
    first = expand_dims(subtract(cumsum(sizes, 0), sizes), 1)
    places = minimum(add(first, emit(ops.Iota((1, size), 1, "i32"))), size - 1)
    return take_along_axis(broadcast_to(labels, (count, size)), places, 1)


def _between_blanks(labels: Tensor, blank: int) -> Tensor:
    """[n, 2 s + 1]: blank, label, blank, label, ..., blank."""
    count, size = labels.shape
    places = np.arange(2 * size + 1)
    is_label = as_tensor(places % 2 == 1)
    if not size:
        return full_like(emit(ops.Iota((count, 1), 1, "i32")), blank)
    chosen = as_tensor(np.broadcast_to(np.minimum(places // 2, size - 1), (count, len(places))))
    spread = take_along_axis(labels, cast(chosen, "i32"), 1)
    return where(is_label, spread, blank)


def _losses(x: Tensor, symbols: Tensor, times: Tensor, sizes: Tensor, blank: int) -> Tensor:
    """[n]: minus the logarithm of each target's probability; at least -NEVER / 2 where it is 0."""
    steps, count, _ = x.shape
    length = symbols.shape[1]
    places = emit(ops.Iota((1, length), 1, "i32"))
    spoken = broadcast_to(expand_dims(symbols, 0), (steps, count, length))
    emitted = maximum(take_along_axis(x, spoken, 2), NEVER)
    fresh = not_equal(symbols, roll(symbols, 2, 1))
    skips = logical_and(logical_and(not_equal(symbols, blank), fresh), less(1, places))

    def shifted(alpha: Tensor, by: int, allowed: Tensor) -> Tensor:
        return where(allowed, roll(alpha, by, 1), NEVER)

    def step(carry: tuple[Tensor, Tensor], now: Tensor) -> tuple[tuple[Tensor, Tensor], None]:
        alpha, number = carry
        ways = alpha, shifted(alpha, 1, less(0, places)), shifted(alpha, 2, skips)
        most = maximum(maximum(ways[0], ways[1]), ways[2])
        first, second, third = (exp(subtract(way, most)) for way in ways)
        together = add(most, log(add(add(first, second), third)))
        moved = maximum(add(together, now), NEVER)
        begun = where(less(places, 2), now, NEVER)
        new = where(equal(number, 0), begun, moved)
        new = where(expand_dims(less(number, times), 1), new, alpha)
        return (new, add(number, 1)), None

    start = where(equal(places, 0), 0.0, broadcast_to(as_tensor(NEVER, x.dtype), (count, length)))
    (alpha, _), _ = scan(step, (start, as_tensor(np.int32(0))), emitted)
    ends = expand_dims(multiply(sizes, 2), 1)
    last = logical_or(equal(places, ends), equal(places, subtract(ends, 1)))
    final = where(last, alpha, NEVER)
    most = max(final, 1, keepdims=True)
    total = log(sum(exp(subtract(final, most)), 1))
    return negative(add(reshape(most, (count,)), total))
