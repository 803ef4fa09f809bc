"""The network of the perceptrons, its losses, and the programs of each size, which are kept."""

from __future__ import annotations

import functools
import itertools
import operator
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphc import functions, nn
from graphc.base.config import Config, read
from graphc.base.dtypes import Array
from graphc.base.locks import ESTIMATORS, free_after_fork
from graphc.optim import Rule
from graphc.program import Buckets, Program, compile
from graphc.sklearn.rules import MomentumSGD, ScaledAdam
from graphc.trace import Tensor, spec

KEPT = 32
"""Networks whose programs are kept when no estimator uses them."""
ROWS = (1, 16, 128, 1024)
"""Numbers of rows that predictions are padded to; the largest is a part of a longer one."""
_HIDDEN: dict[str, Callable[[Tensor], Tensor]] = {
    "identity": lambda x: x,
    "logistic": functions.sigmoid,
    "tanh": functions.tanh,
    "relu": functions.relu,
}
_OUTPUT: dict[str, Callable[[Tensor], Tensor]] = {
    "identity": lambda x: x,
    "logistic": functions.sigmoid,
    "softmax": lambda x: functions.softmax(x, 1),
    "exp": functions.exp,
}


@dataclass(frozen=True)
class Network:
    """What programs are made for: the units of each layer and the activations."""

    units: tuple[int, ...]
    hidden: str
    output: str


@dataclass(frozen=True)
class Step:
    """What a training program is made for besides: its rows and its update rule."""

    rows: int
    solver: str
    numbers: tuple[float, ...]
    """The arguments of the rule."""

    def rule(self) -> Rule:
        """Return a new update rule."""
        if self.solver == "sgd":
            momentum, nesterov = self.numbers
            return MomentumSGD(momentum, bool(nesterov))
        return ScaledAdam(*self.numbers)


class Perceptron(nn.Module):
    """Layers x @ weight [in, out] + bias [out] with an activation between them."""

    def __init__(self, network: Network) -> None:
        pairs = list(itertools.pairwise(network.units))
        self.weights = [nn.Parameter(np.zeros(pair, np.float32)) for pair in pairs]
        self.biases = [nn.Parameter(np.zeros(out, np.float32)) for _, out in pairs]
        self.network = network

    def forward(self, x: Tensor) -> Tensor:
        """Return what the output's activation is applied to, [n, outputs]."""
        last = len(self.weights) - 1
        for number, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            x = x @ weight + bias
            if number < last:
                x = _HIDDEN[self.network.hidden](x)
        return x


def predicted(model: Perceptron, x: Tensor) -> Tensor:
    """Return probabilities or values [n, outputs]."""
    return _OUTPUT[model.network.output](model(x))


def objective(
    model: Perceptron, x: Tensor, y: Tensor, weight: Tensor, alpha: Tensor
) -> Tensor | tuple[Tensor, Tensor]:
    """Return the loss whose gradient scikit-learn follows, and the one that it reports.

    They differ in regressions with several outputs: it reports the mean over them, and follows the
    sum. Elsewhere there is one loss.

    Args:
        model: The network.
        x: f32 [n, features].
        y: Labels i32 [n] for softmax, else f32 [n, outputs].
        weight: The weight of each row f32 [n].
        alpha: The factor of the squared weights f32 [].
    """
    total = functions.sum(weight)
    of_rows = _losses(model.network.output, model(x), y)
    data = functions.sum(of_rows * weight) / total
    squares = functools.reduce(operator.add, (functions.sum(w * w) for w in model.weights))
    penalty = 0.5 * alpha * squares / total
    outputs = model.network.units[-1]
    if model.network.output != "identity" or outputs == 1:
        return data + penalty
    return data + penalty, data / outputs + penalty


def _losses(output: str, z: Tensor, y: Tensor) -> Tensor:
    """The loss of each row [n]."""
    if output == "softmax":
        return functions.cross_entropy(z, y, reduction="none")
    if output == "logistic":
        each = functions.softplus(z) - y * z
    elif output == "exp":  # what a prediction of y itself would give is taken off
        each = functions.exp(z) - y * z + functions.xlogy(y, y) - y
    else:
        each = 0.5 * (z - y) ** 2
    return functions.sum(each, axis=1)


