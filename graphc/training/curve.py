"""The curve of losses and metrics as a picture that grows while a run trains."""

from __future__ import annotations

import io
import math
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from graphc.base.files import replace_file
from graphc.base.source_lines import error
from graphc.training.callbacks import Callback
from graphc.training.history import History
from graphc.training.run import Run


class Curve(Callback):
    """Draw the history after each epoch: a PNG on disk, and a live picture in notebooks.

    Losses (names that end with `loss`) have a panel of their own above the other metrics. It needs
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
        self._display: Any = None

    def begin(self, run: Run) -> None:
        """Begin a new picture in the notebook."""
        self._display = None

    def epoch(self, run: Run) -> None:
        """Draw the epochs so far."""
        picture = self.draw(run.history)
        if self.path is not None:
            replace_file("Curve", self.path, [picture])
        self._show(picture)

    def draw(self, history: History) -> bytes:
        """Return the PNG of a history."""
        names = list(history[-1]) if self.names is None else list(self.names)
        losses = [name for name in names if name.endswith("loss")]
        panels = [part for part in (losses, [n for n in names if n not in losses]) if part]
        figure = self._figure(figsize=(6.4, 2.8 * len(panels)), layout="constrained")
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
        axes[-1].xaxis.get_major_locator().set_params(integer=True)
        file = io.BytesIO()
        figure.savefig(file, format="png", dpi=120)
        return file.getvalue()

    def _show(self, picture: bytes) -> None:
        """Show the picture in the notebook that runs this, if one does, in place of the last."""
        shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
        if not hasattr(shell, "kernel"):
            return
        from IPython.display import Image, display

        image = Image(data=picture, format="png")
        if self._display is None:
            self._display = display(image, display_id=True)
        else:
            self._display.update(image)


def _matplotlib() -> Any:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise error("Curve: matplotlib is not installed: pip install 'graphc[fit]'") from None
    return Figure
