"""What a step of a plan exchanges with other processes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Message:
    """The sum of arrays over all ranks, a slice of one, or an array with a part of each rank.

    The arguments of its kernel are the terms of this rank, then the results. Terms lie side by side
    in memory, each aligned as all values are, and so do results; where each rank has one piece, and
    all get the whole sum, this is where the terms were.

    Or an array that one rank sends and another, or all, receive. The arguments of these kernels are
    a token and what is sent, then a token and what is received, each where it lies. Nobody reads or
    writes the bytes of tokens.
    """

    kind: str
    """The name of the op: "all_reduce", "reduce_scatter", "all_to_all", "all_gather", "send",
    "receive" or "share"."""
    dtype: str
    """The dtype of all arrays but tokens."""
    counts: tuple[int, ...]
    """The elements of each result, or of what is sent."""
    ranks: int
    """The number of processes; 0 where `peer` says between which two it is."""
    pieces: int
    """The pieces that this rank has of each array, along the first axis; 1 for the array itself."""
    early: bool
    """Whether kernels wait for the results, as those of a forward pass do."""
    peer: int = -1
    """The rank at the other end, or the one that shares; -1 for what all do alike."""

    @property
    def in_turn(self) -> bool:
        """Whether tokens order it among other messages."""
        return self.peer >= 0

    @property
    def in_place(self) -> bool:
        """Whether results are where the terms were."""
        return self.kind == "all_reduce" and self.pieces == 1
