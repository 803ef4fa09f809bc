"""Attention and its gradient, by ops without a weight matrix in memory.

As in PyTorch, the logarithm of each query's sum is kept between forward and backward.
"""

from __future__ import annotations

import math

from graphc import functions as f
from graphc import ops
from graphc.base.source_lines import error
from graphc.functions.network.attention import MOST_FEATURES
from graphc.torch.aten.rules import aten
from graphc.trace import Tensor, current_builder


def _inputs(
    q: Tensor, k: Tensor, v: Tensor, dropout: float, mask: Tensor | None
) -> tuple[list[Tensor], list[Tensor]]:
    """([q, k, v], [mask] or []) as the ops take them."""
    if dropout or not 0 < max(q.shape[-1], v.shape[-1]) <= MOST_FEATURES or 0 in q.shape:
        raise error("attention: with dropout, or so many features, it is left to PyTorch")
    masks = [] if mask is None else [f.reshape(mask, (1,) * (4 - mask.ndim) + mask.shape)]
    return [q, k, v], [m if m.dtype == "bool" else f.astype(m, q.dtype) for m in masks]


def _scale(q: Tensor, scale: float | None) -> float:
    return float(1 / math.sqrt(q.shape[-1]) if scale is None else scale)


@aten("_scaled_dot_product_flash_attention_for_cpu")
def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    dropout: float = 0.0,
    causal: bool = False,
    attn_mask: Tensor | None = None,
    scale: float | None = None,
) -> tuple[Tensor, Tensor]:
    """(y [n, h, t, d], the logarithms of the sums [n, h, t])."""
    inputs, masks = _inputs(q, k, v, dropout, attn_mask)
    op = ops.Attention(bool(causal), _scale(q, scale))
    y, logs = current_builder().emit(op, *inputs, *masks)
    return f.swapaxes(y, 1, 2), logs


@aten("_scaled_dot_product_flash_attention_for_cpu_backward")
def attention_backward(
    dy: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    y: Tensor,
    logs: Tensor,
    dropout: float,
    causal: bool,
    attn_mask: Tensor | None = None,
    scale: float | None = None,
) -> tuple[Tensor, ...]:
    """The gradients by q, k and v."""
    inputs, masks = _inputs(q, k, v, dropout, attn_mask)
    op = ops.AttentionGrad(bool(causal), _scale(q, scale))
    delta = f.sum(f.multiply(dy, y), 3)
    gradients = current_builder().emit(op, *inputs, f.swapaxes(dy, 1, 2), logs, delta, *masks)
    return tuple(f.swapaxes(dx, 1, 2) for dx in gradients)
