"""The base of the perceptrons: scikit-learn's training, each step a call of a program."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable
from numbers import Integral, Real
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, is_classifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import train_test_split
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from graphc.base.dtypes import Array
from graphc.program import Program
from graphc.sklearn.perceptron import Network, Step, Workspace, borrowed, moments
from graphc.sklearn.rounds import Rounds

GATHERED = 2**20
"""The bytes of samples that are gathered at a time, which stay in a cache."""


class MLP(BaseEstimator):
    """The base of `MLPClassifier` and `MLPRegressor`."""

    coefs_: list[Array]
    intercepts_: list[Array]

    def __init__(
        self,
        hidden_layer_sizes: Any = (100,),
        activation: str = "relu",
        *,
        solver: str = "adam",
        alpha: float = 0.0001,
        batch_size: Any = "auto",
        learning_rate: str = "constant",
        learning_rate_init: float = 0.001,
        power_t: float = 0.5,
        max_iter: int = 200,
        shuffle: bool = True,
        random_state: Any = None,
        tol: float = 1e-4,
        verbose: bool = False,
        warm_start: bool = False,
        momentum: float = 0.9,
        nesterovs_momentum: bool = True,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-8,
        n_iter_no_change: Any = 10,
        max_fun: int = 15000,
    ) -> None:
        self.hidden_layer_sizes = hidden_layer_sizes
        self.activation = activation
        self.solver = solver
        self.alpha = alpha
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.learning_rate_init = learning_rate_init
        self.power_t = power_t
        self.max_iter = max_iter
        self.shuffle = shuffle
        self.random_state = random_state
        self.tol = tol
        self.verbose = verbose
        self.warm_start = warm_start
        self.momentum = momentum
        self.nesterovs_momentum = nesterovs_momentum
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.beta_1 = beta_1
        self.beta_2 = beta_2
        self.epsilon = epsilon
        self.n_iter_no_change = n_iter_no_change
        self.max_fun = max_fun

    def fit(self, X: Any, y: Any) -> Any:
        """Fit the network to data, from new weights unless `warm_start` is set.

        Args:
            X: Samples [n, features], dense or sparse; computed with as float32.
            y: Targets [n] or [n, outputs].

        Returns:
            The estimator.

        Raises:
            ValueError: The data or an argument of the estimator is wrong.
        """
        return self._fit(X, y, incremental=False)

    def _fit(self, given: Any, targets: Any, incremental: bool) -> Any:
        self._check_arguments()
        if self.early_stopping and incremental:
            raise ValueError("partial_fit does not support early_stopping=True")
        first = not hasattr(self, "coefs_") or (not self.warm_start and not incremental)
        x, y = self._checked(given, targets, incremental, first)
        random = check_random_state(self.random_state)
        self.n_outputs_ = self._outputs(y)
        units = (x.shape[1], *map(int, self._hidden()), self.n_outputs_)
        if first:
            self._initialize(units, random)
        with borrowed(self._network()) as workspace:
            workspace.load(self.coefs_, self.intercepts_)
            try:
                self._train(workspace, x, y, random, incremental)
            finally:
                self.coefs_, self.intercepts_ = workspace.parameters()
        if not all(np.isfinite(w).all() for w in (*self.coefs_, *self.intercepts_)):
            raise ValueError(
                "Solver produced non-finite parameter weights. The input data may contain large "
                "values and need to be preprocessed."
            )
        return self

    def _initialize(self, units: tuple[int, ...], random: Any) -> None:
        """Draw the weights that scikit-learn draws for this random state."""
        self.n_iter_, self.t_, self.n_layers_ = 0, 0, len(units)
        self.out_activation_ = self._output()
        self.coefs_ = []
        self.intercepts_ = []
        factor = 2.0 if self.activation == "logistic" else 6.0
        for fan_in, fan_out in itertools.pairwise(units):
            bound = np.sqrt(factor / (fan_in + fan_out))
            self.coefs_.append(random.uniform(-bound, bound, (fan_in, fan_out)).astype(np.float32))
            self.intercepts_.append(random.uniform(-bound, bound, fan_out).astype(np.float32))
        self._rounds = Rounds(self.tol, bool(self.early_stopping))
        self._moments: dict[str, Array] | None = None
        self._rate = self.learning_rate_init

    def _train(
        self,
        workspace: Workspace,
        x: Any,
        y: Array,
        random: Any,
        incremental: bool,
    ) -> None:
        """Let the solver change the parameters of a workspace."""
        held = None
        if self.early_stopping:
            x, *held, y = self._split(x, y, random)
        if not incremental:
            self._moments, self._rate = None, self.learning_rate_init
        rows = _batch_rows(self.batch_size, len(y))
        made_for = self._step(rows)
        step = workspace.step(made_for, self._moments)
        epoch = Epoch(step, made_for.rows, x, y, rows, self.alpha)
        rounds, best = self._rounds, None
        rounds.tol, rounds.scored = self.tol, held is not None
        self.n_iter_, order = 0, np.arange(len(y))
        try:
            for _ in range(1 if incremental else self.max_iter):
                if self.shuffle:
                    order = order[_shuffled(len(order), random)]
                step.lr = self._rate
                loss = epoch.run(order)
                self.n_iter_ += 1
                self.t_ += len(order)
                score = None if held is None else self._scored(workspace, *held)
                self._say(f"Iteration {self.n_iter_}, loss = {loss:.8f}")
                if score is not None:
                    self._say(f"Validation score: {score:f}")
                if rounds.add(loss, score):
                    best = workspace.parameters()
                if self.solver == "sgd" and self.learning_rate == "invscaling":
                    self._rate = float(self.learning_rate_init) / (self.t_ + 1) ** self.power_t
                if self._stops(rounds):
                    break
                if not incremental and self.n_iter_ == self.max_iter:
                    warnings.warn(
                        f"Stochastic Optimizer: Maximum iterations ({self.max_iter}) reached and "
                        "the optimization hasn't converged yet.",
                        ConvergenceWarning,
                        stacklevel=4,
                    )
        except KeyboardInterrupt:
            warnings.warn("Training interrupted by user.", stacklevel=4)
        if incremental:
            self._moments = moments(step, workspace.model)
        if best is not None:
            workspace.load(*best)
        self._record(rounds, held is not None)

    def _stops(self, rounds: Rounds) -> bool:
        """Whether the solver has converged; if the rate adapts, it falls first."""
        reason = rounds.reason(self.n_iter_no_change)
        if not reason:
            return False
        if self.solver != "sgd" or self.learning_rate != "adaptive":
            self._say(f"{reason} Stopping.")
            return True
        if self._rate <= 1e-6:
            self._say(f"{reason} Learning rate too small. Stopping.")
            return True
        self._rate, rounds.unchanged = self._rate / 5.0, 0
        self._say(f"{reason} Setting learning rate to {self._rate:f}")
        return False

    def _record(self, rounds: Rounds, scored: bool) -> None:
        self.loss_curve_, self.loss_ = rounds.losses, rounds.losses[-1]
        self.best_loss_ = None if scored else rounds.best_loss
        self.validation_scores_ = rounds.scores if scored else None
        self.best_validation_score_ = rounds.best_score if scored else None

    def _split(self, x: Any, y: Array, random: Any) -> tuple[Any, Any, Array, Array]:
        """x to train with, x and y to validate with, y to train with, as scikit-learn splits."""
        train, test, y, y_test = train_test_split(
            x,
            y,
            random_state=random,
            test_size=self.validation_fraction,
            stratify=y if is_classifier(self) and self.n_outputs_ == 1 else None,
        )
        if test.shape[0] < 2:
            raise ValueError(
                "The validation set is too small. Increase 'validation_fraction' or the size of "
                "your dataset."
            )
        return train, test, y_test, y

    def _scored(self, workspace: Workspace, x: Any, y: Array) -> float:
        predicted = workspace.predict(x)
        if not np.isfinite(predicted).all():
            return float("nan")
        return float(self._score_of(predicted, y))

    def _predicted(self, given: Any) -> Array:
        """Probabilities or values [n, outputs]."""
        check_is_fitted(self)
        x = validate_data(self, given, accept_sparse=["csr"], dtype=np.float32, reset=False)
        with borrowed(self._network()) as workspace:
            workspace.load(self.coefs_, self.intercepts_)
            return workspace.predict(x)

    def _network(self) -> Network:
        units = (self.coefs_[0].shape[0], *(w.shape[1] for w in self.coefs_))
        return Network(units, self.activation, self.out_activation_)

    def _step(self, rows: int) -> Step:
        """What the program for batches of so many rows is made for.

        The batch of a few samples has zeros behind it, so that there are few programs.
        """
        most = 200 if self.batch_size == "auto" else int(self.batch_size)
        if self.solver == "sgd":
            numbers: tuple[float, ...] = (self.momentum, self.nesterovs_momentum)
        else:
            numbers = (self.beta_1, self.beta_2, self.epsilon)
        return Step(min(most, max(16, 1 << (rows - 1).bit_length())), self.solver, numbers)

    def _say(self, text: str) -> None:
        if self.verbose:
            print(text)

    def _hidden(self) -> list[Any]:
        """The number of units of each hidden layer; a single number stands for one layer."""
        sizes = self.hidden_layer_sizes
        return list(sizes) if hasattr(sizes, "__iter__") else [sizes]

    def _check_arguments(self) -> None:
        """ValueError for an argument of the estimator that is wrong, as scikit-learn has it."""
        sizes = self._hidden()
        if not all(isinstance(n, Integral) and int(n) > 0 for n in sizes):
            raise ValueError(f"hidden_layer_sizes must be > 0, got {sizes}.")
        for name, (accepted, says) in _ACCEPTED.items():
            value = getattr(self, name)
            if not accepted(value):
                kind = type(self).__name__
                raise ValueError(f"{kind}: {name} expected {says}, got {value!r}")

    def __sklearn_tags__(self) -> Any:
        """Return scikit-learn's description of the estimator."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


