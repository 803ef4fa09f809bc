"""Callbacks of a training run: early stopping, checkpoints, falling learning rates."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from graphc.base.source_lines import error
from graphc.optim.schedules import Plateau
from graphc.program.checkpoint import Sources, load_checkpoint, save_checkpoint
from graphc.training.history import History
from graphc.training.run import Run


class Callback:
    """What `graphc.fit` calls during a run; a subclass defines what it needs.

    Example:
        >>> class Warn(graphc.training.Callback):
        ...     def step(self, run):
        ...         if run.metrics["loss"] > 100:
        ...             run.stop = True
    """

    def begin(self, run: Run) -> None:
        """Act before the first step."""

    def step(self, run: Run) -> None:
        """Act after each step; `run.metrics` are those of the step."""

    def epoch(self, run: Run) -> None:
        """Act after each epoch; `run.history[-1]` are its metrics."""

    def interrupted(self, run: Run) -> None:
        """Act after the last step before a run that Ctrl-C stops."""

    def end(self, run: Run) -> None:
        """Act at the end of the run, also after an exception."""


class _Epoch(Callback):
    """A function that is called after each epoch."""

    def __init__(self, function: Callable[[Run], Any]) -> None:
        self._function = function

    def epoch(self, run: Run) -> None:
        self._function(run)


def callback_of(given: Any) -> Callback:
    """Return the callback that an item of `callbacks=` stands for, or raise GraphError."""
    if isinstance(given, Callback):
        return given
    if isinstance(given, type) or not callable(given):
        raise error(f"fit: callbacks expected callbacks and functions, got {given!r}")
    return _Epoch(given)


class EarlyStopping(Callback):
    """Stop when a metric has not become better for some epochs.

    The best weights are those of `Checkpoints(folder, best=monitor)`:
    `graphc.load_checkpoint(folder / "best", program)`.

    Args:
        monitor: The name of the metric.
        patience: The number of epochs without a better one before the run stops.
        min_delta: By how much a better one differs at least.
        mode: "min" if smaller is better, "max" if larger is.

    Raises:
        GraphError: An argument is wrong, or the history has no such metric.

    Example:
        >>> stopping = graphc.training.EarlyStopping("val_loss", patience=3)
    """

    def __init__(
        self, monitor: str, patience: int = 5, min_delta: float = 0.0, mode: str = "min"
    ) -> None:
        if isinstance(patience, bool) or not isinstance(patience, int) or patience < 1:
            raise error(f"EarlyStopping: patience expected a number from 1 up, got {patience!r}")
        if not min_delta >= 0:
            raise error(f"EarlyStopping: min_delta expected a number from 0 up, got {min_delta!r}")
        self.monitor, self.patience, self.min_delta = monitor, patience, min_delta
        self._sign = _sign("EarlyStopping", mode)

    def begin(self, run: Run) -> None:
        """Stop a run whose history says so already."""
        if len(run.history):
            self.epoch(run)

    def epoch(self, run: Run) -> None:
        """Stop if the last better value is too long ago; a NaN is never better."""
        best, since = math.inf, 0
        for value in run.history[self.monitor]:
            better = self._sign * value < best - self.min_delta
            best, since = (self._sign * value, 0) if better else (best, since + 1)
        if since >= self.patience:
            run.stop = True


class Checkpoints(Callback):
    """Write checkpoints to a folder, and go on from the last one when the run is begun again.

    One is written after each epoch, after every `every` steps, and when Ctrl-C stops the run. It
    holds the state of the programs, the history and the position in the batches, so that the same
    script goes on with the same bits.

    Args:
        folder: The folder. Its subfolder `best` has the checkpoint of the best epoch.
        sources: What `graphc.save_checkpoint` takes; by default the program.
        best: The name of the metric that says which epoch is the best; None keeps none.
        mode: "min" if smaller is better, "max" if larger is.
        every: The number of steps between checkpoints within an epoch; None writes none.
        keep: The number of checkpoints to keep in `folder`.
        resume: Whether to go on from the last checkpoint in the folder.

    Raises:
        GraphError: An argument is wrong, a file cannot be written, or a checkpoint does not fit.

    Example:
        >>> checkpoints = graphc.training.Checkpoints("run", best="val_loss")
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        sources: Sources | None = None,
        *,
        best: str | None = None,
        mode: str = "min",
        every: int | None = None,
        keep: int | None = 3,
        resume: bool = True,
    ) -> None:
        check_every("Checkpoints", every)
        self.folder, self.sources, self.best = Path(folder), sources, best
        self.every, self.keep, self.resume = every, keep, resume
        self._sign = _sign("Checkpoints", mode)

    def begin(self, run: Run) -> None:
        """Go on from the last checkpoint, if there is one."""
        if not self.resume:
            return
        found = load_checkpoint(self.folder, self._sources(run))
        if found is not None:
            run.history.restore(found.data)

    def step(self, run: Run) -> None:
        """Write a checkpoint every so many steps."""
        if self.every is not None and run.history.steps % self.every == 0:
            self._save(run, self.folder, self.keep)

    def epoch(self, run: Run) -> None:
        """Write the checkpoint of the epoch, and that of the best if it is the best."""
        self._save(run, self.folder, self.keep)
        if self.best is not None and self._is_best(run.history[self.best]):
            self._save(run, self.folder / "best", 1)

    def interrupted(self, run: Run) -> None:
        """Write a checkpoint of the last step."""
        self._save(run, self.folder, self.keep)

    def _is_best(self, values: list[float]) -> bool:
        *before, last = (self._sign * value for value in values)
        return not math.isnan(last) and all(math.isnan(value) or last < value for value in before)

    def _save(self, run: Run, folder: Path, keep: int | None) -> None:
        state = run.history.state(run.position)
        save_checkpoint(folder, run.history.steps, self._sources(run), data=state, keep=keep)

    def _sources(self, run: Run) -> Sources:
        return run.program if self.sources is None else self.sources


