"""Whole trainings beside PyTorch: equal weights and batches give equal losses, step after step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphc
from graphc import nn, optim
from tests.support.against_torch import LeNet, batch_norm_cnn, mlp, torch_lenet
from tests.tools import first_quick, need_module

BATCH, TOLERANCE = 8, 2e-4
Array = np.ndarray[Any, np.dtype[Any]]


# fmt: off
Case = tuple[Callable[[], Any], Callable[[], Any], str, dict[str, Any]]
CASES: dict[str, Case] = {
    "LeNet, SGD with momentum": (LeNet, torch_lenet, "SGD", {"lr": 0.05, "momentum": 0.9}),
    "MLP, Adam": (lambda: mlp(nn), lambda: mlp(need_module("torch").nn), "Adam", {"lr": 2e-3}),
    "MLP, AdamW with clipped gradients": (
        lambda: mlp(nn), lambda: mlp(need_module("torch").nn),
        "AdamW", {"lr": 1e-3, "weight_decay": 0.1, "clip_grad_norm": 0.3}),
    "batch-norm CNN, Nesterov momentum": (
        lambda: batch_norm_cnn(nn), lambda: batch_norm_cnn(need_module("torch").nn),
        "SGD", {"lr": 0.02, "momentum": 0.9, "nesterov": True, "weight_decay": 1e-3}),
}
# fmt: on


def loss_fn(model: Any, x: Any, y: Any) -> Any:
    return graphc.cross_entropy(model(x), y)


def batches(steps: int) -> list[tuple[Array, Array]]:
    """Images of ten kinds with noise, and their kinds: something that can be learnt."""
    generator = np.random.default_rng(0)
    kinds = generator.standard_normal((10, 1, 28, 28), np.float32)
    labels = generator.integers(0, 10, (steps, BATCH)).astype(np.int32)
    noise = 0.3 * generator.standard_normal((steps, BATCH, 1, 28, 28), np.float32)
    return [(kinds[y] + n, y) for y, n in zip(labels, noise, strict=True)]


def trained_by_torch(
    model: Any,
    given: list[tuple[Array, Array]],
    rule: str,
    lr: float,
    clip_grad_norm: float | None = None,
    **options: Any,
) -> list[float]:
    torch = need_module("torch")
    losses = []
    optimizer = getattr(torch.optim, rule)(model.parameters(), lr=lr, **options)
    for x, y in given:
        optimizer.zero_grad()
        logits = model(torch.from_numpy(x))
        loss = torch.nn.functional.cross_entropy(logits, torch.from_numpy(y).long())
        loss.backward()
        if clip_grad_norm is not None:
            torch.nn.utils.clip_grad_norm_(model.parameters(), clip_grad_norm)
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("steps", first_quick(1, [10, 20]))
@pytest.mark.parametrize("device", ["reference", "cpu"])
@pytest.mark.parametrize("case", CASES)
def test_losses_and_weights_follow_pytorch(case: str, device: str, steps: int) -> None:
    torch = need_module("torch")
    ours_of, theirs_of, rule, options = CASES[case]
    torch.manual_seed(0)
    ours, theirs = ours_of(), theirs_of()
    ours.load_state_dict(theirs.state_dict())
    given = batches(steps)
    expected = trained_by_torch(theirs, given, rule, **options)
    image, label = graphc.spec((BATCH, 1, 28, 28)), graphc.spec((BATCH,), "int32")
    update = getattr(optim, rule)(**options)
    step = graphc.compile(loss_fn, ours, image, label, update=update, device=device)
    losses = [float(step(x, y)) for x, y in given]
    assert expected[-1] < 0.8 * expected[0], "the losses would agree if nothing were learnt"
    np.testing.assert_allclose(losses, expected, rtol=TOLERANCE)
    state = ours.state_dict()
    for name, tensor in theirs.state_dict().items():
        limit = 10 * TOLERANCE * max(float(tensor.abs().max()), 1e-3)
        np.testing.assert_allclose(state[name], tensor.numpy(), rtol=0, atol=limit, err_msg=name)
    theirs.eval()
    x = given[0][0]
    logits = graphc.compile(ours, image, device=device)(x)
    shown = theirs(torch.from_numpy(x)).detach().numpy()
    np.testing.assert_allclose(logits, shown, rtol=0, atol=10 * TOLERANCE * np.abs(shown).max())
