"""What a step of a plan exchanges with other processes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Message:
    """The sum of arrays over all ranks, a slice of one, or an array with a part of each rank.

    The arguments of its kernel are the terms of this rank, then the results. Terms lie side by side
    in memory, each aligned as all values are, and so do results; where each rank has one piece, and
    all get the whole sum, this is where the terms were.
    """

    kind: str
    """The name of the op: "all_reduce", "reduce_scatter", "all_to_all" or "all_gather"."""
    dtype: str
    """The dtype of all arrays."""
    counts: tuple[int, ...]
    """The elements of each result."""
    ranks: int
    """The number of processes."""
    pieces: int
    """The pieces that this rank has of each array, along the first axis; 1 for the array itself."""
    early: bool
    """Whether kernels wait for the sums, as those of a forward pass do."""

    @property
    def in_place(self) -> bool:
        """Whether results are where the terms were."""
        return self.kind == "all_reduce" and self.pieces == 1
