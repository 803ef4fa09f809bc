"""Programs with attention: beside PyTorch on every device, on any number of threads and streams,
and without a matrix of weights in memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import graphc
from graphc import functions as f
from graphc import nn, optim
from graphc.ops.base import Array
from tests.tools import need_module


def normal(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def seen(*shape: int) -> Array:
    """Mostly true; the first key always, so that PyTorch has no row without any."""
    mask = np.random.default_rng(9).random(shape) < 0.6
    mask[..., 0] = True
    return mask


Q, K, V = (2, 4, 21, 8), (2, 4, 37, 8), (2, 4, 37, 5)
ONE = (2, 4, 1, 8)
CASES: dict[str, tuple[tuple[tuple[int, ...], ...], dict[str, Any]]] = {
    "plain": ((Q, K, V), {}),
    "causal": ((Q, K, V), {"is_causal": True, "scale": 0.7}),
    "booleans": ((Q, K, V), {"attn_mask": seen(2, 1, 21, 37)}),
    "booleans of keys": ((Q, K, V), {"attn_mask": seen(1, 37)}),
    "numbers": ((Q, K, V), {"attn_mask": normal(21, 37, seed=4)}),
    "grouped": ((Q, (2, 2, 37, 8), (2, 2, 37, 5)), {"enable_gqa": True, "is_causal": True}),
    "grouped without batch": ((Q[1:], (2, 37, 8), (2, 37, 5)), {"enable_gqa": True}),
    "without heads": ((Q[1:], K[1:], V[1:]), {"is_causal": True}),
    "matrices": ((Q[2:], K[2:], V[2:]), {"attn_mask": seen(21, 37)}),
    "five axes": (((3, *Q), (3, *K), (3, *V)), {"attn_mask": seen(4, 21, 37)}),
    "causal over several blocks": (
        ((1, 1, 70, 4), (1, 1, 70, 4), (1, 1, 70, 3)),
        {"is_causal": True},
    ),
    "one query": ((ONE, K, V), {"attn_mask": seen(2, 4, 1, 37)}),
    "one query of groups": (
        (ONE, (2, 2, 37, 8), (2, 2, 37, 5)),
        {"enable_gqa": True, "attn_mask": normal(1, 4, 1, 37, seed=4), "scale": 0.7},
    ),
    "one query without heads": ((ONE[2:], K[1:], V[1:]), {"attn_mask": seen(4, 1, 37)}),
    "many features": (((1, 1, 3, 300), (1, 1, 4, 300), (1, 1, 4, 2)), {"is_causal": True}),
}


@pytest.mark.parametrize("device", ["cpu", "sim"])
@pytest.mark.parametrize("name", CASES)
def test_attention_and_its_gradients_are_pytorchs(name: str, device: str) -> None:
    torch = need_module("torch")
    shapes, options = CASES[name]
    arrays = [normal(*s, seed=i) for i, s in enumerate(shapes)]

    def fn(q: Any, k: Any, v: Any) -> Any:
        def loss(q: Any, k: Any, v: Any) -> Any:
            y = f.scaled_dot_product_attention(q, k, v, **options)
            return f.sum(y * y * y), y

        (_, y), gradients = graphc.value_and_grad(loss, (0, 1, 2))(q, k, v)
        return y, *gradients

    program = graphc.compile(fn, *(graphc.spec(s) for s in shapes), device=device)
    theirs = [torch.from_numpy(a).requires_grad_() for a in arrays]
    given = {k: torch.from_numpy(x) if isinstance(x, np.ndarray) else x for k, x in options.items()}
    y = torch.nn.functional.scaled_dot_product_attention(*theirs, **given)
    (y**3).sum().backward()
    wanted = [y.detach(), *(t.grad for t in theirs)]
    for got, want in zip(program(*arrays), wanted, strict=True):
        exact = want.numpy()
        scale = max(1.0, float(np.abs(exact).max()))
        tolerance = 64 * np.finfo(np.float32).eps * scale
        np.testing.assert_allclose(got, exact, rtol=0, atol=tolerance)


@pytest.mark.parametrize("options", [{"is_causal": False}, {"is_causal": True}])
def test_a_mask_of_numbers_has_pytorchs_gradient(options: dict[str, bool]) -> None:
    torch = need_module("torch")
    q, mask = normal(2, 2, 5, 4), normal(1, 2, 5, 5, seed=1)

    def fn(q: Any, mask: Any) -> Any:
        def loss(mask: Any) -> Any:
            seen = f.where(f.tril(f.ones((5, 5))) > 0, mask, -np.inf)
            masked = seen if options["is_causal"] else mask
            return f.sum(f.square(f.scaled_dot_product_attention(q, q, q, masked)))

        return graphc.grad(loss)(mask)

    got = graphc.compile(fn, graphc.spec(q.shape), graphc.spec(mask.shape), device="cpu")(q, mask)
    x, m = torch.from_numpy(q), torch.from_numpy(mask).requires_grad_()
    lower = torch.ones(5, 5, dtype=torch.bool).tril()
    masked = torch.where(lower, m, -torch.inf) if options["is_causal"] else m
    torch.nn.functional.scaled_dot_product_attention(x, x, x, masked).square().sum().backward()
    np.testing.assert_allclose(got, m.grad.numpy(), rtol=0, atol=2e-5)


def encoder(dropout: float = 0.0) -> Any:
    nn.initialize.seed(5)
    return nn.TransformerEncoderLayer(16, 2, 32, dropout, batch_first=True, norm_first=True)


def loss_fn(model: Any, x: Any) -> Any:
    return f.mean(f.square(model(x, is_causal=True)))


def trained(device: str = "cpu", **options: Any) -> dict[str, bytes]:
    """The parameters after three steps with dropout in the attention."""
    model, x = encoder(dropout=0.2), normal(3, 40, 16)
    step = graphc.compile(
        loss_fn, model, graphc.spec(x.shape), update=optim.SGD(lr=0.1), device=device, **options
    )
    for _ in range(3):
        step(x)
    return {name: a.tobytes() for name, a in model.state_dict().items()}


def test_training_gives_the_same_bits_on_any_threads_and_streams() -> None:
    expected = trained(streams=1, threads=1)
    for options in ({"streams": 1, "threads": 2}, {"streams": 3, "threads": 2}):
        assert trained(**options) == expected, options


def test_dropout_drops_the_same_weights_on_every_device() -> None:
    x = normal(1, 2, 40, 8)

    def fn(x: Any) -> Any:
        def loss(x: Any) -> Any:
            return f.sum(f.square(f.scaled_dot_product_attention(x, x, x, dropout_p=0.4)))

        return graphc.grad(loss)(x)

    spec = graphc.spec(x.shape)
    programs = {d: graphc.compile(fn, spec, device=d, seed=0) for d in DEVICES}
    for _ in range(2):
        reference, *others = (program(x) for program in programs.values())
        for other in others:
            np.testing.assert_allclose(other, reference, rtol=0, atol=1e-4)


DEVICES = ("reference", "cpu", "sim")


@pytest.mark.parametrize("device", ["cpu", "sim"])
@pytest.mark.parametrize("features", [4, 300])
def test_a_row_that_sees_nothing_gives_zeros_as_in_pytorch(features: int, device: str) -> None:
    """With many features the weights lie in memory, and other ops compute them."""
    torch = need_module("torch")
    q = normal(1, 1, 3, features)
    mask = np.array([[1, 1, 0], [0, 0, 0], [1, 0, 1]], bool)
    program = graphc.compile(
        lambda q: f.scaled_dot_product_attention(q, q, q, mask), graphc.spec(q.shape), device=device
    )
    x = torch.from_numpy(q)
    want = torch.nn.functional.scaled_dot_product_attention(x, x, x, torch.from_numpy(mask))
    got = program(q)
    assert not got[0, 0, 1].any()
    np.testing.assert_allclose(got, want.numpy(), rtol=0, atol=1e-6)


def test_memory_grows_with_the_positions_not_with_their_square(unbuilt: None) -> None:
    def peak(positions: int) -> int:
        spec = graphc.spec((1, positions, 16))
        step = graphc.compile(loss_fn, encoder(), spec, update=optim.SGD(lr=0.1), device="cpu")
        return step.plan.peak_bytes

    small, middle, large = (peak(t) for t in (128, 512, 2048))
    assert middle < 4.1 * small and large < 4.1 * middle
    assert large < 2048 * 2048 * 4
