"""Event files for TensorBoard, written by tensorboardX or PyTorch."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from graphc.base.source_lines import error
from graphc.training.callbacks import Callback, check_every
from graphc.training.run import Run


class TensorBoard(Callback):
    """Write losses and metrics to event files: `tensorboard --logdir FOLDER` shows them.

    `epoch/NAME` has the metrics of each epoch, `step/NAME` those of single steps, and `step/lr` the
    learning rate. A run that goes on from a checkpoint replaces what was written behind it.

    Args:
        folder: The folder of the files.
        every: The number of steps between two values; None writes those of epochs alone.

    Raises:
        GraphError: Neither tensorboardX nor PyTorch with tensorboard is installed, or an argument
            is wrong.
    """

    def __init__(self, folder: str | os.PathLike[str], every: int | None = 1) -> None:
        check_every("TensorBoard", every)
        self._make = _writer()
        self.folder, self.every = Path(folder), every
        self._writer: Any = None

    def begin(self, run: Run) -> None:
        """Open a new event file."""
        self._writer = self._make(str(self.folder), purge_step=run.history.steps + 1)

    def step(self, run: Run) -> None:
        """Write the metrics of the step."""
        steps = run.history.steps
        if self.every is None or steps % self.every:
            return
        self._write("step", run.metrics, steps)
        if getattr(run.program, "update", None) is not None:
            self._writer.add_scalar("step/lr", run.program.lr, steps)

    def epoch(self, run: Run) -> None:
        """Write the metrics of the epoch."""
        self._write("epoch", run.history[-1], run.history.steps)
        self._writer.flush()

    def end(self, run: Run) -> None:
        """Close the file."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _write(self, group: str, metrics: dict[str, float], steps: int) -> None:
        for name, value in metrics.items():
            self._writer.add_scalar(f"{group}/{name}", value, steps)


def _writer() -> Any:
    try:
        from tensorboardX import SummaryWriter
    except ImportError:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise error(
                "TensorBoard: tensorboardX is not installed: pip install 'graphc[fit]'"
            ) from None
    return SummaryWriter
