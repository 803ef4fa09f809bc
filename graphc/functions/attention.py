"""Attention."""

from __future__ import annotations

import math
from typing import Any

from graphc import ops
from graphc.functions.activation import softmax
from graphc.functions.contraction import matmul
from graphc.functions.elementwise import add, less_equal, multiply, where
from graphc.functions.random import dropout
from graphc.functions.shapes import matrix_transpose
from graphc.functions.tensors import as_tensor, error, promoted
from graphc.trace import Tensor, emit

__all__ = ["scaled_dot_product_attention"]


def scaled_dot_product_attention(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
) -> Tensor:
    """softmax(query key^T * scale + mask) value: [..., t, e], [..., u, e], [..., u, v] to
    [..., t, v].

    `attn_mask` broadcasts with [..., t, u]: booleans (false: not seen) or numbers to add.
    `is_causal` lets position i see positions up to i. `scale` is 1 / sqrt(e) unless given. A row
    that sees nothing gives NaN. `dropout_p` drops weights, whether in training or not.
    """
    q, k, v = promoted(query, key, value)
    if min(q.ndim, k.ndim, v.ndim) < 2 or q.shape[-1] != k.shape[-1] or k.shape[-2] != v.shape[-2]:
        raise error(
            "scaled_dot_product_attention: expected query [..., t, e], key [..., u, e] and value "
            f"[..., u, v], got {q.value.type}, {k.value.type} and {v.value.type}"
        )
    return matmul(attention_weights(q, k, attn_mask, dropout_p, is_causal, scale), v)


def attention_weights(
    q: Tensor,
    k: Tensor,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
) -> Tensor:
    """What each position takes of each other's value: [..., t, e], [..., u, e] to [..., t, u];
    arguments as of `scaled_dot_product_attention`."""
    factor = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    scores = multiply(matmul(q, matrix_transpose(k)), factor)
    if is_causal:
        rows, columns = emit(ops.Iota((q.shape[-2], 1), 0)), emit(ops.Iota((1, k.shape[-2]), 1))
        scores = where(less_equal(columns, rows), scores, -math.inf)
    if attn_mask is not None:
        mask = as_tensor(attn_mask)
        seen = mask.dtype == "bool"
        scores = where(mask, scores, -math.inf) if seen else add(scores, mask)
    return dropout(softmax(scores, -1), dropout_p, training=True)