class Epoch:
    """Goes through samples in batches, with one training program.

    Several small batches are gathered at a time: memory for `GATHERED` bytes, or for one batch.
    """

    def __init__(self, step: Program, n: int, x: Any, y: Array, rows: int, alpha: float) -> None:
        self._step, self._x, self._y, self._n = step, x, y, n
        self._rows, self._alpha = rows, np.array(alpha, np.float32)
        batches = max(1, min(-(-len(y) // rows), GATHERED // (4 * rows * x.shape[1] + 1)))
        self._chunk = batches * rows
        self._gathered = np.zeros((self._chunk + n, x.shape[1]), np.float32)
        self._targets = np.zeros((self._chunk + n, *y.shape[1:]), y.dtype)
        self._weights = {
            count: (np.arange(n) < count).astype(np.float32) for count in {rows, len(y) % rows}
        }
        """The weight of each of a program's rows, by the number of samples: 1 or 0."""

    def run(self, order: Array) -> float:
        """Train with the samples in this order; return the mean loss."""
        total = 0.0
        for start in range(0, len(order), self._chunk):
            chosen = order[start : start + self._chunk]
            if hasattr(self._x, "toarray"):
                self._gathered[: len(chosen)] = self._x[chosen].toarray()
            else:
                self._x.take(chosen, 0, self._gathered[: len(chosen)], "clip")
            self._y.take(chosen, 0, self._targets[: len(chosen)], "clip")
            for first in range(0, len(chosen), self._rows):
                count = min(self._rows, len(chosen) - first)
                total += count * self._train(slice(first, first + self._n), count)
        return total / len(order)

    def _train(self, part: slice, count: int) -> float:
        weights = self._weights[count]
        found = self._step(self._gathered[part], self._targets[part], weights, self._alpha)
        return float(found[-1] if isinstance(found, tuple) else found)


def _shuffled(count: int, random: Any) -> Array:
    """What sklearn.utils.shuffle makes of range(count), in less time."""
    places = np.arange(count)
    random.shuffle(places)
    return places


def _batch_rows(given: Any, samples: int) -> int:
    if given == "auto":
        return min(200, samples)
    if given > samples:
        warnings.warn(
            "Got `batch_size` less than 1 or larger than sample size. It is going to be clipped",
            stacklevel=5,
        )
    return min(int(given), samples)


def _number(low: float, high: float = np.inf, open_low: bool = False) -> Callable[[Any], bool]:
    def accepts(value: Any) -> bool:
        if not isinstance(value, Real) or isinstance(value, bool):
            return False
        number = float(value)
        return low < number <= high if open_low else low <= number <= high

    return accepts


def _whole(value: Any) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= 1


def _one_of(*names: str) -> tuple[Callable[[Any], bool], str]:
    return lambda v: isinstance(v, str) and v in names, "one of " + ", ".join(map(repr, names))


def _flag(value: Any) -> bool:
    return isinstance(value, bool | np.bool_)


_FRACTION = (lambda v: _number(0, 1)(v) and v < 1), "a number from 0 up to 1"
_ACCEPTED: dict[str, tuple[Callable[[Any], bool], str]] = {
    "activation": _one_of("identity", "logistic", "tanh", "relu"),
    "solver": _one_of("sgd", "adam"),
    "alpha": (_number(0), "a number from 0 up"),
    "batch_size": (lambda v: _whole(v) or (isinstance(v, str) and v == "auto"), "a size or 'auto'"),
    "learning_rate": _one_of("constant", "invscaling", "adaptive"),
    "learning_rate_init": (_number(0, open_low=True), "a number above 0"),
    "power_t": (_number(0), "a number from 0 up"),
    "max_iter": (_whole, "a whole number from 1 up"),
    "shuffle": (_flag, "a bool"),
    "tol": (_number(0), "a number from 0 up"),
    "warm_start": (_flag, "a bool"),
    "momentum": (_number(0, 1), "a number from 0 to 1"),
    "nesterovs_momentum": (_flag, "a bool"),
    "early_stopping": (_flag, "a bool"),
    "validation_fraction": _FRACTION,
    "beta_1": _FRACTION,
    "beta_2": _FRACTION,
    "epsilon": (_number(0, open_low=True), "a number above 0"),
    "n_iter_no_change": (lambda v: _whole(v) or v == np.inf, "a whole number from 1 up or inf"),
    "max_fun": (_whole, "a whole number from 1 up"),
}
