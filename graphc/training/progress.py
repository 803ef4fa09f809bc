"""A line that says how far a training run is, with tqdm if it is installed; a bar in notebooks."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sized
from typing import Any

from graphc.training.callbacks import Callback
from graphc.training.notebook import Table, in_notebook
from graphc.training.run import Run

REDRAW = 0.1
"""Seconds between two states of the line."""


class Progress(Callback):
    """Show the step and its loss on standard error, and the metrics of each epoch.

    The line is tqdm's, if that is installed. Where standard error is no terminal, there is one
    line per epoch; in notebooks there is a bar above a table of the last epochs.

    Args:
        tqdm: Whether to use tqdm in terminals; by default if it is installed.

    Example:
        >>> progress = graphc.training.Progress(tqdm=False)
    """

    def __init__(self, tqdm: bool | None = None) -> None:
        self._tqdm = _tqdm() if tqdm is None or tqdm else None
        self._bar: Any = None
        self._table: Table | None = None
        self._begun = self._drawn = time.perf_counter()
        self._done = 0

    def begin(self, run: Run) -> None:
        """Start the clock; say so if there is nothing to do."""
        self._begun, self._done = time.perf_counter(), 0
        self._table = Table(run) if in_notebook() else None
        if self._table is None and run.epoch:
            print(f"goes on after epoch {run.epoch}/{run.epochs}", file=sys.stderr)

    def step(self, run: Run) -> None:
        """Show the metrics of the step."""
        self._done += 1
        title = f"epoch {run.epoch + 1}/{run.epochs}"
        total = len(run.batches) if isinstance(run.batches, Sized) else None
        if self._table is not None:
            self._table.step(run, self._done, total)
        elif not sys.stderr.isatty():
            return
        elif self._tqdm is not None:
            if self._bar is None:
                self._bar = self._tqdm(total=total, desc=title, leave=False, file=sys.stderr)
            self._bar.set_postfix_str(_shown(run.recent), refresh=False)
            self._bar.update()
        elif time.perf_counter() - self._drawn > REDRAW:
            self._drawn = time.perf_counter()
            of = "" if total is None else f"/{total}"
            line = f"{title}: step {self._done}{of}, {_shown(run.recent)}"
            print(f"\r\033[K{line}", end="", file=sys.stderr, flush=True)

    def epoch(self, run: Run) -> None:
        """Show the metrics of the epoch."""
        self._clear()
        seconds = time.perf_counter() - self._begun
        if self._table is not None:
            self._table.epoch(run, seconds)
        else:
            line = f"epoch {run.epoch}/{run.epochs}: {_shown(run.history[-1])}, {seconds:.1f} s"
            print(line, file=sys.stderr)
        self._begun, self._done = time.perf_counter(), 0

    def end(self, run: Run) -> None:
        """Remove the line of an epoch that did not end; say in notebooks how the run ended."""
        self._clear()
        if self._table is not None:
            self._table.end(run)

    def _clear(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None
        elif self._done and sys.stderr.isatty():
            print("\r\033[K", end="", file=sys.stderr, flush=True)


def _shown(metrics: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:.4g}" for name, value in metrics.items())


def _tqdm() -> Any:
    try:
        from tqdm import tqdm
    except ImportError:
        return None
    return tqdm
