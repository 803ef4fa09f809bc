"""The curve of losses and metrics as a picture that grows while a run trains."""

from __future__ import annotations

import io
import math
import os
import struct
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from graphc.base.files import replace_file
from graphc.base.source_lines import error
from graphc.training.callbacks import Callback
from graphc.training.history import History
from graphc.training.notebook import Output, in_notebook
from graphc.training.run import Run

DOTS = 160
"""The dots per inch of the picture."""
INCHES = 6.4, 2.8
"""The width of the picture and the height of each panel, in inches."""
PIXELS = 100
"""The pixels per inch that the picture takes in a notebook; sharp screens show all of its dots."""
REDRAW = 1.0
"""Seconds between two pictures, of which each takes about a tenth."""


class Curve(Callback):
    """Draw the history after each epoch: a PNG on disk, and a live picture in notebooks.

    Losses (names that end with `loss`) have a panel of their own above the other metrics. Where
    epochs are shorter than a second, some pictures are left out, but never the last. It needs
    matplotlib, of which it uses no global state.

    Args:
        path: The file to write; None shows the curve in a notebook alone.
        names: The metrics to draw; by default all.

    Raises:
        GraphError: matplotlib is not installed, or the file cannot be written.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = "curve.png",
        names: Sequence[str] | None = None,
    ) -> None:
        self._figure = _matplotlib()
        self.path = None if path is None else Path(path)
        self.names = names
        self._output: Output | None = None
        self._next = 0.0
        self._late = False

    def begin(self, run: Run) -> None:
        """Begin a new picture in the notebook."""
        self._output = Output() if in_notebook() else None
        self._next, self._late = 0.0, False

    def epoch(self, run: Run) -> None:
        """Draw the epochs so far, if the last picture is old enough."""
        self._late = time.perf_counter() < self._next
        if not self._late:
            self._show(run.history)

    def end(self, run: Run) -> None:
        """Draw the epochs that the last picture lacks."""
        if self._late:
            self._late = False
            self._show(run.history)

    def draw(self, history: History) -> bytes:
        """Return the PNG of a history."""
        names = list(history[-1]) if self.names is None else list(self.names)
        losses = [name for name in names if name.endswith("loss")]
        panels = [part for part in (losses, [n for n in names if n not in losses]) if part]
        width, height = INCHES
        figure = self._figure(figsize=(width, height * len(panels)), layout="constrained")
        axes = figure.subplots(len(panels), sharex=True, squeeze=False)[:, 0]
        epochs = range(1, len(history) + 1)
        for axis, part in zip(axes, panels, strict=True):
            values = {name: history[name] for name in part}
            for name, column in values.items():
                axis.plot(epochs, column, marker="o", markersize=3, label=name)
            positive = [v for column in values.values() for v in column if math.isfinite(v)]
            if part is losses and positive and 0 < 10 * min(positive) < max(positive):
                axis.set_yscale("log")
            axis.grid(alpha=0.3)
            axis.legend()
        axes[-1].set_xlabel("epoch")
        axes[-1].set_xlim(0.5, max(len(history), 2) + 0.5)
        axes[-1].xaxis.get_major_locator().set_params(integer=True)
        file = io.BytesIO()
        figure.savefig(file, format="png", dpi=DOTS)
        return file.getvalue()

    def _show(self, history: History) -> None:
        """Draw the history, on disk and in the notebook in place of the last picture."""
        picture = self.draw(history)
        if self.path is not None:
            replace_file("Curve", self.path, [picture])
        if self._output is not None:
            from IPython.display import Image

            # With its size known, what is below does not jump while the picture is read.
            width, height = struct.unpack(">II", picture[16:24])
            size = {"width": width * PIXELS // DOTS, "height": height * PIXELS // DOTS}
            self._output.show(Image(data=picture, format="png", **size))
        self._next = time.perf_counter() + REDRAW


def _matplotlib() -> Any:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise error("Curve: matplotlib is not installed: pip install 'graphc[fit]'") from None
    return Figure
