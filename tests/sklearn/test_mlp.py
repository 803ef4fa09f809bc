"""Perceptrons learn as scikit-learn's do: the same weights at first, the same batches, losses equal
up to rounding."""

from __future__ import annotations

import pickle
import re
import warnings
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from sklearn import neural_network
from sklearn.datasets import load_digits, make_classification, make_multilabel_classification
from sklearn.exceptions import ConvergenceWarning

import graphc.sklearn
from graphc.sklearn import MLPClassifier, MLPRegressor, perceptron

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
DIGITS, LABELS = load_digits(return_X_y=True)
DIGITS = DIGITS[:700] / 16
LABELS = LABELS[:700]
TWO = make_classification(300, 12, random_state=0)
SEVERAL = make_multilabel_classification(250, 10, n_classes=4, random_state=0)
RANDOM = np.random.default_rng(0)
VALUES = RANDOM.standard_normal((230, 6))
ONE = VALUES @ RANDOM.standard_normal(6) + np.sin(VALUES[:, 0])
MANY = np.stack([ONE, VALUES[:, 1] ** 2, VALUES[:, 2]], axis=1)
SGD = {"solver": "sgd", "learning_rate_init": 0.05}
# fmt: off
CLASSIFIERS: list[tuple[str, Any, dict[str, Any]]] = [
    ("digits", (DIGITS, LABELS), {}),
    ("names of classes", (DIGITS, np.array(list("zyxwvutsrq"))[LABELS]), {"batch_size": 64}),
    ("two classes", TWO, {"hidden_layer_sizes": (20, 10), "activation": "tanh"}),
    ("several labels", SEVERAL, {"activation": "logistic", "alpha": 0.1}),
    ("few samples", (TWO[0][:37], TWO[1][:37]), {"hidden_layer_sizes": 7}),
    ("in order", TWO, {"shuffle": False, "batch_size": 70}),
    ("linear", TWO, {"hidden_layer_sizes": (), "activation": "identity"}),
    ("betas", TWO, {"beta_1": 0.8, "beta_2": 0.9, "epsilon": 1e-3}),
    ("held out", (DIGITS, LABELS), {"early_stopping": True, "learning_rate_init": 0.01}),
    ("held out of two", TWO, {"early_stopping": True, "validation_fraction": 0.3}),
    ("sgd", TWO, SGD),
    ("plain momentum", TWO, {**SGD, "nesterovs_momentum": False, "momentum": 0.5}),
    ("inverse scaling", TWO, {**SGD, "learning_rate": "invscaling", "power_t": 0.3}),
    ("adaptive", TWO, {**SGD, "learning_rate": "adaptive", "tol": 0.02, "n_iter_no_change": 2}),
    ("early end", TWO, {"tol": 0.05, "n_iter_no_change": 3}),
]
REGRESSORS: list[tuple[str, Any, dict[str, Any]]] = [
    ("one output", (VALUES, ONE), {"learning_rate_init": 0.01}),
    ("several outputs", (VALUES, MANY), {"learning_rate_init": 0.01, "batch_size": 50}),
    ("held out", (VALUES, ONE), {"early_stopping": True, "learning_rate_init": 0.02}),
    ("sgd", (VALUES, ONE), {"solver": "sgd", "learning_rate_init": 0.01}),
    ("counts", (VALUES, np.round(np.exp(ONE / 4))), {"loss": "poisson"}),
]
# fmt: on
SAME = [
    *((MLPClassifier, neural_network.MLPClassifier, *case) for case in CLASSIFIERS),
    *((MLPRegressor, neural_network.MLPRegressor, *case) for case in REGRESSORS),
]


def same(ours: Any, theirs: Any, x: Any, tolerance: float = 1e-3) -> None:
    """Losses, scores, weights and predictions are equal up to rounding."""
    assert ours.n_iter_ == theirs.n_iter_ and ours.t_ == theirs.t_
    assert ours.n_layers_ == theirs.n_layers_ and ours.out_activation_ == theirs.out_activation_
    np.testing.assert_allclose(ours.loss_curve_, theirs.loss_curve_, rtol=tolerance)
    assert ours.loss_ == ours.loss_curve_[-1]
    if theirs.validation_scores_ is None:
        assert ours.validation_scores_ is ours.best_validation_score_ is None
        assert ours.best_loss_ == pytest.approx(theirs.best_loss_, rel=tolerance)
    else:
        np.testing.assert_allclose(ours.validation_scores_, theirs.validation_scores_, atol=0.02)
    for own, other in zip(ours.coefs_, theirs.coefs_, strict=True):
        assert own.dtype == np.float32
        np.testing.assert_allclose(own, other, atol=20 * tolerance)
    if hasattr(theirs, "predict_proba"):
        np.testing.assert_allclose(
            ours.predict_proba(x), theirs.predict_proba(x), atol=10 * tolerance
        )
        assert (ours.predict(x) == theirs.predict(x)).mean() > 0.99
        assert (ours.classes_ == theirs.classes_).all()
    else:
        np.testing.assert_allclose(ours.predict(x), theirs.predict(x), atol=20 * tolerance)


