"""Attention scores and their softmax."""

from __future__ import annotations

import math
from collections.abc import Sequence

from graphc import ops
from graphc.functions.array import reductions
from graphc.functions.array.elementwise.elementwise import add, less_equal, multiply, where
from graphc.functions.array.linear.matrix_product import matmul
from graphc.functions.array.shape.shapes import expand_dims, matrix_transpose
from graphc.functions.array.tensors import as_tensor
from graphc.functions.network.dropouts import dropout
from graphc.functions.network.softmax import softmax
from graphc.ir import NARROW, TensorLike
from graphc.trace import Tensor, emit


def attention_weights(
    q: Tensor,
    k: Tensor,
    attn_mask: TensorLike | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
) -> Tensor:
    """Return softmax(q @ k^T * scale + mask): [..., t, e] and [..., u, e] give [..., t, u].

    The arguments are those of `scaled_dot_product_attention`, but a query that attends to no key
    gives NaN.
    """
    masks = [] if attn_mask is None else [as_tensor(attn_mask)]
    logits = scores(q, k, masks, is_causal, scale)
    return dropout(softmax(logits, -1), dropout_p, training=True)


def scores(
    q: Tensor, k: Tensor, masks: Sequence[Tensor], is_causal: bool, scale: float | None
) -> Tensor:
    """Return scaled and masked products of queries and keys."""
    factor = 1 / math.sqrt(q.shape[-1] or 1) if scale is None else scale
    logits = multiply(_products(q, k), factor)
    if is_causal:
        rows, columns = emit(ops.Iota((q.shape[-2], 1), 0)), emit(ops.Iota((1, k.shape[-2]), 1))
        logits = where(less_equal(columns, rows), logits, -math.inf)
    for mask in masks:
        seen = mask.dtype == "bool"
        logits = where(mask, logits, -math.inf) if seen else add(logits, mask)
    return logits


def _products(q: Tensor, k: Tensor) -> Tensor:
    """Return q @ k^T. Of one query, sums along the rows of k, which are read as they lie."""
    if q.shape[-2] == 1 and q.shape[-1] and not {q.dtype, k.dtype} & {*NARROW}:
        return expand_dims(reductions.sum(multiply(q, k), -1), -2)
    return matmul(q, matrix_transpose(k))
