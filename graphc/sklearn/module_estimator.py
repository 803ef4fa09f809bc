"""The base of the estimators of modules of one's own."""

from __future__ import annotations

import copy
import threading
import warnings
from collections.abc import Callable
from typing import Any, ClassVar

from sklearn.base import BaseEstimator, is_classifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import train_test_split
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from graphc import nn, optim
from graphc.base.dtypes import Array
from graphc.base.locks import ESTIMATORS, free_after_fork
from graphc.data import Batches
from graphc.nn.initialize import seeded
from graphc.program import Buckets, SizedProgram, compile
from graphc.sklearn.perceptron import ROWS, in_parts, moments, threads
from graphc.sklearn.rounds import Rounds
from graphc.trace import Tensor, spec

_making = free_after_fork(threading.Lock(), ESTIMATORS)
"""Held while a module draws its weights: the generator is the process's."""


class ModuleEstimator(BaseEstimator):
    """The base of `Classifier` and `Regressor`."""

    _required_parameters: ClassVar[list[str]] = ["module"]
    _moments: dict[str, Array] | None
    _programs: dict[str, SizedProgram]
    n_outputs_: int

    def __init__(
        self,
        module: Any,
        *,
        loss: Callable[[Tensor, Tensor], Tensor] | None = None,
        optimizer: Any = optim.Adam,
        lr: Any = 0.001,
        batch_size: int = 128,
        max_iter: int = 50,
        shuffle: bool = True,
        random_state: Any = None,
        tol: float = 1e-4,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 10,
        warm_start: bool = False,
        verbose: bool = False,
        dtype: str = "float32",
    ) -> None:
        self.module = module
        self.loss = loss
        self.optimizer = optimizer
        self.lr = lr
        self.batch_size = batch_size
        self.max_iter = max_iter
        self.shuffle = shuffle
        self.random_state = random_state
        self.tol = tol
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.warm_start = warm_start
        self.verbose = verbose
        self.dtype = dtype

    def fit(self, X: Any, y: Any) -> Any:
        """Train the module, a new one unless `warm_start` is set.

        Args:
            X: Samples [n, ...].
            y: Targets [n], for a regressor also [n, outputs].

        Returns:
            The estimator.

        Raises:
            ValueError: The data or an argument of the estimator is wrong.
        """
        return self._fit(X, y, self.max_iter, not self.warm_start or not hasattr(self, "module_"))

    def _fit(self, given: Any, targets: Any, epochs: int, new: bool, classes: Any = None) -> Any:
        for name in ("batch_size", "max_iter", "n_iter_no_change"):
            value = getattr(self, name)
            if isinstance(value, bool) or not value >= 1:
                kind = type(self).__name__
                raise ValueError(f"{kind}: {name} expected a number from 1 up, got {value!r}")
        x, y = self._checked(given, targets, new, classes)
        random = check_random_state(self.random_state)
        if new:
            self._begin(x.shape[1:], random.randint(2**31 - 1))
        held = None
        if self.early_stopping and epochs > 1:
            x, *held, y = self._split(x, y, random)
        step = self._stepping(x.shape[1:])
        seed = random.randint(2**31 - 1) if self.shuffle else None
        batches = Batches((x, y), self.batch_size, shuffle=seed, last="bucket")
        best, before = None, len(self._rounds.losses)
        self._rounds.scored = held is not None
        for epoch in range(epochs):
            losses = [float(step(*batch)) * len(batch[1]) for batch in batches]
            score = None if held is None else self.score(*held)
            loss = sum(losses) / len(y)
            if self.verbose:
                print(f"Iteration {epoch + 1}, loss = {loss:.8f}")
            if self._rounds.add(loss, score):
                best = self.module_.state_dict()
            if self._rounds.reason(self.n_iter_no_change):
                break
        else:
            if epochs > 1:
                warnings.warn(
                    f"Maximum iterations ({epochs}) reached and the optimization hasn't converged "
                    "yet.",
                    ConvergenceWarning,
                    stacklevel=3,
                )
        self.n_iter_ = len(self._rounds.losses) - before
        if best is not None:
            self.module_.load_state_dict(best)
        self.loss_curve_, self.loss_ = self._rounds.losses, self._rounds.losses[-1]
        self.validation_scores_ = self._rounds.scores if held is not None else None
        self._moments = moments(step, self.module_)
        return self

    def _begin(self, shape: tuple[int, ...], seed: int) -> None:
        """Make a new module, and forget what belonged to an earlier one."""
        if isinstance(self.module, nn.Module):
            self.module_ = copy.deepcopy(self.module)
        else:
            with _making, seeded(seed):
                features = shape[0] if len(shape) == 1 else shape
                self.module_ = self.module(features, self.n_outputs_)
            if not isinstance(self.module_, nn.Module):
                raise ValueError(
                    f"{type(self).__name__}: module expected a module or a function from "
                    f"(features, outputs) to one, got {type(self.module_).__name__}"
                )
        self._seed, self._rounds = seed, Rounds(self.tol, bool(self.early_stopping))
        self._moments, self._programs = None, {}

    def _stepping(self, shape: tuple[int, ...]) -> SizedProgram:
        """The training program, compiled when it is first needed."""
        if "step" not in self._programs:
            step = self._compiled(
                self._objective,
                spec(("batch", *shape), self.dtype),
                spec(("batch", *self._target_shape), self._target_dtype),
                update=self.optimizer(lr=self.lr),
                seed=self._seed,
            )
            if self._moments is not None:
                step.at(batch=self.batch_size)
                step.load_state_dict({**self._moments, **self.module_.state_dict()})
            self._programs["step"] = step
        return self._programs["step"]

    def _predicting(self, shape: tuple[int, ...]) -> SizedProgram:
        """The program that predicts, likewise."""
        if "predict" not in self._programs:
            samples = spec(("batch", *shape), self.dtype)
            self._programs["predict"] = self._compiled(
                lambda module, x: self._shown(module(x)), samples, batch=Buckets(*ROWS)
            )
        return self._programs["predict"]

    def _compiled(self, function: Callable[..., Any], *specs: Any, **options: Any) -> SizedProgram:
        program = compile(function, self.module_, *specs, threads=threads(), **options)
        assert isinstance(program, SizedProgram)
        return program

    def _objective(self, module: Any, x: Tensor, y: Tensor) -> Tensor:
        output = self._whole(module(x))
        return self._default_loss(output, y) if self.loss is None else self.loss(output, y)

    def _whole(self, output: Tensor) -> Tensor:
        """The module's output as [n, outputs], or ValueError."""
        output = output[:, None] if output.ndim == 1 else output
        if output.ndim != 2 or output.shape[1] != self.n_outputs_:
            raise ValueError(
                f"{type(self).__name__}: expected a module with outputs [n, {self.n_outputs_}], "
                f"got {list(output.shape)}"
            )
        return output

    def _predicted(self, given: Any) -> Array:
        check_is_fitted(self)
        x = validate_data(self, given, dtype=self.dtype, allow_nd=True, order="C", reset=False)
        return in_parts(self._predicting(x.shape[1:]), x)

    def _split(self, x: Array, y: Array, random: Any) -> tuple[Array, Array, Array, Array]:
        stratify = y if is_classifier(self) else None
        train, test, y, y_test = train_test_split(
            x, y, random_state=random, test_size=self.validation_fraction, stratify=stratify
        )
        return train, test, self._targets(y_test), y

    def _targets(self, y: Array) -> Array:
        """Targets as users give them."""
        return y

    def __getstate__(self) -> dict[str, Any]:
        """Return what is pickled: everything but programs, which are compiled again."""
        state = dict(super().__getstate__())
        return {**state, "_programs": {}} if "_programs" in state else state
