"""The certificate that the verifier gives a plan."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Certificate:
    """What was proved of a plan, and over how much."""

    plan: str
    """The plan's name."""
    streams: int
    launches: int
    copies: int
    events: int
    waits: int
    needed: int
    """Waits that order steps which nothing before them orders."""
    loops: int
    accesses: int
    """Byte ranges that the steps read and write."""
    pairs: int
    """Pairs of steps, per stretch of bytes, that were found in order."""
    peak_bytes: int
    """Bytes of the work arena."""
    lower_bound_bytes: int
    """The most bytes live at once over the serial order."""
    digest: str
    """The digest of the verified plan."""
    sums: str = ""
    """The kernels that add floats in the order stated, and those with an order of their own."""
    meaning: str = ""
    """The result of comparing the graph with its trace, as in the plan's notes; "" if not
    compared."""

    @property
    def price_bytes(self) -> int:
        """Bytes per stream beyond the first: those above the lower bound, divided among these
        streams."""
        return -(-(self.peak_bytes - self.lower_bound_bytes) // max(1, self.streams - 1))

    def __str__(self) -> str:
        loops = f", {self.loops} loops" if self.loops else ""
        price = f", {self.price_bytes} for each further stream" if self.streams > 1 else ""
        return (
            f"verified {self.plan}: {self.launches} launches, {self.copies} copies, "
            f"{self.events} events, {self.waits} waits, {self.needed} of them needed{loops}; "
            f"{self.pairs} pairs over {self.accesses} accesses are ordered; peak "
            f"{self.peak_bytes} bytes, lower bound {self.lower_bound_bytes} bytes{price}; "
            f"{'; '.join(filter(None, (self.digest, self.sums, self.meaning)))}"
        )
