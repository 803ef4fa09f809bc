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
    """Base of the layers: attention, two linear layers, residual connections and norms."""

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
    """Self-attention and two linear layers, each with a residual connection and a LayerNorm.

    Args:
        d_model: The number of features.
        nhead: The number of attention heads.
        dim_feedforward: The number of features between the linear layers.
        dropout: The probability of dropout, in training, in attention weights and results.
        activation: "relu", "gelu" or a function, between the linear layers.
        layer_norm_eps: Added to variances in norms.
        batch_first: Whether x is [n, t, d_model] instead of [t, n, d_model].
        norm_first: Whether norms come before attention and linear layers, not after the residual.
        bias: Whether there are biases.

    Example:
        >>> layer = nn.TransformerEncoderLayer(8, 2, 16)
        >>> graphc.trace(layer, graphc.spec((5, 1, 8))).outputs[0].type.shape
        (5, 1, 8)
    """

    def forward(
        self,
        src: Tensor,
        src_mask: TensorLike | None = None,
        src_key_padding_mask: TensorLike | None = None,
        is_causal: bool = False,
    ) -> Tensor:
        """Return a tensor like `src`, [t, n, d_model], or [n, t, d_model] if `batch_first`.

        The masks are those of `MultiheadAttention`.
        """

        def attended(x: Tensor) -> Any:
            masks = (src_key_padding_mask, False, src_mask)
            return self.self_attn(x, x, x, *masks, is_causal=is_causal)[0]

        return self._through(src, attended)


class TransformerDecoderLayer(_Layer):
    """Self-attention, attention to an encoder's result, and two linear layers.

    Each has a residual connection and a LayerNorm. The arguments are those of
    `TransformerEncoderLayer`.

    Example:
        >>> layer = nn.TransformerDecoderLayer(8, 2, 16)
        >>> specs = graphc.spec((5, 1, 8)), graphc.spec((7, 1, 8))
        >>> graphc.trace(layer, *specs).outputs[0].type.shape
        (5, 1, 8)
    """

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
        """Return a tensor like `tgt`, [t, n, d_model], that attends to `memory`, [u, n, d_model].

        With `batch_first` the batch comes first in both. The masks are those of
        `MultiheadAttention`.
        """

        def attended(x: Tensor) -> Any:
            masks = (tgt_key_padding_mask, False, tgt_mask)
            return self.self_attn(x, x, x, *masks, is_causal=tgt_is_causal)[0]

        def informed(x: Tensor) -> Any:
            masks = (memory_key_padding_mask, False, memory_mask)
            return self.multihead_attn(x, memory, memory, *masks, is_causal=memory_is_causal)[0]

        return self._through(tgt, attended, informed)


class _Stack(Module):
    """Base of stacks of equal layers."""

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
    """Apply copies of an encoder layer one after another.

    Args:
        encoder_layer: The layer to copy.
        num_layers: The number of copies.
        norm: A module that is applied to the result, or None.
        enable_nested_tensor: Accepted for PyTorch's sake; it changes nothing.
        mask_check: Accepted for PyTorch's sake; it changes nothing.

    Example:
        >>> encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16), 2)
        >>> graphc.trace(encoder, graphc.spec((5, 1, 8))).outputs[0].type.shape
        (5, 1, 8)
    """

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
        """Return a tensor like `src`; arguments as for the layers."""
        return self._through(src, mask, src_key_padding_mask, is_causal)


class TransformerDecoder(_Stack):
    """Apply copies of a decoder layer one after another.

    Args:
        decoder_layer: The layer to copy.
        num_layers: The number of copies.
        norm: A module that is applied to the result, or None.

    Example:
        >>> decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(8, 2, 16), 2)
        >>> specs = graphc.spec((5, 1, 8)), graphc.spec((7, 1, 8))
        >>> graphc.trace(decoder, *specs).outputs[0].type.shape
        (5, 1, 8)
    """

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
        """Return a tensor like `tgt`; arguments as for the layers."""
        masks = (tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask)
        return self._through(tgt, memory, *masks, tgt_is_causal, memory_is_causal)


class Transformer(Module):
    """An encoder, and a decoder that attends to its result.

    Args:
        d_model: The number of features.
        nhead: The number of attention heads.
        num_encoder_layers: The number of encoder layers.
        num_decoder_layers: The number of decoder layers.
        dim_feedforward: The number of features between linear layers.
        dropout: The probability of dropout, in training.
        activation: "relu", "gelu" or a function.
        custom_encoder: A module in place of the encoder.
        custom_decoder: A module in place of the decoder.
        layer_norm_eps: Added to variances in norms.
        batch_first: Whether the batch is axis 0 instead of axis 1.
        norm_first: Whether norms come before attention and linear layers.
        bias: Whether there are biases.

    Example:
        >>> model = nn.Transformer(8, 2, 1, 1, 16)
        >>> specs = graphc.spec((7, 1, 8)), graphc.spec((5, 1, 8))
        >>> graphc.trace(model, *specs).outputs[0].type.shape
        (5, 1, 8)
    """

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
        """Return a tensor like `tgt`; arguments as for the layers."""
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
        """Return a mask f32 [sz, sz] that hides later positions.

        It is -inf above the diagonal and 0 elsewhere.
        """
        return np.triu(np.full((sz, sz), -np.inf, np.float32), 1)


def _activation(layer: str, activation: Activation) -> Callable[[Tensor], Tensor]:
    if callable(activation):
        return activation
    if activation not in ("relu", "gelu"):
        check.fail(f"{layer}: activation expected 'relu', 'gelu' or a function, got {activation!r}")
    return functions.relu if activation == "relu" else functions.gelu