class Workspace:
    """A network with its programs, which one estimator at a time borrows."""

    def __init__(self, network: Network) -> None:
        self.model = Perceptron(network)
        self._steps: dict[Step, tuple[Program, dict[str, Array]]] = {}
        self._predict: Program | None = None

    def load(self, weights: list[Array], biases: list[Array]) -> None:
        """Set the parameters."""
        parameters = [*self.model.weights, *self.model.biases]
        for parameter, array in zip(parameters, [*weights, *biases], strict=True):
            parameter.assign(np.ascontiguousarray(array, np.float32))

    def parameters(self) -> tuple[list[Array], list[Array]]:
        """Return copies of the weights and the biases."""
        return [w.numpy() for w in self.model.weights], [b.numpy() for b in self.model.biases]

    def step(self, step: Step, state: dict[str, Array] | None) -> Program:
        """Return the training program with these moments and counters; None for new ones."""
        if step not in self._steps:
            units, softmax = self.model.network.units, self.model.network.output == "softmax"
            n = step.rows
            target = spec((n,), "int32") if softmax else spec((n, units[-1]))
            program = compile(
                objective,
                self.model,
                spec((n, units[0])),
                target,
                spec((n,)),
                spec(()),
                update=step.rule(),
                threads=threads(),
            )
            self._steps[step] = program, moments(program, self.model)
        program, fresh = self._steps[step]
        parameters = {name: p.numpy() for name, p in self.model.named_parameters()}
        program.load_state_dict({**(fresh if state is None else state), **_of(program, parameters)})
        return program

    def predict(self, x: Any) -> Array:
        """Return probabilities or values [n, outputs] of x [n, features], dense or sparse."""
        predict = self._predict
        if predict is None:
            features = self.model.network.units[0]
            predict = self._predict = compile(
                predicted,
                self.model,
                spec(("batch", features)),
                batch=Buckets(*ROWS),
                threads=threads(),
            )
        return in_parts(lambda rows: predict(dense(rows)), x)


def in_parts(predict: Callable[[Any], Array], x: Any) -> Array:
    """Return what `predict` makes of the rows of x, given at most `ROWS[-1]` of them at a time."""
    most = ROWS[-1]
    parts = [predict(x[i : i + most]) for i in range(0, x.shape[0], most)]
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def moments(program: Program, model: nn.Module) -> dict[str, Array]:
    """Return the state of a program without the parameters of a model."""
    own = set(model.state_dict())
    return {name: array for name, array in program.state_dict().items() if name not in own}


def _of(program: Program, parameters: dict[str, Array]) -> dict[str, Array]:
    return {name: array for name, array in parameters.items() if name in program.state_types()}


_idle: OrderedDict[tuple[Network, Config], list[Workspace]] = OrderedDict()
_lock = free_after_fork(threading.Lock(), ESTIMATORS)


@contextmanager
def borrowed(network: Network) -> Iterator[Workspace]:
    """A workspace of a network for the time of the block, one that was made before if it can be."""
    key = network, read()
    with _lock:
        found = _idle.get(key, [])
        workspace = found.pop() if found else Workspace(network)
    try:
        yield workspace
    finally:
        with _lock:
            _idle.setdefault(key, []).append(workspace)
            _idle.move_to_end(key)
            while len(_idle) > KEPT:
                _idle.popitem(last=False)


def threads() -> int:
    """Return the threads of a program: the share of the cores that joblib gives to a worker."""
    share = os.environ.get("OMP_NUM_THREADS", "")
    own = read().threads
    return max(1, min(own, int(share))) if share.isdigit() else own


def dense(x: Any) -> Array:
    """Return rows as a dense array f32."""
    rows = x.toarray() if hasattr(x, "toarray") else x
    return np.ascontiguousarray(rows, np.float32)
