"""A perceptron for classification, with scikit-learn's arguments."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.metrics import accuracy_score
from sklearn.preprocessing import LabelBinarizer
from sklearn.utils import column_or_1d
from sklearn.utils.multiclass import (
    _check_partial_fit_first_call,
    check_classification_targets,
    type_of_target,
    unique_labels,
)
from sklearn.utils.validation import validate_data

from graphc.base.dtypes import Array
from graphc.sklearn.mlp import MLP


class MLPClassifier(ClassifierMixin, MLP):
    """A multi-layer perceptron for classification: sklearn.neural_network.MLPClassifier, compiled.

    Arguments, attributes and the sequence of random numbers are scikit-learn's, so the weights
    begin and the batches come as there, and losses differ by rounding: everything is computed in
    float32. The solver "lbfgs" is not here.

    Programs are compiled once for equal sizes, and shared by all estimators of a process.

    Args:
        hidden_layer_sizes: The number of units of each hidden layer.
        activation: That of hidden layers: "identity", "logistic", "tanh" or "relu".
        solver: "adam" or "sgd".
        alpha: The factor of the squared weights in the loss.
        batch_size: The samples of a step; "auto" is min(200, n).
        learning_rate: Of "sgd": "constant"; "invscaling", which divides by t**power_t; or
            "adaptive", which divides by 5 when the loss stops to fall.
        learning_rate_init: The rate at first.
        power_t: The exponent of "invscaling".
        max_iter: The largest number of epochs.
        shuffle: Whether each epoch has an order of its own.
        random_state: A seed or numpy.random.RandomState for weights, orders and splits.
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
        max_fun: Without effect; scikit-learn's "lbfgs" has it.

    Attributes:
        classes_: The labels.
        coefs_: The weights of each layer f32 [in, out].
        intercepts_: The biases of each layer f32 [out].
        loss_curve_: The loss of each epoch.
        n_iter_: The number of epochs.

    Example:
        >>> from graphc.sklearn import MLPClassifier
        >>> x = np.random.default_rng(0).standard_normal((100, 2))
        >>> model = MLPClassifier(random_state=0, learning_rate_init=0.05).fit(x, x[:, 0] > 0)
        >>> bool(model.score(x, x[:, 0] > 0) > 0.9)
        True
    """

    def partial_fit(self, X: Any, y: Any, classes: Any = None) -> Any:
        """Train for one epoch on some samples.

        Args:
            X: Samples [n, features].
            y: Labels [n], or [n, labels] of 0 and 1.
            classes: All labels that may come; needed in the first call.

        Returns:
            The estimator.

        Raises:
            ValueError: The data or an argument of the estimator is wrong.
        """
        if _check_partial_fit_first_call(self, classes):
            several = type_of_target(y).startswith("multilabel")
            self._label_binarizer = LabelBinarizer().fit(y if several else classes)
        return self._fit(X, y, incremental=True)

    def predict(self, X: Any) -> Array:
        """Return the most likely label of each sample [n], or [n, labels] of 0 and 1.

        Args:
            X: Samples [n, features].
        """
        return self._labels(self._predicted(X))

    def predict_proba(self, X: Any) -> Array:
        """Return the probability of each class f32 [n, classes].

        Args:
            X: Samples [n, features].
        """
        found = self._predicted(X)
        if self.n_outputs_ > 1:
            return found
        return np.concatenate([1 - found, found], axis=1)

    def predict_log_proba(self, X: Any) -> Array:
        """Return the logarithm of `predict_proba`.

        Args:
            X: Samples [n, features].
        """
        with np.errstate(divide="ignore"):
            return np.log(self.predict_proba(X))

    def _labels(self, found: Array) -> Array:
        if self.out_activation_ == "softmax":
            return self.classes_[found.argmax(axis=1)]
        found = found.ravel() if self.n_outputs_ == 1 else found
        return self._label_binarizer.inverse_transform(found)

    def _score_of(self, found: Array, y: Array) -> float:
        if self.out_activation_ == "softmax":
            return accuracy_score(y, found.argmax(axis=1))
        return accuracy_score(y > 0.5, found > 0.5)

    def _checked(self, x: Any, y: Any, incremental: bool, reset: bool) -> tuple[Any, Array]:
        x, y = validate_data(
            self,
            x,
            y,
            accept_sparse=["csr"],
            multi_output=True,
            dtype=np.float32,
            order="C",
            reset=reset,
        )
        check_classification_targets(y)
        if y.ndim == 2 and y.shape[1] == 1:
            y = column_or_1d(y, warn=True)
        if not hasattr(self, "classes_") or (not self.warm_start and not incremental):
            self._label_binarizer = LabelBinarizer().fit(y)
            self.classes_ = self._label_binarizer.classes_
        else:
            self._check_labels(unique_labels(y))
        if self._label_binarizer.y_type_ == "multiclass":
            return x, np.searchsorted(self.classes_, y).astype(np.int32)
        return x, self._label_binarizer.transform(y).astype(np.float32)

    def _check_labels(self, labels: Array) -> None:
        """ValueError if labels are none of the earlier calls'."""
        if self.warm_start and set(labels) != set(self.classes_):
            raise ValueError(
                "warm_start can only be used where `y` has the same classes as in the previous "
                f"call to fit. Previously got {self.classes_}, `y` has {labels}"
            )
        if len(np.setdiff1d(labels, self.classes_, assume_unique=True)):
            raise ValueError(
                f"`y` has classes not in `self.classes_`. `self.classes_` has {self.classes_}. "
                f"'y' has {labels}."
            )

    def _outputs(self, y: Array) -> int:
        return len(self.classes_) if y.ndim == 1 else y.shape[1]

    def _output(self) -> str:
        return "softmax" if self._label_binarizer.y_type_ == "multiclass" else "logistic"

    def __sklearn_tags__(self) -> Any:
        """Return scikit-learn's description of the estimator."""
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags
