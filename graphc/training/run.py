"""What callbacks are told of a training run."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from graphc.data import Batches
from graphc.training.history import History, Means, Metrics, Outcome


@dataclass
class Run:
    """A training run, as of one moment between steps."""

    program: Any
    """The training program."""
    batches: Iterable[Any]
    """The batches of an epoch."""
    epochs: int
    """The number of epochs in all."""
    history: History
    """The metrics so far."""
    last: Metrics | Outcome = field(default_factory=dict)
    """The metrics of the last step, which may not have ended."""
    stop: bool = False
    """Whether to stop at the end of the epoch; for callbacks to set."""

    @property
    def metrics(self) -> Metrics:
        """The metrics of the last step. On a GPU this waits for it; `recent` does not."""
        return self.last.metrics if isinstance(self.last, Outcome) else self.last

    @property
    def recent(self) -> Metrics:
        """The metrics of the newest step of this epoch whose results have been read."""
        return self.history.means.newest

    @property
    def epoch(self) -> int:
        """The number of finished epochs."""
        return len(self.history)

    @property
    def position(self) -> dict[str, Any] | None:
        """The position in the batches, if they are `graphc.data.Batches`."""
        return self.batches.position if isinstance(self.batches, Batches) else None

    def resume(self) -> None:
        """Let the next loop over the batches go on where the history stopped.

        Batches without a position begin the epoch anew.
        """
        if isinstance(self.batches, Batches) and self.history.position is not None:
            self.batches.position = self.history.position
        else:
            self.history.means = Means()
        self.history.position = None
