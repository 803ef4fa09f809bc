"""Attention and transformer layers beside PyTorch's, outputs and gradients."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from graphc import functions, nn
from graphc.base.errors import GraphError
from graphc.nn.initialize import seed
from tests.nn.running import play, random, run, traced
from tests.support.layers_against_torch import compare_with_gradients, twins
from tests.tools import need_module

Make = Callable[[Any], Any]
T, N, E = 5, 3, 8

LATER = np.triu(np.ones((T, T), bool), 1)
"""True where position i would see a later one."""
NEAR = ~np.eye(T, dtype=bool) & ~np.eye(T, k=-1, dtype=bool)
"""True but where position i sees itself or the one before."""
PADDED = np.arange(T) >= np.array([[5], [3], [1]])
"""True at the places behind each sample's end."""
ADDED = np.where(PADDED, -np.inf, 0).astype(np.float32)

# fmt: off
ATTENTIONS: list[tuple[Make, tuple[int, ...], dict[str, Any]]] = [
    (lambda nn: nn.MultiheadAttention(E, 2), (T, N, E), {}),
    (lambda nn: nn.MultiheadAttention(E, 2), (T, E), {}),
    (lambda nn: nn.MultiheadAttention(E, 4, bias=False, batch_first=True), (N, T, E), {}),
    (lambda nn: nn.MultiheadAttention(E, 2), (T, N, E), {"need_weights": False}),
    (lambda nn: nn.MultiheadAttention(E, 2, batch_first=True), (N, T, E), {"attn_mask": LATER}),
    (lambda nn: nn.MultiheadAttention(E, 2, batch_first=True), (N, T, E),
     {"attn_mask": LATER, "is_causal": True, "need_weights": False}),
    (lambda nn: nn.MultiheadAttention(E, 2), (T, N, E),
     {"attn_mask": NEAR, "is_causal": True, "need_weights": False}),
    (lambda nn: nn.MultiheadAttention(E, 2), (T, N, E), {"attn_mask": NEAR, "is_causal": True}),
    (lambda nn: nn.MultiheadAttention(E, 2, batch_first=True), (N, T, E),
     {"key_padding_mask": PADDED}),
    (lambda nn: nn.MultiheadAttention(E, 2), (T, N, E),
     {"attn_mask": random(N * 2, T, T, seed=4), "key_padding_mask": ADDED}),
    (lambda nn: nn.MultiheadAttention(E, 2, add_bias_kv=True), (T, N, E), {}),
    (lambda nn: nn.MultiheadAttention(E, 2, add_zero_attn=True), (T, E), {"need_weights": False}),
    (lambda nn: nn.MultiheadAttention(E, 2, 0.0, True, True, True, batch_first=True), (N, T, E),
     {"attn_mask": LATER, "key_padding_mask": PADDED}),
    (lambda nn: nn.MultiheadAttention(E, 4, bias=False, add_bias_kv=True, add_zero_attn=True),
     (T, N, E), {"attn_mask": random(N * 4, T, T, seed=4), "need_weights": False}),
]
ENCODERS: list[tuple[Make, tuple[int, ...], dict[str, Any]]] = [
    (lambda nn: nn.TransformerEncoderLayer(E, 2, 16, dropout=0.0), (T, N, E), {}),
    (lambda nn: nn.TransformerEncoderLayer(E, 2, 16, 0.0, "gelu", batch_first=True,
                                           norm_first=True), (N, T, E), {"src_mask": LATER}),
    (lambda nn: nn.TransformerEncoderLayer(E, 4, 12, 0.0, layer_norm_eps=1e-3, batch_first=True,
                                           bias=False), (N, T, E),
     {"src_key_padding_mask": PADDED}),
    (lambda nn: nn.TransformerEncoder(
        nn.TransformerEncoderLayer(E, 2, 16, 0.0, batch_first=True, norm_first=True), 2,
        nn.LayerNorm(E)), (N, T, E), {"mask": LATER, "is_causal": True}),
]
# fmt: on


