"""A regressor of a module of one's own."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils import column_or_1d
from sklearn.utils.validation import validate_data

from graphc import functions
from graphc.base.dtypes import Array
from graphc.sklearn.module_estimator import ModuleEstimator
from graphc.trace import Tensor


class Regressor(RegressorMixin, ModuleEstimator):
    """A regressor that trains a module whose outputs are [n] or [n, outputs].

    Its arguments are those of `Classifier`.

    Args:
        module: A module, of which `fit` trains a copy; or a function from (features, outputs) to a
            new one.
        loss: A function from (outputs [n, outputs], targets [n, outputs]) to a scalar; by default
            the mean of squared differences.
        optimizer: A class of `graphc.optim`, or a function that takes `lr=` and returns a rule.
        lr: The learning rate, or a schedule.
        batch_size: The samples of a step.
        max_iter: The largest number of epochs.
        shuffle: Whether each epoch has an order of its own.
        random_state: A seed or numpy.random.RandomState.
        tol: What counts as better.
        early_stopping: Whether to hold samples out, stop by their score and keep the best weights.
        validation_fraction: The fraction of samples to hold out.
        n_iter_no_change: The number of epochs without a better one before `fit` stops.
        warm_start: Whether `fit` goes on with the module of the last one.
        verbose: Whether to print the loss of each epoch.
        dtype: The dtype of samples.

    Attributes:
        module_: The trained module.
        loss_curve_: The loss of each epoch.
        n_iter_: The number of epochs of the last fit.

    Example:
        >>> from graphc.sklearn import Regressor
        >>> x = np.random.default_rng(0).standard_normal((100, 2))
        >>> model = Regressor(nn.Linear(2, 1), lr=0.1, tol=1e-3).fit(x, x[:, 0])
        >>> bool(model.score(x, x[:, 0]) > 0.9)
        True
    """

    _target_dtype = "float32"

    def partial_fit(self, X: Any, y: Any) -> Any:
        """Train for one epoch on some samples.

        Args:
            X: Samples [n, ...].
            y: Targets [n] or [n, outputs].

        Returns:
            The estimator.

        Raises:
            ValueError: The data or an argument of the estimator is wrong.
        """
        return self._fit(X, y, 1, not hasattr(self, "module_"))

    def predict(self, X: Any) -> Array:
        """Return the prediction of each sample f32 [n], or [n, outputs].

        Args:
            X: Samples [n, ...].
        """
        found = self._predicted(X)
        return found.ravel() if found.shape[1] == 1 else found

    @property
    def _target_shape(self) -> tuple[int, ...]:
        return (self.n_outputs_,)

    def _checked(self, x: Any, y: Any, new: bool, classes: Any) -> tuple[Array, Array]:
        x, y = validate_data(
            self,
            x,
            y,
            dtype=self.dtype,
            allow_nd=True,
            order="C",
            multi_output=True,
            y_numeric=True,
            reset=new,
        )
        if y.ndim == 2 and y.shape[1] == 1:
            y = column_or_1d(y, warn=True)
        y = np.ascontiguousarray(y.reshape(len(y), -1), np.float32)
        if not new and y.shape[1] != self.n_outputs_:
            raise ValueError(f"expected y with {self.n_outputs_} outputs, got {y.shape[1]}")
        self.n_outputs_ = y.shape[1]
        return x, y

    def _default_loss(self, output: Tensor, y: Tensor) -> Tensor:
        return functions.mse_loss(output, y)

    def _shown(self, output: Tensor) -> Tensor:
        return self._whole(output)
