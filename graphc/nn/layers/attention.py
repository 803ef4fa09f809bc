"""Multi-head attention."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from graphc import functions
from graphc.functions.network.scores import attention_weights
from graphc.ir import TensorLike
from graphc.nn import check, initialize
from graphc.nn.layers.linear import Linear
from graphc.nn.module import Module
from graphc.nn.parameter import Parameter
from graphc.trace import Tensor


class MultiheadAttention(Module):
    """Attention of `num_heads` heads, each over embed_dim / num_heads features.

    Called as layer(query, key, value), it returns a pair (result, weights), see `forward`.

    Args:
        embed_dim: The number of features of query and result.
        num_heads: The number of heads.
        dropout: The probability with which an attention weight is dropped, in training.
        bias: Whether projections have biases.
        add_bias_kv: Whether all queries get one more key and value, which are trained.
        add_zero_attn: Whether all queries get one more key and value of zeros.
        kdim: The number of features of key; by default embed_dim.
        vdim: The number of features of value; by default embed_dim.
        batch_first: Whether inputs are [n, t, features] instead of [t, n, features].

    Attributes:
        in_proj_weight: f32 [3 * embed_dim, embed_dim], for query, key and value; with `kdim` or
            `vdim`, q_proj_weight, k_proj_weight and v_proj_weight f32 [embed_dim, features]
            instead.
        in_proj_bias: f32 [3 * embed_dim].
        out_proj: The Linear layer of the result.
        bias_k: f32 [1, 1, embed_dim], with `add_bias_kv`; also bias_v.

    Example:
        >>> layer, x = nn.MultiheadAttention(8, 2), graphc.spec((5, 1, 8))
        >>> [output.type.shape for output in graphc.trace(layer, x, x, x).outputs]
        [(5, 1, 8), (1, 5, 5)]
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
    ) -> None:
        layer = "MultiheadAttention"
        self.embed_dim = features = check.integer(layer, "embed_dim", embed_dim)
        self.num_heads = check.integer(layer, "num_heads", num_heads)
        if features % self.num_heads:
            check.fail(
                f"{layer}: num_heads={num_heads} expected to divide embed_dim, got {features}"
            )
        self.dropout = check.number(layer, "dropout", dropout, 0.0, 1.0)
        self.kdim = features if kdim is None else check.integer(layer, "kdim", kdim)
        self.vdim = features if vdim is None else check.integer(layer, "vdim", vdim)
        self.batch_first = bool(batch_first)
        self.in_proj_weight = None
        self.q_proj_weight = self.k_proj_weight = self.v_proj_weight = None
        if self.kdim == self.vdim == features:
            self.in_proj_weight = initialize.xavier((3 * features, features))
        else:
            self.q_proj_weight = initialize.xavier((features, features))
            self.k_proj_weight = initialize.xavier((features, self.kdim))
            self.v_proj_weight = initialize.xavier((features, self.vdim))
        self.in_proj_bias = initialize.full((3 * features,), 0.0) if bias else None
        self.bias_k = self.bias_v = None
        if add_bias_kv:
            self.bias_k, self.bias_v = (_xavier_parameter(features) for _ in range(2))
        self.add_zero_attn = bool(add_zero_attn)
        self.out_proj = Linear(features, features, bias)
        if bias:
            self.out_proj.bias = initialize.full((features,), 0.0)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: TensorLike | None = None,
        need_weights: bool = True,
        attn_mask: TensorLike | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Attend from `query` to `key` and `value`.

        Args:
            query: [t, n, embed_dim], [n, t, embed_dim] if `batch_first`, or [t, embed_dim].
            key: The keys of u positions, with the same axes.
            value: The values of u positions, with the same axes.
            key_padding_mask: Booleans [n, u] that are true where a key is hidden, or numbers to
                add.
            need_weights: Whether to return attention weights; else None.
            attn_mask: Booleans [t, u] or [n * num_heads, t, u] that are true where a key is hidden,
                or numbers to add to the scores.
            average_attn_weights: Whether to average the weights over the heads.
            is_causal: Whether position i attends to positions up to i only; as in PyTorch,
                `attn_mask` must say the same.

        Returns:
            The result, like `query`, and the weights: [n, t, u], or [n, num_heads, t, u] if not
            averaged. u includes what `add_bias_kv` and `add_zero_attn` add.

        Raises:
            GraphError: The shapes do not fit.
        """
        for x in (query, key, value):
            check.axes("MultiheadAttention", x, "t, features", "t, n, features")
        projected = self._projected(query, key, value)
        batched = query.ndim == 3
        q, k, v = (self._heads(x, batched) for x in projected)
        if is_causal and not need_weights and key_padding_mask is None:
            attn_mask = None  # which is_causal says in other words
        mask = self._mask(attn_mask, key_padding_mask, q.shape[0])
        k, v, mask = self._with_more(k, v, mask)
        p = self.dropout if self.training else 0.0
        weights = None
        if need_weights:
            weights = attention_weights(q, k, mask, p, is_causal)
            y = functions.matmul(weights, v)
            weights = functions.mean(weights, axis=1) if average_attn_weights else weights
            weights = weights if batched else weights[0]
        else:
            y = functions.scaled_dot_product_attention(q, k, v, mask, p, is_causal)
        order = (0, 2, 1, 3) if self.batch_first or not batched else (2, 0, 1, 3)
        y = functions.permute_dims(y, order)
        return self.out_proj(functions.reshape(y, query.shape)), weights

    def _projected(self, query: Tensor, key: Tensor, value: Tensor) -> list[Tensor]:
        """query, key and value, each with embed_dim features."""
        e = self.embed_dim
        if self.in_proj_weight is not None and query is key is value:
            # One product for all three; as functions, the parts of its result are views.
            y = functions.linear(query, self.in_proj_weight, self.in_proj_bias)
            return [y[..., i * e : (i + 1) * e] for i in range(3)]
        weights: list[Any] = [self.q_proj_weight, self.k_proj_weight, self.v_proj_weight]
        if self.in_proj_weight is not None:
            rows = functions.as_tensor(self.in_proj_weight)
            weights = [rows[i * e : (i + 1) * e] for i in range(3)]
        biases: list[Any] = [None] * 3
        if self.in_proj_bias is not None:
            bias = functions.as_tensor(self.in_proj_bias)
            biases = [bias[i * e : (i + 1) * e] for i in range(3)]
        inputs = (query, key, value)
        return [functions.linear(*args) for args in zip(inputs, weights, biases, strict=True)]

    def _heads(self, x: Tensor, batched: bool) -> Tensor:
        """[n, num_heads, positions, features of a head]."""
        x = x if batched else functions.expand_dims(x, 0)
        x = functions.reshape(x, (*x.shape[:2], self.num_heads, self.embed_dim // self.num_heads))
        return functions.permute_dims(
            x, (0, 2, 1, 3) if self.batch_first or not batched else (1, 2, 0, 3)
        )

    def _with_more(
        self, k: Tensor, v: Tensor, mask: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Keys, values and mask with the key and value that all queries see besides."""
        before, shape = k.shape[2], (*k.shape[:2], 1, k.shape[3])
        if self.bias_k is not None and self.bias_v is not None:
            heads = (1, self.num_heads, 1, k.shape[3])
            more = [functions.reshape(b, heads) for b in (self.bias_k, self.bias_v)]
            k, v = (
                functions.concat(
                    [x, functions.astype(functions.broadcast_to(b, shape), x.dtype)], 2
                )
                for x, b in zip((k, v), more, strict=True)
            )
        if self.add_zero_attn:
            k, v = (functions.concat([x, functions.zeros(shape, x.dtype)], 2) for x in (k, v))
        if mask is not None and k.shape[2] != before:
            seen = functions.full((*mask.shape[:-1], k.shape[2] - before), 0, mask.dtype)
            seen = functions.logical_not(seen) if mask.dtype == "bool" else seen
            mask = functions.concat([mask, seen], -1)
        return k, v, mask

    def _mask(
        self, attn_mask: TensorLike | None, key_padding_mask: TensorLike | None, batch: int
    ) -> Tensor | None:
        """Return the mask of the scores [n, num_heads, t, u].

        It holds booleans, true where attention is allowed, if all masks are booleans; else numbers
        to add.
        """
        masks = []
        if attn_mask is not None:
            mask = functions.as_tensor(attn_mask)
            if mask.ndim == 3:
                mask = functions.reshape(mask, (batch, self.num_heads, *mask.shape[1:]))
            masks.append(mask)
        if key_padding_mask is not None:
            mask = functions.as_tensor(key_padding_mask)
            masks.append(functions.reshape(mask, (-1, 1, 1, mask.shape[-1])))
        if all(m.dtype == "bool" for m in masks):
            masks = [functions.logical_not(m) for m in masks]
            return functions.logical_and(*masks) if len(masks) == 2 else masks[0] if masks else None
        masks = [_additive(m) for m in masks]
        return functions.add(*masks) if len(masks) == 2 else masks[0]

    def describe(self) -> str:
        return (
            f"{self.embed_dim}, {self.num_heads}, dropout={self.dropout}, "
            f"batch_first={self.batch_first}"
        )


def _xavier_parameter(features: int) -> Parameter:
    """f32[1, 1, features], normal with the deviation of Glorot's initialisation."""
    parameter = initialize.normal((1, 1, features))
    parameter.assign(parameter.numpy() * np.float32(features**-0.5))
    return parameter


def _additive(mask: Tensor) -> Tensor:
    """-infinity where a mask of booleans is true; masks of numbers as they are."""
    return functions.where(mask, -math.inf, 0.0) if mask.dtype == "bool" else mask