# fmt: off
DECODERS: list[tuple[Make, tuple[int, ...], dict[str, Any]]] = [
    (lambda nn: nn.TransformerDecoderLayer(E, 2, 16, dropout=0.0), (T, N, E), {}),
    (lambda nn: nn.TransformerDecoderLayer(E, 2, 16, 0.0, "gelu", batch_first=True,
                                           norm_first=True), (N, T, E),
     {"tgt_mask": LATER, "tgt_is_causal": True, "memory_key_padding_mask": PADDED[:, :4]}),
    (lambda nn: nn.TransformerDecoder(
        nn.TransformerDecoderLayer(E, 4, 12, 0.0, batch_first=True, bias=False), 2,
        nn.LayerNorm(E)), (N, T, E), {"memory_mask": LATER[:, :4], "tgt_mask": LATER}),
]
# fmt: on


@pytest.mark.parametrize(("make", "shape", "options"), DECODERS)
def test_decoder_agrees_with_pytorch(
    make: Make, shape: tuple[int, ...], options: dict[str, Any]
) -> None:
    ours, theirs = twins(make)
    memory = (4, N, E) if shape[0] == T else (N, 4, E)
    compare_with_gradients(ours, theirs, random(*shape), random(*memory, seed=1), **options)


@pytest.mark.filterwarnings("ignore:enable_nested_tensor:UserWarning")
def test_the_whole_transformer_agrees_with_pytorch() -> None:
    ours, theirs = twins(
        lambda nn: nn.Transformer(E, 2, 1, 2, 16, 0.0, batch_first=True, norm_first=True)
    )
    later = nn.Transformer.generate_square_subsequent_mask(T)
    torch = need_module("torch")
    np.testing.assert_array_equal(
        later, torch.nn.Transformer.generate_square_subsequent_mask(T).numpy()
    )
    source, target = random(N, 4, E), random(N, T, E, seed=1)
    compare_with_gradients(ours, theirs, source, target, tgt_mask=later)


def test_parts_of_ones_own_take_the_place_of_encoder_and_decoder() -> None:
    class Doubled(nn.Module):
        def forward(self, x: Any, *masks: Any) -> Any:
            return x * 2

    class Sum(nn.Module):
        def forward(self, x: Any, memory: Any, *masks: Any) -> Any:
            return x + memory

    whole = nn.Transformer(E, 2, custom_encoder=Doubled(), custom_decoder=Sum())
    x, y = random(T, N, E), random(T, N, E, seed=1)
    np.testing.assert_array_equal(run(whole, x, y), y + 2 * x)


def test_matrices_of_a_transformer_begin_within_xaviers_bound() -> None:
    seed(0)
    whole = nn.Transformer(8, 2, 1, 1, 24)
    weight = whole.encoder.layers[0].linear1.weight.numpy()
    bound = np.sqrt(6 / (8 + 24))
    assert 0.9 * bound < np.abs(weight).max() <= bound