@pytest.mark.parametrize(
    ("own", "other", "name", "data", "options"), SAME, ids=[f"{s[0].__name__} {s[2]}" for s in SAME]
)
def test_a_fit_is_that_of_scikit_learn(
    own: Any, other: Any, name: str, data: Any, options: dict[str, Any]
) -> None:
    del name
    if options.get("loss") == "poisson" and "loss" not in other().get_params():
        pytest.skip("this scikit-learn has no Poisson loss")
    arguments = {"hidden_layer_sizes": (24,), "random_state": 3, "max_iter": 12, **options}
    same(own(**arguments).fit(*data), other(**arguments).fit(*data), data[0])


def test_the_arguments_and_defaults_are_those_of_scikit_learn() -> None:
    for ours, theirs in ((MLPClassifier, neural_network.MLPClassifier),):
        assert ours().get_params() == theirs().get_params()
    theirs = {"loss": "squared_error", **neural_network.MLPRegressor().get_params()}
    assert MLPRegressor().get_params() == theirs


@pytest.mark.parametrize("options", [{}, SGD], ids=["adam", "sgd"])
def test_partial_fits_go_on_with_the_moments(options: dict[str, Any]) -> None:
    ours, theirs = (
        kind(random_state=1, hidden_layer_sizes=(8,), batch_size=50, **options)
        for kind in (MLPClassifier, neural_network.MLPClassifier)
    )
    for part in range(6):
        rows = slice(50 * part, 50 * part + 50)
        for model in (ours, theirs):
            model.partial_fit(TWO[0][rows], TWO[1][rows], classes=[0, 1] if part == 0 else None)
        ours = pickle.loads(pickle.dumps(ours))
    same(ours, theirs, TWO[0])


def test_partial_fits_of_a_regressor_and_of_labels_likewise() -> None:
    for kind, other, data in (
        (MLPRegressor, neural_network.MLPRegressor, (VALUES, ONE)),
        (MLPClassifier, neural_network.MLPClassifier, SEVERAL),
    ):
        first = {"classes": list(range(4))} if data is SEVERAL else {}
        models = [k(random_state=1, hidden_layer_sizes=(8,)) for k in (kind, other)]
        for model in models:
            model.partial_fit(*data, **first).partial_fit(*data)
        same(*models, data[0])


def test_a_warm_start_goes_on_with_the_weights() -> None:
    models = [
        kind(random_state=1, hidden_layer_sizes=(8,), warm_start=True, max_iter=5)
        for kind in (MLPClassifier, neural_network.MLPClassifier)
    ]
    for model in models:
        model.fit(*TWO)
        model.set_params(learning_rate_init=0.01).fit(*TWO)
        assert len(model.loss_curve_) == 10
    same(*models, TWO[0])


def test_sparse_samples_are_samples() -> None:
    dense = MLPClassifier(random_state=0, max_iter=4).fit(DIGITS, LABELS)
    sparse = MLPClassifier(random_state=0, max_iter=4).fit(csr_matrix(DIGITS), LABELS)
    assert dense.loss_curve_ == sparse.loss_curve_
    assert (dense.predict_proba(DIGITS) == sparse.predict_proba(csr_matrix(DIGITS))).all()


def test_a_prediction_does_not_depend_on_the_other_samples() -> None:
    model = MLPClassifier(random_state=0, max_iter=3).fit(DIGITS, LABELS)
    whole = model.predict_proba(DIGITS)
    for rows in (slice(0, 1), slice(3, 20), slice(100, 350)):
        assert (model.predict_proba(DIGITS[rows]) == whole[rows]).all()
    np.testing.assert_allclose(model.predict_log_proba(DIGITS), np.log(whole))


def test_programs_are_compiled_once_for_equal_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    compile = perceptron.compile

    def counted(function: Any, *args: Any, **options: Any) -> Any:
        made.append(function.__name__)
        return compile(function, *args, **options)

    monkeypatch.setattr(perceptron, "compile", counted)
    monkeypatch.setattr(perceptron, "_idle", type(perceptron._idle)())
    for seed in range(3):
        options = {"alpha": 0.1 * seed, "learning_rate_init": 0.01 * (seed + 1)}
        model = MLPClassifier((11,), random_state=seed, max_iter=2, **options)
        model.fit(*TWO).predict(TWO[0])
        model.partial_fit(TWO[0][:180], TWO[1][:180])
    assert made == ["objective", "predicted"]
    with perceptron.borrowed(model._network()) as first:
        with perceptron.borrowed(model._network()) as second:
            assert first is not second
    for units in range(perceptron.KEPT + 5):
        with perceptron.borrowed(perceptron.Network((2, units + 1), "relu", "identity")):
            pass
    assert len(perceptron._idle) == perceptron.KEPT


