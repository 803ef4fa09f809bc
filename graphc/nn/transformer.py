"""Encoders and decoders of the transformer (Vaswani et al., 2017)."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np

from graphc import functions
from graphc.nn import check, initialize
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
        self.activation = _activation("TransformerEncoderLayer", activation)

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
    """`num_layers` copies of `encoder_layer` in a row, and `norm` behind the last. PyTorch's
    `enable_nested_tensor` and `mask_check` change nothing here."""

    def __init__(
        self,
        encoder_layer: Module,
        num_layers: int,
        norm: Module | None = None,
        enable_nested_tensor: bool = True,
        mask_check: bool = True,
    ) -> None:
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


class TransformerDecoderLayer(Module):
    """Self-attention, attention to an encoder's result and two dense layers, each beside a residual
    connection and a LayerNorm behind it (in front if `norm_first`); arguments as of
    `TransformerEncoderLayer`."""

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
        self.multihead_attn = MultiheadAttention(
            d_model, nhead, dropout, bias, batch_first=batch_first
        )
        self.linear1 = Linear(d_model, dim_feedforward, bias)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias)
        self.norm_first = bool(norm_first)
        self.norm1 = LayerNorm(d_model, layer_norm_eps, bias=bias)
        self.norm2 = LayerNorm(d_model, layer_norm_eps, bias=bias)
        self.norm3 = LayerNorm(d_model, layer_norm_eps, bias=bias)
        self.dropout1, self.dropout2 = Dropout(dropout), Dropout(dropout)
        self.dropout3 = Dropout(dropout)
        self.activation = _activation("TransformerDecoderLayer", activation)

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Any = None,
        memory_mask: Any = None,
        tgt_key_padding_mask: Any = None,
        memory_key_padding_mask: Any = None,
        tgt_is_causal: bool = False,
        memory_is_causal: bool = False,
    ) -> Tensor:
        """y like tgt, [t, n, d_model], or [n, t, d_model] if `batch_first`, which attends to memory
        of u positions; masks as of `MultiheadAttention`."""

        def attended(x: Tensor) -> Any:
            y, _ = self.self_attn(
                x, x, x, tgt_key_padding_mask, False, tgt_mask, is_causal=tgt_is_causal
            )
            return self.dropout1(y)

        def informed(x: Tensor) -> Any:
            y, _ = self.multihead_attn(
                x,
                memory,
                memory,
                memory_key_padding_mask,
                False,
                memory_mask,
                is_causal=memory_is_causal,
            )
            return self.dropout2(y)

        def fed_forward(x: Tensor) -> Any:
            return self.dropout3(self.linear2(self.dropout(self.activation(self.linear1(x)))))

        x: Tensor = tgt
        for part, norm in (
            (attended, self.norm1),
            (informed, self.norm2),
            (fed_forward, self.norm3),
        ):
            x = x + part(norm(x)) if self.norm_first else norm(x + part(x))
        return x


class TransformerDecoder(Module):
    """`num_layers` copies of `decoder_layer` in a row, and `norm` behind the last."""

    def __init__(self, decoder_layer: Module, num_layers: int, norm: Module | None = None) -> None:
        count = check.integer("TransformerDecoder", "num_layers", num_layers)
        self.layers = ModuleList(copy.deepcopy(decoder_layer) for _ in range(count))
        self.num_layers = count
        self.norm = norm

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Any = None,
        memory_mask: Any = None,
        tgt_key_padding_mask: Any = None,
        memory_key_padding_mask: Any = None,
        tgt_is_causal: bool = False,
        memory_is_causal: bool = False,
    ) -> Tensor:
        """y like tgt; arguments as of the layers."""
        x = tgt
        for layer in self.layers:
            x = layer(
                x,
                memory,
                tgt_mask,
                memory_mask,
                tgt_key_padding_mask,
                memory_key_padding_mask,
                tgt_is_causal,
                memory_is_causal,
            )
        return x if self.norm is None else self.norm(x)


class Transformer(Module):
    """An encoder, whose result a decoder attends to; arguments as of their layers, or
    `custom_encoder` and `custom_decoder` in their place."""

    def __init__(
        self,
        d_model: int = 512,
        nhead: int = 8,
        num_encoder_layers: int = 6,
        num_decoder_layers: int = 6,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Activation = "relu",
        custom_encoder: Module | None = None,
        custom_decoder: Module | None = None,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
    ) -> None:
        settings = (dim_feedforward, dropout, activation, layer_norm_eps)
        order = (batch_first, norm_first, bias)
        self.encoder, self.decoder = custom_encoder, custom_decoder
        if custom_encoder is None:
            encoder = TransformerEncoderLayer(d_model, nhead, *settings, *order)
            norm = LayerNorm(d_model, layer_norm_eps, bias=bias)
            self.encoder = TransformerEncoder(encoder, num_encoder_layers, norm)
        if custom_decoder is None:
            decoder = TransformerDecoderLayer(d_model, nhead, *settings, *order)
            norm = LayerNorm(d_model, layer_norm_eps, bias=bias)
            self.decoder = TransformerDecoder(decoder, num_decoder_layers, norm)
        for parameter in self.parameters():
            if parameter.ndim > 1:
                drawn = initialize.xavier((parameter.shape[0], parameter.shape[1]))
                parameter.assign(drawn.numpy())
        self.d_model, self.nhead, self.batch_first = d_model, nhead, bool(batch_first)

    def forward(
        self,
        src: Tensor,
        tgt: Tensor,
        src_mask: Any = None,
        tgt_mask: Any = None,
        memory_mask: Any = None,
        src_key_padding_mask: Any = None,
        tgt_key_padding_mask: Any = None,
        memory_key_padding_mask: Any = None,
        src_is_causal: bool = False,
        tgt_is_causal: bool = False,
        memory_is_causal: bool = False,
    ) -> Tensor:
        """y like tgt; arguments as of the layers."""
        assert self.encoder is not None and self.decoder is not None
        memory = self.encoder(src, src_mask, src_key_padding_mask, src_is_causal)
        y: Tensor = self.decoder(
            tgt,
            memory,
            tgt_mask,
            memory_mask,
            tgt_key_padding_mask,
            memory_key_padding_mask,
            tgt_is_causal,
            memory_is_causal,
        )
        return y

    @staticmethod
    def generate_square_subsequent_mask(sz: int) -> Any:
        """A mask f32[sz, sz] that hides later positions: -infinity above the diagonal, else 0."""
        return np.triu(np.full((sz, sz), -np.inf, np.float32), 1)


def _activation(layer: str, activation: Activation) -> Callable[[Tensor], Tensor]:
    if callable(activation):
        return activation
    if activation not in ("relu", "gelu"):
        check.fail(f"{layer}: activation expected 'relu', 'gelu' or a function, got {activation!r}")
    return functions.relu if activation == "relu" else functions.gelu
