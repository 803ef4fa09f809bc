"""What a training run shows in notebooks: outputs of a cell that are replaced, not repeated."""

from __future__ import annotations

import sys
import time
from html import escape
from typing import Any

from graphc.training.run import Run

ROWS = 8
"""The number of epochs in the table of a run."""
REDRAW = 0.1
"""Seconds between two states of the bar."""


def in_notebook() -> bool:
    """Return whether a notebook runs this, one that shows HTML and pictures."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return hasattr(shell, "kernel")


class Output:
    """A place below the running cell whose content can be replaced."""

    def __init__(self) -> None:
        self._handle: Any = None

    def show(self, content: Any) -> None:
        """Show an object of IPython.display in place of the last one."""
        from IPython.display import display

        if self._handle is None:
            self._handle = display(content, display_id=True)
        else:
            self._handle.update(content)


class Table:
    """The bar of a run, and the metrics of its last epochs.

    Args:
        run: The run, as of its begin.
    """

    def __init__(self, run: Run) -> None:
        self._output = Output()
        self._begun = self._drawn = time.perf_counter()
        self._first: tuple[float, float] | None = None
        self._seconds: dict[int, float] = {}
        self._show(run, self._bar(run, 0, None))

    def step(self, run: Run, done: int, total: int | None) -> None:
        """Move the bar, if it has not moved for a while.

        Args:
            run: The run.
            done: The number of finished steps of the epoch.
            total: The number of its steps, if that is known.
        """
        now = time.perf_counter()
        if self._first is None:
            self._first = now, _epochs(run, done, total)
        if now - self._drawn > REDRAW:
            self._show(run, self._bar(run, done, total))

    def epoch(self, run: Run, seconds: float) -> None:
        """Add an epoch, which took some seconds, to the table."""
        self._seconds[run.epoch] = seconds
        self.step(run, 0, None)

    def end(self, run: Run) -> None:
        """Say in place of the bar how the run ended."""
        seconds = time.perf_counter() - self._begun
        done = f"{run.epoch} of {run.epochs} epochs, {run.history.steps} steps"
        self._show(run, f"<div>{done}, {seconds:.1f} s</div>")

    def _bar(self, run: Run, done: int, total: int | None) -> str:
        """The bar as HTML, with the metrics of a recent step and the seconds that are left."""
        epochs = _epochs(run, done, total)
        words = [f"epoch {run.epoch + 1}/{run.epochs}"] if run.epoch < run.epochs else []
        if done:
            words.append(f"step {done}" + ("" if total is None else f"/{total}"))
        words += [f"{name} {value:.4g}" for name, value in run.recent.items()]
        if self._first is not None and epochs > self._first[1]:
            rate = (time.perf_counter() - self._first[0]) / (epochs - self._first[1])
            words.append(f"{rate * (run.epochs - epochs):.0f} s left")
        bar = f'<progress value="{epochs:.3f}" max="{run.epochs}" style="width: 14em"></progress>'
        return f"<div>{bar} {escape(', '.join(words))}</div>"

    def _show(self, run: Run, line: str) -> None:
        from IPython.display import HTML

        self._output.show(HTML(line + self._rows(run)))
        self._drawn = time.perf_counter()

    def _rows(self, run: Run) -> str:
        """The last epochs as HTML."""
        history = run.history
        if not len(history):
            return ""
        names = list(history[-1])
        head = "".join(f"<th>{escape(name)}</th>" for name in ["epoch", *names, "seconds"])
        rows = []
        for number in range(max(0, len(history) - ROWS), len(history)):
            metrics = history[number]
            cells = [str(number + 1)]
            cells += [f"{metrics[name]:.4g}" if name in metrics else "" for name in names]
            seconds = self._seconds.get(number + 1)
            cells.append("" if seconds is None else f"{seconds:.3g}")
            rows.append("<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>")
        return (
            '<table style="font-variant-numeric: tabular-nums">'
            f"<thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
        )


def _epochs(run: Run, done: int, total: int | None) -> float:
    """How many epochs are done, the steps of the current one being a part of it."""
    return run.epoch + (done / total if total else 0.0)
