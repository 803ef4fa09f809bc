"""What the verifier says of a plan that it has proved."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Certificate:
    """What has been proved, and over how much.

    `accesses` are the ranges that the steps read and write; `pairs` counts, for each stretch of
    bytes, the pairs of steps that were found in order. `digest` names the plan that was verified.
    """

    plan: str
    launches: int
    copies: int
    events: int
    waits: int
    loops: int
    accesses: int
    pairs: int
    peak_bytes: int
    lower_bound_bytes: int
    digest: str

    def __str__(self) -> str:
        loops = f", {self.loops} loops" if self.loops else ""
        return (
            f"verified {self.plan}: {self.launches} launches, {self.copies} copies, "
            f"{self.events} events, {self.waits} waits{loops}; {self.pairs} pairs over "
            f"{self.accesses} accesses are ordered; peak {self.peak_bytes} bytes, "
            f"lower bound {self.lower_bound_bytes} bytes; {self.digest}"
        )
