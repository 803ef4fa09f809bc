"""A classifier of a module of one's own."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils import column_or_1d
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data

from graphc import functions
from graphc.base.dtypes import Array
from graphc.sklearn.module_estimator import ModuleEstimator
from graphc.trace import Tensor


class Classifier(ClassifierMixin, ModuleEstimator):
    """A classifier that trains a module whose outputs [n, classes] are logits.

    It takes `fit`, `partial_fit` and pickling, and a place in a Pipeline or a GridSearchCV, as any
    estimator does. The last batch of an epoch has fewer samples, and a plan of its own.

    Args:
        module: A module, of which `fit` trains a copy; or a function from (features, classes) to a
            new one, where features is a number, or a shape for samples of more axes. Weights drawn
            by it follow `random_state`.
        loss: A function from (logits [n, classes], labels i32 [n]) to a scalar; by default the
            cross-entropy.
        optimizer: A class of `graphc.optim`, or a function that takes `lr=` and returns a rule,
            such as `functools.partial(optim.SGD, momentum=0.9)`.
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
        dtype: The dtype of samples, "int32" for tokens.

    Attributes:
        module_: The trained module.
        classes_: The labels.
        loss_curve_: The loss of each epoch.
        n_iter_: The number of epochs of the last fit.

    Example:
        >>> from graphc.sklearn import Classifier
        >>> x = np.random.default_rng(0).standard_normal((100, 2))
        >>> model = Classifier(nn.Linear(2, 2), lr=0.1, random_state=0)
        >>> import warnings
        >>> with warnings.catch_warnings(action="ignore"):
        ...     bool(model.fit(x, x[:, 0] > 0).score(x, x[:, 0] > 0) > 0.9)
        True
    """

    _target_dtype, _target_shape = "int32", ()

    def partial_fit(self, X: Any, y: Any, classes: Any = None) -> Any:
        """Train for one epoch on some samples.

        Args:
            X: Samples [n, ...].
            y: Labels [n].
            classes: All labels that may come; needed in the first call.

        Returns:
            The estimator.

        Raises:
            ValueError: The data or an argument of the estimator is wrong.
        """
        new = not hasattr(self, "module_")
        if new and classes is None:
            raise ValueError("classes must be passed on the first call to partial_fit.")
        found = None if classes is None else np.unique(classes)
        if not new and found is not None and not np.array_equal(found, self.classes_):
            raise ValueError(
                f"`classes={classes}` is not the same as on last call to partial_fit, was: "
                f"{self.classes_}"
            )
        return self._fit(X, y, 1, new, found)

    def predict(self, X: Any) -> Array:
        """Return the most likely label of each sample [n].

        Args:
            X: Samples [n, ...].
        """
        chosen = self._predicted(X).argmax(axis=1)
        return self.classes_[chosen]

    def predict_proba(self, X: Any) -> Array:
        """Return the probability of each class f32 [n, classes].

        Args:
            X: Samples [n, ...].
        """
        return self._predicted(X)

    def predict_log_proba(self, X: Any) -> Array:
        """Return the logarithm of `predict_proba`.

        Args:
            X: Samples [n, ...].
        """
        with np.errstate(divide="ignore"):
            return np.log(self.predict_proba(X))

    def _checked(self, x: Any, y: Any, new: bool, classes: Any) -> tuple[Array, Array]:
        x, y = validate_data(self, x, y, dtype=self.dtype, allow_nd=True, order="C", reset=new)
        check_classification_targets(y)
        y = column_or_1d(y, warn=True)
        if new:
            self.classes_ = np.unique(y) if classes is None else classes
        absent = np.setdiff1d(y, self.classes_)
        if len(absent):
            raise ValueError(f"`y` has classes not in `self.classes_`: {absent}")
        self.n_outputs_ = len(self.classes_)
        return x, np.searchsorted(self.classes_, y).astype(np.int32)

    def _targets(self, y: Array) -> Array:
        return self.classes_[y]

    def _default_loss(self, output: Tensor, y: Tensor) -> Tensor:
        return functions.cross_entropy(output, y)

    def _shown(self, output: Tensor) -> Tensor:
        return functions.softmax(self._whole(output), 1)
