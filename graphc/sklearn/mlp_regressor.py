"""A perceptron for regression, with scikit-learn's arguments."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.metrics import r2_score
from sklearn.utils import column_or_1d
from sklearn.utils.validation import validate_data

from graphc.base.dtypes import Array
from graphc.sklearn.mlp import MLP


class MLPRegressor(RegressorMixin, MLP):
    """A multi-layer perceptron for regression: sklearn.neural_network.MLPRegressor, compiled.

    Its arguments are those of `MLPClassifier`, and `loss`; see there.

    Args:
        loss: "squared_error", or "poisson" for counts, whose predictions are exponentials.
        hidden_layer_sizes: The number of units of each hidden layer.
        activation: That of hidden layers.
        solver: "adam" or "sgd".
        alpha: The factor of the squared weights in the loss.
        batch_size: The samples of a step; "auto" is min(200, n).
        learning_rate: Of "sgd": "constant", "invscaling" or "adaptive".
        learning_rate_init: The rate at first.
        power_t: The exponent of "invscaling".
        max_iter: The largest number of epochs.
        shuffle: Whether each epoch has an order of its own.
        random_state: A seed or numpy.random.RandomState.
        tol: What counts as better.
        verbose: Whether to print the loss of each epoch.
        warm_start: Whether `fit` goes on with the weights of the last one.
        momentum: Of "sgd".
        nesterovs_momentum: Of "sgd": whether it is Nesterov's.
        early_stopping: Whether to hold samples out, stop by their score and keep the best weights.
        validation_fraction: The fraction of samples to hold out.
        beta_1: Of "adam": the decay rate of the mean.
        beta_2: Of "adam": the decay rate of the mean of squares.
        epsilon: Of "adam": added to the denominator.
        n_iter_no_change: The number of epochs without a better one before `fit` stops.
        max_fun: Without effect.

    Attributes:
        coefs_: The weights of each layer f32 [in, out].
        intercepts_: The biases of each layer f32 [out].
        loss_curve_: The loss of each epoch.
        n_iter_: The number of epochs.

    Example:
        >>> from graphc.sklearn import MLPRegressor
        >>> x = np.random.default_rng(0).standard_normal((100, 2))
        >>> model = MLPRegressor(random_state=0, learning_rate_init=0.05).fit(x, x[:, 0])
        >>> bool(model.score(x, x[:, 0]) > 0.9)
        True
    """

    def __init__(
        self,
        loss: str = "squared_error",
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
        super().__init__(
            hidden_layer_sizes=hidden_layer_sizes,
            activation=activation,
            solver=solver,
            alpha=alpha,
            batch_size=batch_size,
            learning_rate=learning_rate,
            learning_rate_init=learning_rate_init,
            power_t=power_t,
            max_iter=max_iter,
            shuffle=shuffle,
            random_state=random_state,
            tol=tol,
            verbose=verbose,
            warm_start=warm_start,
            momentum=momentum,
            nesterovs_momentum=nesterovs_momentum,
            early_stopping=early_stopping,
            validation_fraction=validation_fraction,
            beta_1=beta_1,
            beta_2=beta_2,
            epsilon=epsilon,
            n_iter_no_change=n_iter_no_change,
            max_fun=max_fun,
        )
        self.loss = loss

    def partial_fit(self, X: Any, y: Any) -> Any:
        """Train for one epoch on some samples.

        Args:
            X: Samples [n, features].
            y: Targets [n] or [n, outputs].

        Returns:
            The estimator.

        Raises:
            ValueError: The data or an argument of the estimator is wrong.
        """
        return self._fit(X, y, incremental=True)

    def predict(self, X: Any) -> Array:
        """Return the prediction of each sample f32 [n], or [n, outputs].

        Args:
            X: Samples [n, features].
        """
        found = self._predicted(X)
        return found.ravel() if found.shape[1] == 1 else found

    def _score_of(self, found: Array, y: Array) -> float:
        return r2_score(y, found)

    def _checked(self, x: Any, y: Any, incremental: bool, reset: bool) -> tuple[Any, Array]:
        if self.loss not in ("squared_error", "poisson"):
            raise ValueError(
                f"MLPRegressor: loss expected 'squared_error' or 'poisson', got {self.loss!r}"
            )
        x, y = validate_data(
            self,
            x,
            y,
            accept_sparse=["csr"],
            multi_output=True,
            y_numeric=True,
            dtype=np.float32,
            order="C",
            reset=reset,
        )
        if y.ndim == 2 and y.shape[1] == 1:
            y = column_or_1d(y, warn=True)
        y = y.reshape(len(y), -1)
        if not reset and y.shape[1] != self.n_outputs_:
            raise ValueError(f"expected y with {self.n_outputs_} outputs, got {y.shape[1]}")
        if self.loss == "poisson" and (y < 0).any():
            raise ValueError("MLPRegressor: loss='poisson' expected y from 0 up, got less")
        return x, np.ascontiguousarray(y, np.float32)

    def _outputs(self, y: Array) -> int:
        return int(y.shape[1])

    def _output(self) -> str:
        return "exp" if self.loss == "poisson" else "identity"
