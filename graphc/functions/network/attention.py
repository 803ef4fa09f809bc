"""Scaled dot-product attention."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from graphc import ops
from graphc.functions.array import reductions
from graphc.functions.array.elementwise.elementwise import equal, where
from graphc.functions.array.elementwise.precision import factors, in_float32
from graphc.functions.array.linear.matrix_product import matmul
from graphc.functions.array.shape.rearrange import repeat
from graphc.functions.array.shape.shapes import broadcast_to, permute_dims, reshape
from graphc.functions.array.tensors import as_tensor, cast, error, floating, promoted
from graphc.functions.network.dropouts import dropout
from graphc.functions.network.scores import scores
from graphc.functions.network.softmax import softmax
from graphc.ir import NARROW, TensorLike
from graphc.trace import Tensor, current_builder

MOST_FEATURES = 256
"""Of a head, for the op: with more, the weights lie in memory as a whole."""


def scaled_dot_product_attention(
    query: TensorLike,
    key: TensorLike,
    value: TensorLike,
    attn_mask: TensorLike | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Compute attention: softmax(query @ key^T * scale + mask) @ value.

    A query that attends to no key gives zeros. f16 and bf16 are computed in f32, except that the
    softmax is rounded to the dtype before it multiplies `value`.

    Args:
        query: Queries [..., t, e].
        key: Keys [..., u, e].
        value: Values [..., u, d].
        attn_mask: Booleans that are true where attention is allowed, or numbers to add to the
            scores; it broadcasts with [..., t, u].
        dropout_p: The probability with which a weight is dropped, in training and evaluation alike.
        is_causal: Whether position i attends to positions up to i only.
        scale: The factor of the scores; by default 1 / sqrt(e).
        enable_gqa: Whether key and value may have fewer heads (axis -3) than query, each of which
            serves a group of query heads.

    Returns:
        A tensor [..., t, d].

    Raises:
        GraphError: The shapes do not fit, or `dropout_p` is no probability.

    Example:
        >>> q, k, v = (np.ones((1, 2, n, 4), np.float32) for n in (3, 5, 5))
        >>> graphc.compile(lambda: graphc.scaled_dot_product_attention(q, k, v))().shape
        (1, 2, 3, 4)
    """
    if current_builder().mixed:
        query, key, value = factors(query, key, value)
    dtypes = {getattr(x, "dtype", None) for x in (query, key, value)}
    rounded = str(dtypes.pop()) if len(dtypes) == 1 and dtypes <= {*NARROW} else ""
    return _attention(
        query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa, rounded
    )


@in_float32
def _attention(
    query: TensorLike,
    key: TensorLike,
    value: TensorLike,
    attn_mask: TensorLike | None,
    dropout_p: float,
    is_causal: bool,
    scale: float | None,
    enable_gqa: bool,
    rounded: str,
) -> Tensor:
    """Of f32 or f64, with weights `rounded` as the op does."""
    name = "scaled_dot_product_attention"
    q, k, v = (floating(x) for x in promoted(query, key, value))
    if min(q.ndim, k.ndim, v.ndim) < 2 or q.shape[-1] != k.shape[-1] or k.shape[-2] != v.shape[-2]:
        raise error(
            f"{name}: expected query [..., t, e], key [..., u, e] and value [..., u, d], "
            f"got {_types(q, k, v)}"
        )
    number = not isinstance(dropout_p, bool) and isinstance(dropout_p, int | float)
    if not number or not 0 <= dropout_p <= 1:
        raise error(f"{name}: dropout_p expected a probability from 0 to 1, got {dropout_p!r}")
    operands = [q, k, v]
    if attn_mask is not None:
        mask = as_tensor(attn_mask)
        operands.append(mask if mask.dtype == "bool" else cast(mask, q.dtype))
    inputs, leading = _aligned(name, operands, enable_gqa)
    shape = (*leading, q.shape[-2], v.shape[-1])
    if 0 in (*shape, k.shape[-2]) or dropout_p == 1:
        return broadcast_to(as_tensor(np.zeros((), q.value.type.numpy_dtype)), shape)
    # A kernel of attention reads keys for a tile of queries; one alone would pay for all of it.
    single = q.shape[-2] == 1 and not (dropout_p or rounded or is_causal)
    inputs = _as_rows(inputs) if single else inputs
    if single or q.shape[-1] == 0 or max(q.shape[-1], v.shape[-1]) > MOST_FEATURES:
        q, k, v, *masks = inputs
        return reshape(_composed(q, k, v, masks, float(dropout_p), is_causal, scale), shape)
    factor = float(1 / math.sqrt(q.shape[-1]) if scale is None else scale)
    op, builder = ops.Attention(bool(is_causal), factor, rounded=rounded), current_builder()
    if dropout_p:
        seed, place, counter = builder.random_key()
        op = replace(op, dropout=float(dropout_p), seed=seed, number=place)
        inputs.append(counter)
    y, _ = builder.emit(op, *inputs)
    n, t, h, d = y.shape
    heads_first = reshape(y, (n, 1, t, d)) if h == 1 else permute_dims(y, (0, 2, 1, 3))
    return reshape(heads_first, shape)