def test_an_interrupted_fit_keeps_what_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    model = MLPClassifier((8,), random_state=0, max_iter=50)

    def interrupted(text: str) -> None:
        if text.startswith("Iteration 3"):
            raise KeyboardInterrupt

    monkeypatch.setattr(model, "_say", interrupted)
    with pytest.warns(UserWarning, match=r"^Training interrupted by user\.$"):
        model.fit(*TWO)
    assert model.n_iter_ == 3 and model.predict(TWO[0]).shape == (300,)


def test_what_is_printed_is_scikit_learn_s(capsys: pytest.CaptureFixture[str]) -> None:
    options = {**SGD, "learning_rate": "adaptive", "tol": 0.5, "n_iter_no_change": 1}
    said = []
    for kind in (MLPClassifier, neural_network.MLPClassifier):
        kind((8,), random_state=0, max_iter=60, verbose=True, **options).fit(*TWO)
        said.append(re.sub(r"\d{4}$", "", capsys.readouterr().out, flags=re.M).splitlines())
    assert said[0] == said[1] and "Learning rate too small" in said[0][-1]


def test_warnings_are_scikit_learn_s() -> None:
    with pytest.warns(ConvergenceWarning, match=r"Maximum iterations \(1\) reached"):
        MLPClassifier((8,), max_iter=1).fit(*TWO)
    with pytest.warns(UserWarning, match="Got `batch_size` less than 1 or larger than sample size"):
        MLPClassifier((8,), max_iter=1, batch_size=1000).fit(*TWO)


# fmt: off
WRONG: list[tuple[Any, str]] = [
    (lambda: MLPClassifier(alpha=-1).fit(*TWO),
     "MLPClassifier: alpha expected a number from 0 up, got -1"),
    (lambda: MLPClassifier(solver="lbfgs").fit(*TWO),
     "MLPClassifier: solver expected one of 'sgd', 'adam', got 'lbfgs'"),
    (lambda: MLPClassifier(beta_1=1).fit(*TWO),
     "MLPClassifier: beta_1 expected a number from 0 up to 1, got 1"),
    (lambda: MLPRegressor(max_iter=0).fit(VALUES, ONE),
     "MLPRegressor: max_iter expected a whole number from 1 up, got 0"),
    (lambda: MLPRegressor(batch_size="all").fit(VALUES, ONE),
     "MLPRegressor: batch_size expected a size or 'auto', got 'all'"),
    (lambda: MLPRegressor(shuffle=1).fit(VALUES, ONE),
     "MLPRegressor: shuffle expected a bool, got 1"),
    (lambda: MLPRegressor(learning_rate_init=0).fit(VALUES, ONE),
     "MLPRegressor: learning_rate_init expected a number above 0, got 0"),
    (lambda: MLPRegressor(loss="huber").fit(VALUES, ONE),
     "MLPRegressor: loss expected 'squared_error' or 'poisson', got 'huber'"),
    (lambda: MLPRegressor(loss="poisson").fit(VALUES, ONE),
     "MLPRegressor: loss='poisson' expected y from 0 up, got less"),
    (lambda: MLPClassifier((3, 0)).fit(*TWO), "hidden_layer_sizes must be > 0, got [3, 0]."),
    (lambda: MLPClassifier(early_stopping=True).partial_fit(*TWO, classes=[0, 1]),
     "partial_fit does not support early_stopping=True"),
    (lambda: MLPClassifier().partial_fit(*TWO),
     "classes must be passed on the first call to partial_fit."),
    (lambda: MLPRegressor(early_stopping=True).fit(VALUES[:10], ONE[:10]),
     "The validation set is too small."),
    (lambda: MLPRegressor(max_iter=1).fit(VALUES, ONE).partial_fit(VALUES, MANY),
     "expected y with 1 outputs, got 3"),
    (lambda: MLPClassifier(max_iter=1).fit(*TWO).partial_fit(TWO[0], TWO[1] + 1),
     "`y` has classes not in `self.classes_`."),
    (lambda: MLPClassifier(max_iter=1, warm_start=True).fit(*TWO).fit(TWO[0], TWO[1] + 1),
     "warm_start can only be used where `y` has the same classes"),
    (lambda: MLPRegressor(solver="sgd", learning_rate_init=1e6, max_iter=9).fit(VALUES, ONE),
     "Solver produced non-finite parameter weights."),
]
# fmt: on


@pytest.mark.parametrize(("fit", "message"), WRONG, ids=[m for _, m in WRONG])
def test_a_mistake_is_named(fit: Any, message: str) -> None:
    with warnings.catch_warnings(), pytest.raises(ValueError, match=f"^{re.escape(message)}"):
        warnings.simplefilter("ignore")
        fit()


def test_the_package_of_that_name_is_still_there() -> None:
    import sklearn

    assert sklearn is not graphc.sklearn and hasattr(sklearn, "pipeline")
