"""The losses and metrics of a training run, epoch by epoch, and the means of the current one."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, overload

import numpy as np

from graphc.base.cached import cached_property
from graphc.base.errors import GraphError
from graphc.base.source_lines import error
from graphc.data import Batches
from graphc.ir import tree
from graphc.program.pending import Pending

Metrics = dict[str, float]


AHEAD = 2
"""Steps on a GPU whose results are not waited for."""


class Outcome:
    """The result of a step that may not have ended.

    Args:
        pending: What `Program.submit` returned.
    """

    def __init__(self, pending: Pending) -> None:
        self._pending = pending

    @cached_property
    def metrics(self) -> Metrics:
        """The step's metrics. Waits for it."""
        return metrics_of(self._pending.result())


class Means:
    """Means of metrics over samples.

    Args:
        sums: The sums of each metric's values, each times its samples.
        samples: The number of samples.

    Attributes:
        newest: The metrics that were added last and have been read.
    """

    def __init__(self, sums: Mapping[str, float] | None = None, samples: float = 0.0) -> None:
        self._sums, self._samples = dict(sums or {}), samples
        self._later: deque[tuple[Outcome, float]] = deque()
        self.newest: Metrics = {}

    def add(self, metrics: Mapping[str, float] | Outcome, samples: float) -> None:
        """Add the means over some more samples; an outcome is read some steps later."""
        if isinstance(metrics, Outcome):
            self._later.append((metrics, samples))
            self._settle(AHEAD)
            return
        for name, value in metrics.items():
            self._sums[name] = self._sums.get(name, 0.0) + value * samples
        self._samples += samples
        self.newest = dict(metrics)

    @property
    def sums(self) -> Metrics:
        """The sums of each metric's values, each times its samples. Waits for all steps."""
        self._settle()
        return self._sums

    @property
    def samples(self) -> float:
        """The number of samples so far. Waits for all steps."""
        self._settle()
        return self._samples

    def _settle(self, most: int = 0) -> None:
        """Read outcomes, the oldest first, until at most `most` are left."""
        while len(self._later) > most:
            outcome, samples = self._later.popleft()
            self.add(outcome.metrics, samples)

    def values(self) -> Metrics:
        """Return the means over all samples so far.

        Raises:
            GraphError: There are none.
        """
        if not self.samples:
            raise error("fit: expected batches, got none; an iterator is used up after one epoch")
        return {name: total / self.samples for name, total in self.sums.items()}


class History(Sequence[Metrics]):
    """The metrics of each epoch as a dict; `history["loss"]` is a list, one number per epoch.

    Attributes:
        steps: The number of finished steps.
        means: The means of the current epoch.
        position: Where in `graphc.data.Batches` a run stopped in the midst of an epoch.

    Example:
        >>> history = graphc.training.History()
        >>> history.means.add({"loss": 2.0}, 4)
        >>> history.close({"accuracy": 0.5})
        >>> history[0], history["loss"]
        ({'loss': 2.0, 'accuracy': 0.5}, [2.0])
    """

    def __init__(self) -> None:
        self.steps = 0
        self.means = Means()
        self.position: dict[str, Any] | None = None
        self._epochs: list[Metrics] = []

    def close(self, more: Mapping[str, float]) -> None:
        """End the current epoch, whose metrics are its means and some more.

        Raises:
            GraphError: The epoch had no samples.
        """
        self._epochs.append({**self.means.values(), **more})
        self.means = Means()

    def __len__(self) -> int:
        """Return the number of finished epochs."""
        return len(self._epochs)

    @overload
    def __getitem__(self, key: int) -> Metrics: ...
    @overload
    def __getitem__(self, key: slice) -> list[Metrics]: ...
    @overload
    def __getitem__(self, key: str) -> list[float]: ...
    def __getitem__(self, key: int | slice | str) -> Metrics | list[Metrics] | list[float]:
        if not isinstance(key, str):
            return self._epochs[key]
        missing = next((epoch for epoch in self._epochs if key not in epoch), None)
        if missing is not None:
            raise error(f"history: expected one of {', '.join(missing)}, got {key!r}")
        return [epoch[key] for epoch in self._epochs]

    def __repr__(self) -> str:
        return f"History({self._epochs!r})"

    def state(self, position: dict[str, Any] | None) -> dict[str, Any]:
        """Return everything as a dict for JSON, which has no NaN and no infinity.

        Args:
            position: The position in the batches by now, if they have one.
        """
        return {
            "position": position,
            "epochs": [{n: _plain(v) for n, v in epoch.items()} for epoch in self._epochs],
            "steps": self.steps,
            "sums": {name: _plain(value) for name, value in self.means.sums.items()},
            "samples": self.means.samples,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Become what `state` returned.

        Raises:
            GraphError: It is something else.
        """
        try:
            sums = {str(name): float(value) for name, value in state["sums"].items()}
            means = Means(sums, float(state["samples"]))
            epochs = [{str(n): float(v) for n, v in e.items()} for e in state["epochs"]]
            steps, position = int(state["steps"]), state["position"]
        except (AttributeError, KeyError, TypeError, ValueError):
            raise GraphError("history: expected what History.state returned") from None
        self.steps, self.means, self._epochs, self.position = steps, means, epochs, position


def metrics_of(result: Any) -> Metrics:
    """Return the scalars of a program's result by name: the first that has none is the loss.

    Args:
        result: A loss, a dict of metrics, or a tuple that begins with the loss and may have dicts
            of metrics behind; anything else in it is left out.
    """
    found: Metrics = {}
    for part in result if isinstance(result, tuple | list) else [result]:
        if isinstance(part, dict):
            found.update({n: float(v) for n, v in part.items() if np.size(v) == 1})
        elif not found and np.size(part) == 1:
            found["loss"] = float(part)
    if not found:
        raise GraphError("fit: expected a program whose result begins with a loss, got none")
    return found


def samples_of(batches: Any, batch: Any) -> float:
    """Return how many samples a batch holds, besides padding."""
    if isinstance(batches, Batches):
        return float(batches.count(batch))
    shapes = [np.shape(array) for _, array in tree.leaves(batch)]
    return float(shapes[0][0]) if shapes and shapes[0] else 1.0


def _plain(value: float) -> float | str:
    return value if math.isfinite(value) else repr(value)
