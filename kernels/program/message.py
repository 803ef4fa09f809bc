"""What a step of a plan exchanges with other processes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Message:
    """The sum of arrays over all ranks.

    The arguments of its kernel are the terms of this rank, then the sums. Terms lie side by side in
    memory, each aligned as all values are, and so do sums; where a rank has one piece of each, the
    sums are where the terms were.
    """

    dtype: str
    """The dtype of all arrays."""
    counts: tuple[int, ...]
    """The elements of each sum."""
    ranks: int
    """The number of processes."""
    pieces: int
    """The pieces that this rank has of each array, along the first axis; 1 for the array itself."""
    early: bool
    """Whether kernels wait for the sums, as those of a forward pass do."""
