"""Estimators of modules of one's own."""

from __future__ import annotations

import functools
import re
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits

import graphc
from graphc import nn, optim
from graphc.sklearn import Classifier, Regressor

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
X, Y = load_digits(return_X_y=True)
X, Y = X[:500].astype(np.float32) / 16, Y[:500]


def normed(features: int, outputs: int) -> nn.Module:
    return nn.Sequential(
        nn.Linear(features, 32),
        nn.BatchNorm1d(32),
        nn.ReLU(),
        nn.Dropout(0.1),
        nn.Linear(32, outputs),
    )


def convolutions(shape: tuple[int, ...], outputs: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(shape[0], 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, outputs)
    )


class Tagger(nn.Module):
    """Tokens to the classes of their text."""

    def __init__(self) -> None:
        self.table, self.head = nn.Embedding(20, 8), nn.Linear(8, 2)

    def forward(self, x: Any) -> Any:
        return self.head(graphc.mean(self.table(x), axis=1))


def test_a_module_with_norms_learns_and_ends_early() -> None:
    model = Classifier(normed, lr=0.01, max_iter=30, early_stopping=True, n_iter_no_change=4)
    model.set_params(random_state=0).fit(X, Y)
    assert model.score(X, Y) > 0.95
    assert len(model.validation_scores_) == model.n_iter_ == len(model.loss_curve_)
    assert model.module_[1].running_mean.numpy().any()


def test_samples_may_be_images() -> None:
    images = X.reshape(-1, 1, 8, 8)
    model = Classifier(convolutions, lr=0.01, max_iter=10, random_state=0).fit(images, Y)
    assert model.score(images, Y) > 0.95


def test_samples_may_be_tokens() -> None:
    tokens = np.random.default_rng(0).integers(0, 20, (200, 5))
    labels = np.where((tokens < 10).sum(axis=1) > 2, "low", "high")
    model = Classifier(Tagger(), dtype="int32", lr=0.05, max_iter=20).fit(tokens, labels)
    assert model.score(tokens, labels) > 0.9 and set(model.classes_) == {"high", "low"}


def test_a_module_is_copied_by_every_fit() -> None:
    module = nn.Linear(64, 10)
    before = module.weight.numpy()
    model = Classifier(module, max_iter=2, random_state=0).fit(X, Y)
    first = model.module_.weight.numpy()
    assert (module.weight.numpy() == before).all() and (first != before).any()
    assert (model.fit(X, Y).module_.weight.numpy() == first).all()
    losses = model.set_params(warm_start=True).fit(X, Y).loss_curve_
    assert len(losses) == 4 and losses[2] < losses[1]


def test_making_modules_leaves_the_seed_alone() -> None:
    graphc.seed(5)
    expected = nn.Linear(3, 3).weight.numpy()
    graphc.seed(5)
    Classifier(normed, max_iter=1, random_state=0).fit(X, Y)
    assert (nn.Linear(3, 3).weight.numpy() == expected).all()
    graphc.seed()


def test_a_fit_is_the_loop_that_one_would_write() -> None:
    rule = functools.partial(optim.SGD, momentum=0.9)
    module = nn.Linear(64, 1)
    model = Regressor(module, optimizer=rule, lr=0.01, batch_size=100, max_iter=3, shuffle=False)
    model.fit(X, Y / 10)
    step = graphc.compile(
        lambda m, x, y: graphc.mse_loss(m(x), y),
        module,
        graphc.spec((100, 64)),
        graphc.spec((100, 1)),
        update=rule(lr=0.01),
    )
    y = (Y / 10).astype(np.float32)[:, None]
    for _ in range(3):
        for start in range(0, 500, 100):
            step(X[start : start + 100], y[start : start + 100])
    assert (module.weight.numpy() == model.module_.weight.numpy()).all()


def test_a_loss_and_a_schedule_are_ones_own() -> None:
    model = Regressor(
        nn.Sequential(nn.Linear(64, 2)),
        loss=lambda output, y: graphc.mean(graphc.abs(output - y)),
        lr=optim.schedules.Cosine(0.05, 60),
        max_iter=15,
    )
    targets = np.stack([X.sum(axis=1) / 20, X[:, 3]], axis=1)
    model.fit(X, targets)
    difference = np.abs(model.predict(X) - targets).mean()
    assert difference < 0.2 and model.predict(X).shape == (500, 2)


# fmt: off
WRONG: list[tuple[Any, str]] = [
    (lambda: Classifier(normed, batch_size=0).fit(X, Y),
     "Classifier: batch_size expected a number from 1 up, got 0"),
    (lambda: Classifier(lambda features, outputs: 3).fit(X, Y),
     "Classifier: module expected a module or a function from (features, outputs) to one, got int"),
    (lambda: Classifier(nn.Linear(64, 3)).fit(X, Y),
     "Classifier: expected a module with outputs [n, 10], got [128, 3]"),
    (lambda: Classifier(normed).partial_fit(X, Y),
     "classes must be passed on the first call to partial_fit."),
    (lambda: Classifier(normed).partial_fit(X, Y, classes=[0, 1]),
     "`y` has classes not in `self.classes_`: [2 3 4 5 6 7 8 9]"),
    (lambda: Classifier(normed).partial_fit(X, Y, classes=range(10)).partial_fit(X, Y, [0, 1]),
     "`classes=[0, 1]` is not the same as on last call to partial_fit, was: [0 1 2"),
    (lambda: Regressor(normed, max_iter=1).fit(X, Y).partial_fit(X, X[:, :3]),
     "expected y with 1 outputs, got 3"),
]
# fmt: on


@pytest.mark.parametrize(("fit", "message"), WRONG, ids=[m for _, m in WRONG])
def test_a_mistake_is_named(fit: Any, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
        fit()
