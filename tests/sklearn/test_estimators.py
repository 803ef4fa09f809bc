"""The estimators are estimators: scikit-learn's own checks, pipelines, searches, pickles."""

from __future__ import annotations

import pickle
import warnings
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

from graphc import nn
from graphc.sklearn import Classifier, MLPClassifier, MLPRegressor, Regressor

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
X, Y = load_digits(return_X_y=True)
X, Y = X[:500], Y[:500]


def network(features: int, outputs: int) -> nn.Module:
    return nn.Sequential(nn.Linear(features, 32), nn.ReLU(), nn.Linear(32, outputs))


ESTIMATORS = [
    MLPClassifier(max_iter=100),
    MLPRegressor(max_iter=100),
    Classifier(network, lr=0.02, max_iter=100),
    Regressor(network, lr=0.02, max_iter=100),
]


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda e: type(e).__name__)
def test_scikit_learn_s_checks_pass(estimator: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = check_estimator(estimator, on_skip=None)
    assert len(found) > 40
    assert {check["status"] for check in found} <= {"passed", "skipped"}


SMALL = [MLPClassifier((16,), max_iter=8, random_state=0), Classifier(network, max_iter=8, lr=0.01)]


@pytest.mark.parametrize("estimator", SMALL, ids=lambda e: type(e).__name__)
def test_a_pipeline_is_searched_by_two_processes(estimator: Any) -> None:
    name = type(estimator).__name__.lower()
    rate = "learning_rate_init" if "mlp" in name else "lr"
    pipeline = make_pipeline(StandardScaler(), clone(estimator))
    search = GridSearchCV(pipeline, {f"{name}__{rate}": [1e-5, 0.02]}, cv=2, n_jobs=2)
    search.fit(X, Y)
    assert search.best_params_ == {f"{name}__{rate}": 0.02}
    assert search.score(X, Y) > 0.9


@pytest.mark.parametrize("estimator", SMALL, ids=lambda e: type(e).__name__)
def test_a_fitted_estimator_is_pickled(estimator: Any) -> None:
    model = clone(estimator).fit(X, Y)
    again = pickle.loads(pickle.dumps(model))
    assert (again.predict_proba(X) == model.predict_proba(X)).all()
    for one in (model, again):
        one.set_params(random_state=4).partial_fit(X, Y).partial_fit(X, Y)
    assert (again.predict_proba(X) == model.predict_proba(X)).all()
    assert again.loss_curve_ == model.loss_curve_


@pytest.mark.parametrize("estimator", SMALL, ids=lambda e: type(e).__name__)
def test_a_random_state_determines_the_fit(estimator: Any) -> None:
    first, second, other = (
        clone(estimator).set_params(random_state=seed).fit(X, Y).loss_curve_ for seed in (1, 1, 2)
    )
    assert first == second != other
    assert np.isfinite(first).all()
