"""The verifier's certificate of a plan."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Certificate:
    """What has been proved, and over how much.

    `accesses` are the ranges that the steps read and write; `pairs` counts, for each stretch of
    bytes, the pairs of steps that were found in order. Of the `waits` for `events`, `needed` are
    those that order steps which nothing before them orders. `digest` names the plan that was
    verified.
    """

    plan: str
    streams: int
    launches: int
    copies: int
    events: int
    waits: int
    needed: int
    loops: int
    accesses: int
    pairs: int
    peak_bytes: int
    lower_bound_bytes: int
    digest: str
    meaning: str = ""
    """What was found when the graph was compared with its trace, as the plan's notes have it."""

    @property
    def price_bytes(self) -> int:
        """What each stream beyond the first costs: the bytes above the least that one stream
        needs, divided among them."""
        return -(-(self.peak_bytes - self.lower_bound_bytes) // max(1, self.streams - 1))

    def __str__(self) -> str:
        loops = f", {self.loops} loops" if self.loops else ""
        price = f", {self.price_bytes} for each further stream" if self.streams > 1 else ""
        return (
            f"verified {self.plan}: {self.launches} launches, {self.copies} copies, "
            f"{self.events} events, {self.waits} waits, {self.needed} of them needed{loops}; "
            f"{self.pairs} pairs over {self.accesses} accesses are ordered; peak "
            f"{self.peak_bytes} bytes, lower bound {self.lower_bound_bytes} bytes{price}; "
            f"{self.digest}{f'; {self.meaning}' if self.meaning else ''}"
        )
