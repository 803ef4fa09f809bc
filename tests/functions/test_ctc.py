"""ctc_loss beside PyTorch's: lengths, blanks, repetitions, targets that no path spells."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import graphc
from graphc import nn
from graphc.base.errors import GraphError
from tests.tools import need_module

rng = np.random.default_rng(0)
STEPS, COUNT, CLASSES, SIZE = 12, 5, 6, 4
LOGITS = rng.standard_normal((STEPS, COUNT, CLASSES)).astype(np.float32)
TIMES = np.array([12, 9, 12, 4, 7], np.int32)
SIZES = np.array([4, 3, 0, 4, 1], np.int32)


def targets(blank: int) -> np.ndarray:
    labels = [c for c in range(CLASSES) if c != blank]
    found = rng.choice(labels, (COUNT, SIZE)).astype(np.int32)
    found[0] = labels[1], labels[1], labels[2], labels[2]  # which need blanks between
    found[3] = labels[0]  # four steps cannot spell them
    return found


def ours(device: str, labels: Any, times: Any = TIMES, sizes: Any = SIZES, **options: Any) -> Any:
    def function(x: Any, labels: Any, times: Any, sizes: Any) -> Any:
        def loss(x: Any) -> Any:
            probs = graphc.log_softmax(x, -1)
            y = graphc.ctc_loss(probs, labels, times, sizes, **options)
            return graphc.sum(graphc.where(graphc.isfinite(y), y, 0.0)), y

        (_, y), gradient = graphc.value_and_grad(loss)(x)
        return y, gradient

    return graphc.compile(function, LOGITS, labels, times, sizes, device=device)(
        LOGITS, labels, times, sizes
    )


@pytest.mark.parametrize("device", ["reference", "cpu", "sim"])
@pytest.mark.parametrize(
    ("blank", "reduction", "zero"),
    [(0, "none", True), (2, "none", False), (0, "mean", True), (5, "sum", True)],
)
def test_losses_and_gradients_are_pytorchs(
    blank: int, reduction: str, zero: bool, device: str
) -> None:
    torch = need_module("torch")
    labels = targets(blank)
    x = torch.tensor(LOGITS, requires_grad=True)
    options: dict[str, Any] = {"blank": blank, "reduction": reduction, "zero_infinity": zero}
    right = torch.nn.functional.ctc_loss(
        x.log_softmax(-1), *map(torch.tensor, (labels.astype(np.int64), TIMES, SIZES)), **options
    )
    y, gradient = ours(device, labels, **options)
    np.testing.assert_allclose(y, right.detach().numpy(), rtol=1e-5)
    right[torch.isfinite(right)].sum().backward()
    wanted = x.grad.numpy()
    wanted[:, 3] = 0  # NaN in PyTorch without zero_infinity
    np.testing.assert_allclose(gradient, wanted, rtol=1e-4, atol=2e-6)


def test_targets_one_behind_the_other_are_those_of_rows() -> None:
    labels = targets(0)
    flat = np.concatenate([row[:n] for row, n in zip(labels, SIZES, strict=True)])
    for got, want in zip(ours("cpu", flat), ours("cpu", labels), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_the_loss_is_that_of_all_paths() -> None:
    """In plain NumPy, for a single sequence without a batch."""
    logits = rng.standard_normal((4, 3)).astype(np.float32)
    probs = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    labels = np.array([1, 1], np.int32)
    total = 0.0
    for path in itertools.product(range(3), repeat=4):
        spelled = [c for c, _ in itertools.groupby(path) if c]
        if spelled == [1, 1]:
            total += np.prod([probs[t, c] for t, c in enumerate(path)])
    layer = nn.CTCLoss(reduction="none")

    def function(x: Any, labels: Any) -> Any:
        return layer(graphc.log_softmax(x, 1), labels, (4,), (2,))

    found = graphc.compile(function, logits, labels, device="cpu")(logits, labels)
    np.testing.assert_allclose(found, -np.log(total), rtol=1e-5)


def test_a_network_learns_to_spell() -> None:
    x = rng.standard_normal((10, 2, 8)).astype(np.float32)
    labels = np.array([[1, 2, 2], [3, 1, 2]], np.int32)
    model, criterion = nn.Linear(8, 4), nn.CTCLoss()

    def loss(model: Any, x: Any, labels: Any) -> Any:
        return criterion(graphc.log_softmax(model(x), 2), labels, (10, 10), (3, 3))

    step = graphc.compile(loss, model, x, labels, update=graphc.optim.Adam(lr=0.1), device="cpu")
    losses = [float(step(x, labels)) for _ in range(60)]
    assert losses[-1] < 0.1 * losses[0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"blank": 6}, r"ctc_loss: blank expected one of 6 classes, got 6"),
        ({"sizes": SIZES[:3]}, r"ctc_loss: target_lengths expected 5 integers, got i32\[3\]"),
        ({"labels": targets(0)[:2]}, r"ctc_loss: targets expected 5 rows, as log_probs has, got"),
        (
            {"labels": LOGITS},
            r"ctc_loss: targets expected integers \[n, s\] or \[s\], got f32\[12,5,6\]",
        ),
    ],
)
def test_what_does_not_fit_is_said(change: dict[str, Any], message: str) -> None:
    arguments: dict[str, Any] = {"labels": targets(0), **change}
    with pytest.raises(GraphError, match=message):
        ours("cpu", **arguments)


def test_log_probs_have_steps() -> None:
    with pytest.raises(
        GraphError, match=r"ctc_loss: expected log_probs \[t, n, c\] or \[t, c\], got f32\[3"
    ):
        graphc.compile(
            lambda x: graphc.ctc_loss(x, np.zeros((1, 1), np.int32), (1,), (1,)), graphc.spec((3,))
        )
