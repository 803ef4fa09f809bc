"""Encoders of the transformer."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from graphc import functions
from graphc.nn import check
from graphc.nn.attention import MultiheadAttention
from graphc.nn.container import ModuleList
from graphc.nn.dropout import Dropout
from graphc.nn.linear import Linear
from graphc.nn.module import Module
from graphc.nn.normalization import LayerNorm
from graphc.trace import Tensor

Activation = str | Callable[[Tensor], Tensor]


class TransformerEncoderLayer(Module):
    """Self-attention and two dense layers, each beside a residual connection and a LayerNorm
    behind it (in front if `norm_first`).

    `activation`, between the dense layers, is "relu", "gelu" or a function. `dropout` drops
    attention weights and the results of both parts and of the activation in training programs.
    """

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Activation = "relu",
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
    ) -> None:
        self.self_attn = MultiheadAttention(d_model, nhead, dropout, bias, batch_first=batch_first)
        self.linear1 = Linear(d_model, dim_feedforward, bias)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias)
        self.norm_first = bool(norm_first)
        self.norm1 = LayerNorm(d_model, layer_norm_eps, bias=bias)
        self.norm2 = LayerNorm(d_model, layer_norm_eps, bias=bias)
        self.dropout1, self.dropout2 = Dropout(dropout), Dropout(dropout)
        self.activation = _activation(activation)

    def forward(
        self,
        src: Tensor,
        src_mask: Any = None,
        src_key_padding_mask: Any = None,
        is_causal: bool = False,
    ) -> Tensor:
        """y like src, [t, n, d_model], or [n, t, d_model] if `batch_first`; masks as of
        `MultiheadAttention`."""

        def attended(x: Tensor) -> Any:
            y, _ = self.self_attn(
                x, x, x, src_key_padding_mask, False, src_mask, is_causal=is_causal
            )
            return self.dropout1(y)

        def fed_forward(x: Tensor) -> Any:
            return self.dropout2(self.linear2(self.dropout(self.activation(self.linear1(x)))))

        if self.norm_first:
            x = src + attended(self.norm1(src))
            y: Tensor = x + fed_forward(self.norm2(x))
            return y
        x = self.norm1(src + attended(src))
        y = self.norm2(x + fed_forward(x))
        return y


class TransformerEncoder(Module):
    """`num_layers` copies of `encoder_layer` in a row, and `norm` behind the last."""

    def __init__(self, encoder_layer: Module, num_layers: int, norm: Module | None = None) -> None:
        count = check.integer("TransformerEncoder", "num_layers", num_layers)
        self.layers = ModuleList(copy.deepcopy(encoder_layer) for _ in range(count))
        self.num_layers = count
        self.norm = norm

    def forward(
        self,
        src: Tensor,
        mask: Any = None,
        src_key_padding_mask: Any = None,
        is_causal: bool = False,
    ) -> Tensor:
        """y like src; arguments as of the layers."""
        x = src
        for layer in self.layers:
            x = layer(x, mask, src_key_padding_mask, is_causal)
        return x if self.norm is None else self.norm(x)


def _activation(activation: Activation) -> Callable[[Tensor], Tensor]:
    if callable(activation):
        return activation
    if activation not in ("relu", "gelu"):
        check.fail(
            "TransformerEncoderLayer: activation expected 'relu', 'gelu' or a function, "
            f"got {activation!r}"
        )
    return functions.relu if activation == "relu" else functions.gelu