@pytest.mark.parametrize(("make", "shape", "options"), ATTENTIONS)
def test_self_attention_agrees_with_pytorch(
    make: Make, shape: tuple[int, ...], options: dict[str, Any]
) -> None:
    class Attending(nn.Module):
        """The attention with one input as query, key and value."""

        def __init__(self, inner: Any) -> None:
            self.inner = inner

        def forward(self, x: Any, **options: Any) -> Any:
            return self.inner(x, x, x, **options)[0]

    ours, theirs = twins(make)
    torch = need_module("torch")

    class Theirs(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = theirs

        def forward(self, x: Any, **options: Any) -> Any:
            return theirs(x, x, x, **options)[0]

    compare_with_gradients(Attending(ours), Theirs(), random(*shape), **options)


@pytest.mark.parametrize("sizes", [{}, {"kdim": 6, "vdim": 7}, {"vdim": 3, "bias": False}])
def test_attention_to_another_sequence_agrees_with_pytorch(sizes: dict[str, Any]) -> None:
    ours, theirs = twins(lambda nn: nn.MultiheadAttention(E, 2, batch_first=True, **sizes))
    key, value = (random(N, 4, sizes.get(n, E), seed=i) for i, n in enumerate(("kdim", "vdim")))
    compare_with_gradients(ours, theirs, random(N, T, E), key, value)


@pytest.mark.parametrize("average", [True, False])
def test_attention_weights_are_those_of_pytorch(average: bool) -> None:
    torch = need_module("torch")
    ours, theirs = twins(lambda nn: nn.MultiheadAttention(E, 2))
    for shape in ((T, N, E), (T, E)):
        x = random(*shape)
        attended: Callable[[Any], Any] = lambda x: ours(x, x, x, average_attn_weights=average)[1]  # noqa: E731
        (weights,) = play(*traced(attended, x), x)
        given = torch.from_numpy(x)
        expected = theirs(given, given, given, average_attn_weights=average)[1]
        np.testing.assert_allclose(weights, expected.detach().numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.filterwarnings("ignore:enable_nested_tensor:UserWarning")
@pytest.mark.parametrize(("make", "shape", "options"), ENCODERS)
def test_encoder_agrees_with_pytorch(
    make: Make, shape: tuple[int, ...], options: dict[str, Any]
) -> None:
    ours, theirs = twins(make)
    compare_with_gradients(ours, theirs, random(*shape), **options)


def test_a_function_is_an_activation() -> None:
    torch = need_module("torch")
    ours = nn.TransformerEncoderLayer(E, 2, 16, 0.0, functions.silu)
    theirs = torch.nn.TransformerEncoderLayer(E, 2, 16, 0.0, torch.nn.functional.silu)
    ours.load_state_dict(theirs.state_dict())
    compare_with_gradients(ours, theirs, random(T, N, E))


def test_dropout_acts_in_training_programs_alone() -> None:
    seed(3)
    layer = nn.TransformerEncoderLayer(E, 2, 16, dropout=0.5)
    x = random(T, N, E)
    quiet = run(layer, x)
    np.testing.assert_array_equal(quiet, run(layer, x))
    assert np.abs(run(layer, x, training=True) - quiet).max() > 0.1


def test_the_layers_of_an_encoder_are_copies() -> None:
    layer = nn.TransformerEncoderLayer(E, 2, 16)
    encoder = nn.TransformerEncoder(layer, 2)
    first, second = encoder.layers
    np.testing.assert_array_equal(first.linear1.weight.numpy(), second.linear1.weight.numpy())
    assert len({id(m.linear1.weight) for m in (layer, first, second)}) == 3


# fmt: off
MISTAKES: list[tuple[Callable[[], Any], str]] = [
    (lambda: nn.MultiheadAttention(8, 3),
     "MultiheadAttention: num_heads=3 expected to divide embed_dim, got 8"),
    (lambda: nn.TransformerEncoderLayer(8, 2, activation="tanh"),
     "TransformerEncoderLayer: activation expected 'relu', 'gelu' or a function, got 'tanh'"),
    (lambda: nn.TransformerDecoderLayer(8, 2, activation="tanh"),
     "TransformerDecoderLayer: activation expected 'relu', 'gelu' or a function, got 'tanh'"),
    (lambda: nn.TransformerEncoder(nn.Identity(), 0),
     "TransformerEncoder: num_layers expected an integer of at least 1, got 0"),
    (lambda: traced(lambda x: nn.MultiheadAttention(8, 2)(x, x, x)[0], random(8)),
     "MultiheadAttention: expected x[t, features] or x[t, n, features], got f32[8]"),
]
# fmt: on


@pytest.mark.parametrize(("mistake", "message"), MISTAKES, ids=[m for _, m in MISTAKES])
def test_wrong_arguments_are_named(mistake: Callable[[], Any], message: str) -> None:
    with pytest.raises(GraphError, match=rf"^{re.escape(message)} \(test_attention.*\.py:\d+\)$"):
        mistake()