class ReduceOnPlateau(Callback):
    """Lower the learning rate when a metric stops to improve, as ReduceLROnPlateau of PyTorch.

    Args:
        monitor: The name of the metric.
        **options: The arguments of `optim.schedules.Plateau`, except the rate.

    Raises:
        GraphError: An argument is wrong, or the history has no such metric.

    Example:
        >>> reduce = graphc.training.ReduceOnPlateau("val_loss", factor=0.5, patience=3)
    """

    def __init__(self, monitor: str, **options: Any) -> None:
        Plateau(1.0, **options)
        self.monitor, self._options = monitor, options
        self._plateau: Plateau | None = None

    def begin(self, run: Run) -> None:
        """Begin with the program's rate, and with what the history says of earlier epochs."""
        self._plateau = _replayed(run.history, self.monitor, run.program.lr, self._options)

    def epoch(self, run: Run) -> None:
        """Set the program's rate."""
        assert self._plateau is not None
        rate = self._plateau(run.history[self.monitor][-1])
        if rate != run.program.lr:
            run.program.lr = rate


def _replayed(history: History, monitor: str, rate: float, options: dict[str, Any]) -> Plateau:
    """The rule after the epochs of a history, with the rate that the program has by now."""
    plateau = Plateau(rate, **options)
    for value in history[monitor]:
        plateau(value)
    plateau.rate = rate
    return plateau


def check_every(name: str, every: int | None) -> None:
    """Raise GraphError if a callback of this name cannot act every so many steps."""
    if every is not None and (isinstance(every, bool) or every < 1):
        raise error(f"{name}: every expected a number from 1 up or None, got {every!r}")


def _sign(name: str, mode: str) -> int:
    if mode not in ("min", "max"):
        raise error(f"{name}: mode expected 'min' or 'max', got {mode!r}")
    return 1 if mode == "min" else -1
