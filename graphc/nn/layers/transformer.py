"""Encoders and decoders of the transformer (Vaswani et al., 2017)."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from graphc import functions
from graphc.ir import Array, TensorLike
from graphc.nn import check, initialize
from graphc.nn.container import ModuleList
from graphc.nn.layers.attention import MultiheadAttention
from graphc.nn.layers.dropout import Dropout
from graphc.nn.layers.linear import Linear
from graphc.nn.layers.normalization import LayerNorm
from graphc.nn.module import Module
from graphc.trace import Tensor

Activation = str | Callable[[Tensor], Tensor]


class _Layer(Module):
    """Attentions and then two dense layers, each beside a residual connection and a LayerNorm
    behind it (in front if `norm_first`)."""

    _attentions: ClassVar[tuple[str, ...]] = ("self_attn",)

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
        for name in self._attentions:
            attention = MultiheadAttention(d_model, nhead, dropout, bias, batch_first=batch_first)
            setattr(self, name, attention)
        self.linear1 = Linear(d_model, dim_feedforward, bias)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias)
        self.norm_first = bool(norm_first)
        parts = range(1, len(self._attentions) + 2)
        for number in parts:
            setattr(self, f"norm{number}", LayerNorm(d_model, layer_norm_eps, bias=bias))
        for number in parts:
            setattr(self, f"dropout{number}", Dropout(dropout))
        self.activation = _activation(type(self).__name__, activation)

    def _through(self, x: Tensor, *attentions: Callable[[Tensor], Any]) -> Tensor:
        """What the attentions and the dense layers make of x, one after the other."""
        for number, part in enumerate((*attentions, self._fed_forward), 1):
            norm, dropout = getattr(self, f"norm{number}"), getattr(self, f"dropout{number}")
            if self.norm_first:
                x = x + dropout(part(norm(x)))
            else:
                x = norm(x + dropout(part(x)))
        return x

    def _fed_forward(self, x: Tensor) -> Any:
        return self.linear2(self.dropout(self.activation(self.linear1(x))))


class TransformerEncoderLayer(_Layer):
    """Self-attention and two dense layers, each beside a residual connection and a LayerNorm
    behind it (in front if `norm_first`).

    `activation`, between the dense layers, is "relu", "gelu" or a function. `dropout` drops
    attention weights and the results of both parts and of the activation in training programs.
    """

    def forward(
        self,
        src: Tensor,
        src_mask: TensorLike | None = None,
        src_key_padding_mask: TensorLike | None = None,
        is_causal: bool = False,
    ) -> Tensor:
        """y like src, [t, n, d_model], or [n, t, d_model] if `batch_first`; masks as of
        `MultiheadAttention`."""

        def attended(x: Tensor) -> Any:
            masks = (src_key_padding_mask, False, src_mask)
            return self.self_attn(x, x, x, *masks, is_causal=is_causal)[0]

        return self._through(src, attended)


class TransformerDecoderLayer(_Layer):
    """Self-attention, attention to an encoder's result and two dense layers, each beside a residual
    connection and a LayerNorm behind it (in front if `norm_first`); arguments as of
    `TransformerEncoderLayer`."""

    _attentions = ("self_attn", "multihead_attn")

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: TensorLike | None = None,
        memory_mask: TensorLike | None = None,
        tgt_key_padding_mask: TensorLike | None = None,
        memory_key_padding_mask: TensorLike | None = None,
        tgt_is_causal: bool = False,
        memory_is_causal: bool = False,
    ) -> Tensor:
        """y like tgt, [t, n, d_model], or [n, t, d_model] if `batch_first`, which attends to memory
        of u positions; masks as of `MultiheadAttention`."""

        def attended(x: Tensor) -> Any:
            masks = (tgt_key_padding_mask, False, tgt_mask)
            return self.self_attn(x, x, x, *masks, is_causal=tgt_is_causal)[0]

        def informed(x: Tensor) -> Any:
            masks = (memory_key_padding_mask, False, memory_mask)
            return self.multihead_attn(x, memory, memory, *masks, is_causal=memory_is_causal)[0]

        return self._through(tgt, attended, informed)


class _Stack(Module):
    """Copies of a layer in a row, and `norm` behind the last."""

    def _set_layers(self, layer: Module, num_layers: int, norm: Module | None) -> None:
        count = check.integer(type(self).__name__, "num_layers", num_layers)
        self.layers = ModuleList(copy.deepcopy(layer) for _ in range(count))
        self.num_layers = count
        self.norm = norm

    def _through(self, x: Tensor, *arguments: Any) -> Tensor:
        for layer in self.layers:
            x = layer(x, *arguments)
        return x if self.norm is None else self.norm(x)


class TransformerEncoder(_Stack):
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
        self._set_layers(encoder_layer, num_layers, norm)

    def forward(
        self,
        src: Tensor,
        mask: TensorLike | None = None,
        src_key_padding_mask: TensorLike | None = None,
        is_causal: bool = False,
    ) -> Tensor:
        """y like src; arguments as of the layers."""
        return self._through(src, mask, src_key_padding_mask, is_causal)


class TransformerDecoder(_Stack):
    """`num_layers` copies of `decoder_layer` in a row, and `norm` behind the last."""

    def __init__(self, decoder_layer: Module, num_layers: int, norm: Module | None = None) -> None:
        self._set_layers(decoder_layer, num_layers, norm)

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: TensorLike | None = None,
        memory_mask: TensorLike | None = None,
        tgt_key_padding_mask: TensorLike | None = None,
        memory_key_padding_mask: TensorLike | None = None,
        tgt_is_causal: bool = False,
        memory_is_causal: bool = False,
    ) -> Tensor:
        """y like tgt; arguments as of the layers."""
        masks = (tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask)
        return self._through(tgt, memory, *masks, tgt_is_causal, memory_is_causal)


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
        src_mask: TensorLike | None = None,
        tgt_mask: TensorLike | None = None,
        memory_mask: TensorLike | None = None,
        src_key_padding_mask: TensorLike | None = None,
        tgt_key_padding_mask: TensorLike | None = None,
        memory_key_padding_mask: TensorLike | None = None,
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
    def generate_square_subsequent_mask(sz: int) -> Array:
        """A mask f32[sz, sz] that hides later positions: -infinity above the diagonal, else 0."""
        return np.triu(np.full((sz, sz), -np.inf, np.float32), 1)


def _activation(layer: str, activation: Activation) -> Callable[[Tensor], Tensor]:
    if callable(activation):
        return activation
    if activation not in ("relu", "gelu"):
        check.fail(f"{layer}: activation expected 'relu', 'gelu' or a function, got {activation!r}")
    return functions.relu if activation == "relu" else functions.gelu