def _types(*tensors: Tensor) -> str:
    *first, last = (str(t.value.type) for t in tensors)
    return f"{', '.join(first)} and {last}"


def _aligned(
    name: str, operands: Sequence[Tensor], grouped: bool
) -> tuple[list[Tensor], tuple[int, ...]]:
    """Return query, key, value and mask as the op takes them, and the leading axes of the result.

    The op takes [n, heads, ...].
    """
    most = max(2, *(x.ndim for x in operands))
    flat = most < 4 and not grouped  # the batch is all that leads: one head each
    tensors = []
    for x in operands:
        shape = (1,) * (2 - x.ndim) + x.shape
        shape = (*shape[:-2], 1, *shape[-2:]) if flat else shape
        tensors.append(reshape(x, (1,) * (max(most, 4) - len(shape)) + shape))
    q, k, v, *mask = tensors
    groups = [x.shape[-3] for x in (k, v)]
    try:
        batch = np.broadcast_shapes(*(x.shape[:-3] for x in tensors))
        same = (q, *mask) if grouped else tensors
        (h,) = np.broadcast_shapes(*(x.shape[-3:-2] for x in same))
        if any(m not in (1, n) for x in mask for m, n in _ends(x, q, k)):
            raise ValueError
    except ValueError:
        raise error(f"{name}: shapes do not broadcast: {_types(*operands)}") from None
    if grouped and (groups[0] != groups[1] or not groups[0] or h % groups[0]):
        raise error(
            f"{name}: enable_gqa expected a multiple of equal heads of key and value for query, "
            f"got {h}, {groups[0]} and {groups[1]}"
        )
    g = groups[0] if grouped or groups == [1, 1] else h
    inputs = [_fitted(x, (*batch, n)) for x, n in ((q, h), (k, g), (v, g))]
    inputs += [x if len(batch) == 1 else _fitted(x, (*batch, x.shape[-3])) for x in mask]
    leading = batch if flat else (*batch, h)
    return inputs, leading[len(leading) - most + 2 :]


def _ends(mask: Tensor, query: Tensor, key: Tensor) -> list[tuple[int, int]]:
    """The extents of the mask beside those of queries and keys."""
    return list(zip(mask.shape[-2:], (query.shape[-2], key.shape[-2]), strict=True))


def _fitted(x: Tensor, leading: tuple[int, ...]) -> Tensor:
    """x with these leading axes, those before the heads merged into one."""
    tail = x.shape[-2:]
    x = broadcast_to(x, (*leading, *tail))
    return x if len(leading) == 2 else reshape(x, (-1, leading[-1], *tail))


def _as_rows(inputs: Sequence[Tensor]) -> list[Tensor]:
    """Query [n, h, 1, e], key, value and masks with the heads that share keys as rows of one."""
    q, k, v, *masks = inputs
    h, g = q.shape[1], k.shape[1]

    def rows(x: Tensor) -> Tensor:
        return x if x.shape[1] == 1 else reshape(x, (x.shape[0], g, h // g, x.shape[-1]))

    return [rows(q), k, v, *map(rows, masks)]


def _composed(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    masks: Sequence[Tensor],
    p: float,
    is_causal: bool,
    scale: float | None,
) -> Tensor:
    """What the op computes, from others."""
    k, v = (x if x.shape[1] == 1 else repeat(x, q.shape[1] // x.shape[1], 1) for x in (k, v))
    logits = scores(q, k, masks, is_causal, scale)
    nothing = equal(reductions.max(logits, -1, keepdims=True), -math.inf)
    return matmul(where(nothing, 0, dropout(softmax(logits, -1), p, training=True)), v)
