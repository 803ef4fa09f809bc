"""When scikit-learn's solvers stop: rounds without a better loss or validation score."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np


@dataclass
class Rounds:
    """The losses and scores of a fit, epoch by epoch, and how long the last better one is ago."""

    tol: float
    scored: bool
    """Whether validation scores decide, in place of losses."""
    losses: list[float] = field(default_factory=list)
    scores: list[float] = field(default_factory=list)
    best_loss: float = np.inf
    best_score: float = -np.inf
    unchanged: int = 0

    def add(self, loss: float, score: float | None = None) -> bool:
        """Add an epoch; return whether its weights are the best by the score."""
        self.losses.append(loss)
        if not self.scored:
            self.unchanged = self.unchanged + 1 if loss > self.best_loss - self.tol else 0
            self.best_loss = min(loss, self.best_loss)
            return False
        assert score is not None
        self.scores.append(score)
        self.unchanged = self.unchanged + 1 if score < self.best_score + self.tol else 0
        better = score > self.best_score
        self.best_score = score if better else self.best_score
        return better

    def reason(self, patience: float) -> str:
        """Return why the fit stops, or "" if it goes on."""
        if self.unchanged <= patience:
            return ""
        what = "Validation score" if self.scored else "Training loss"
        return (
            f"{what} did not improve more than tol={self.tol:f} for {patience} consecutive epochs."
        )
