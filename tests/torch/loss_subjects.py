"""Losses, with each reduction."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphc import functions as f
from tests.torch.subject import SUBJECTS, Case, Draw, Function, subject

REDUCTIONS = ("mean", "sum", "none")


def _loss(name: str, draw: Any) -> None:
    """`draw(d)` gives the arrays and the settings of the loss."""

    def drawn(d: Draw) -> Case:
        arrays, settings = draw(d)
        settings["reduction"] = d.pick(REDUCTIONS)
        if name == "kl_div" and settings["reduction"] == "mean":
            settings["reduction"] = "batchmean"  # of the mean PyTorch warns
        return Case(
            lambda *x: getattr(f, name)(*x, **settings),
            lambda t, *x: getattr(t.nn.functional, name)(*x, **settings),
            arrays,
            f"{settings}",
            growth=4,
            fixed=(1,) if name == "soft_margin_loss" else (),
        )

    SUBJECTS[name] = drawn


def _two(d: Draw) -> tuple[np.ndarray, np.ndarray]:
    shape = d.shape(1, 3)
    return d.floats(shape), d.floats(shape)


def _signed(d: Draw, shape: tuple[int, ...]) -> np.ndarray:
    return (d.integers(shape, 0, 1, "f4") * 2 - 1).astype("f4")


def _probabilities(d: Draw) -> tuple[np.ndarray, np.ndarray]:
    shape = d.shape(1, 3)
    return d.floats(shape, 0.05, 0.95), d.floats(shape, 0.05, 0.95)


def _classified(d: Draw) -> tuple[tuple[np.ndarray, ...], dict[str, Any]]:
    c, rest = d.integer(2, 6), d.shape(0, 2)
    n = d.integer(2, 6)
    labels = d.integers((n, *rest), 0, c - 1)
    if d.flag():
        labels.flat[0] = -100
    return (d.floats((n, c, *rest)), labels), {}


def _cross_entropy(d: Draw) -> Any:
    arrays, settings = _classified(d)
    if d.flag():
        settings["label_smoothing"] = d.number(0.05, 0.5)
    return arrays, settings


def _binary(d: Draw) -> Any:
    x, t = _two(d)
    return (x, d.floats(t.shape, 0, 1)), {}


def _embedded(d: Draw) -> Any:
    shape = d.shape(1, 3)
    return (d.floats(shape), _signed(d, shape)), {"margin": d.number(0.5, 2)}


def _ranked(d: Draw) -> Any:
    x, y = _two(d)
    return (x, y, _signed(d, x.shape)), {"margin": d.number(0, 1)}


def _cosines(d: Draw) -> Any:
    n, k = d.integer(1, 5), d.integer(2, 6)
    arrays = d.floats((n, k)), d.floats((n, k)), _signed(d, (n,))
    return arrays, {"margin": d.number(-0.5, 0.5)}


def _triplets(d: Draw) -> Any:
    shape = (d.integer(1, 5), d.integer(2, 6))
    return tuple(d.floats(shape) for _ in range(3)), {"margin": d.number(0.5, 2)}


def _counted(d: Draw) -> Any:
    x, t = _two(d)
    log = d.flag()
    rate = x if log else np.abs(x) + np.float32(0.1)
    return (rate, np.abs(t)), {"log_input": log}


def _gaussian(d: Draw) -> Any:
    x, t = _two(d)
    return (x, t, d.floats(x.shape, 0.2, 2)), {"full": d.flag()}


def _multi_margin(d: Draw) -> Any:
    n, c = d.integer(1, 5), d.integer(2, 6)
    settings = {"p": d.integer(1, 2), "margin": d.number(0.5, 2)}
    return (d.floats((n, c)), d.integers((n,), 0, c - 1)), settings


def _multilabel(d: Draw) -> Any:
    n, c = d.integer(1, 5), d.integer(2, 6)
    labels = np.stack([d.random.permutation(c) for _ in range(n)])
    for row in labels:
        row[d.integer(0, c) :] = -1
    return (d.floats((n, c)), labels.astype("i8")), {}


def _divergence(d: Draw) -> Any:
    x, t = _probabilities(d)
    log = d.flag()
    return (np.log(x), np.log(t) if log else t), {"log_target": log}


for _name, _draw in {
    "mse_loss": lambda d: (_two(d), {}),
    "l1_loss": lambda d: (_two(d), {}),
    "smooth_l1_loss": lambda d: (_two(d), {"beta": d.number(0.3, 2)}),
    "huber_loss": lambda d: (_two(d), {"delta": d.number(0.3, 2)}),
    "binary_cross_entropy": lambda d: (_probabilities(d), {}),
    "binary_cross_entropy_with_logits": _binary,
    "cross_entropy": _cross_entropy,
    "nll_loss": _classified,
    "kl_div": _divergence,
    "hinge_embedding_loss": _embedded,
    "margin_ranking_loss": _ranked,
    "cosine_embedding_loss": _cosines,
    "triplet_margin_loss": _triplets,
    "triplet_margin_with_distance_loss": _triplets,
    "soft_margin_loss": lambda d: ((x := d.floats(d.shape(1, 3)), _signed(d, x.shape)), {}),
    "poisson_nll_loss": _counted,
    "gaussian_nll_loss": _gaussian,
    "multi_margin_loss": _multi_margin,
    "multilabel_margin_loss": _multilabel,
    "multilabel_soft_margin_loss": lambda d: (((p := _two(d))[0], np.float32(p[1] > 0)), {}),
}.items():
    _loss(_name, _draw)


def _similar(name: str) -> Function:
    def draw(d: Draw) -> Case:
        shape = d.shape(2, 3)
        arrays = d.floats(shape), d.floats(shape)
        return Case(
            getattr(f, name),
            lambda t, a, b: getattr(t.nn.functional, name)(a, b),
            arrays,
            growth=8,
        )

    return draw


for _name in ("cosine_similarity", "pairwise_distance"):
    subject(_name)(_similar(_name))
