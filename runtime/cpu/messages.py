"""Play the messages of a plan: sums over all ranks and slices, where the arrays lie."""

from __future__ import annotations

import ctypes
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from graphc.base.dtypes import Array
from graphc.ir import DTYPES
from graphc.kernels.program.message import Message
from graphc.parallel.group import Group
from graphc.runtime.plan.plan import Plan
from graphc.runtime.planner.tasks import aligned
from graphc.runtime.ranks import Ranks

FUNCTION = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_int)
"""`Function` of native/specs.h."""


class Messages(Ranks):
    """The messages of a plan, by the transport of a group."""

    def __init__(self, plan: Plan, group: Group | None) -> None:
        super().__init__(plan, group)
        self._sums = {
            kernel.name: _PLAYED[kernel.message.kind](kernel.message, self.group)
            for kernel in plan.kernels.values()
            if kernel.message is not None
        }
        self._called = {name: FUNCTION(message.run) for name, message in self._sums.items()}

    @property
    def waiting(self) -> Collection[str]:
        """The kernels that wait for other ranks."""
        return self._sums if self.group.ranks > 1 else ()

    @property
    def functions(self) -> dict[str, int]:
        """The addresses of functions that play messages, by kernel."""
        found = {n: ctypes.cast(f, ctypes.c_void_p).value for n, f in self._called.items()}
        return {name: address for name, address in found.items() if address is not None}


class _Sum:
    """One message."""

    def __init__(self, message: Message, group: Group) -> None:
        self.message, self.group = message, group
        self.dtype = np.dtype(DTYPES[message.dtype])
        self.sizes = [aligned(count * self.dtype.itemsize) for count in message.counts]
        self.length = sum(self.sizes) // self.dtype.itemsize
        self.places: tuple[int, ...] = ()
        """Where the arguments lay in the last call."""
        self.terms: Sequence[Array] = ()
        self.sums: Array = np.empty(0, self.dtype)
        self.staged: Sequence[tuple[Array, Array]] = ()
        """(piece in a term's array, its place in `terms`) of terms that are copied first."""

    def run(self, arguments: int, _phase: int, _chunk: int) -> None:
        """Sum the arrays at the addresses of a launch."""
        try:
            count = 2 * len(self.sizes)
            places = tuple((ctypes.c_uint64 * count).from_address(arguments))
            if places != self.places:
                self.bind(places)
            for source, target in self.staged:
                np.copyto(target, source)
            self.group.sum_pieces(self.terms, self.sums)
        except BaseException as problem:  # nothing can be raised through the player
            self.group.fail(f"{type(problem).__name__}: {problem}")

    def bind(self, places: tuple[int, ...]) -> None:
        """Take the arrays at these addresses: terms, then sums."""
        count, pieces = len(self.sizes), self.message.pieces
        self.places = places
        self.sums = _array(places[count], self.length, self.dtype)
        if pieces == 1:
            self.terms = [_array(places[0], self.length, self.dtype)]
            return
        self.terms = [np.zeros(self.length, self.dtype) for _ in range(pieces)]
        staged = []
        start = 0
        for place, elements, size in zip(places, self.message.counts, self.sizes, strict=False):
            whole = _array(place, pieces * elements, self.dtype).reshape(pieces, elements)
            staged += [
                (whole[n], term[start : start + elements]) for n, term in enumerate(self.terms)
            ]
            start += size // self.dtype.itemsize
        self.staged = staged


class _Slice:
    """A message whose terms, or whose result, are the slices of all ranks in one array."""

    def __init__(self, message: Message, group: Group) -> None:
        self.message, self.group = message, group
        self.dtype = np.dtype(DTYPES[message.dtype])

    def run(self, arguments: int, _phase: int, _chunk: int) -> None:
        """Communicate the arrays at the addresses of a launch."""
        try:
            source, target = tuple((ctypes.c_uint64 * 2).from_address(arguments))
            self.play(source, target)
        except BaseException as problem:  # nothing can be raised through the player
            self.group.fail(f"{type(problem).__name__}: {problem}")

    def play(self, source: int, target: int) -> None:
        """Sum the slices at `source`, and write this rank's to `target`."""
        (count,), pieces = self.message.counts, self.message.pieces
        whole = count * self.message.ranks
        terms = _array(source, pieces * whole, self.dtype).reshape(pieces, whole)
        self.group.sum_slices([*terms], _array(target, count, self.dtype))


class _Swapped(_Slice):
    """What each rank has for this one."""

    def play(self, source: int, target: int) -> None:
        """Write what all ranks have for this one to `target`; `source` has a part for each."""
        (count,), ranks = self.message.counts, self.message.ranks
        received = _array(target, count, self.dtype).reshape(ranks, -1)
        self.group.swap(_array(source, count, self.dtype).reshape(ranks, -1), received)


class _Gathered(_Slice):
    """The slices of all ranks."""

    def play(self, source: int, target: int) -> None:
        """Write the slices of all ranks to `target`, that of this rank from `source`."""
        (count,) = self.message.counts
        own = _array(source, count // self.message.ranks, self.dtype)
        self.group.gather_slices(own, _array(target, count, self.dtype))


class _InTurn:
    """A message between two ranks, or from one to all, beside tokens that are nobody's business."""

    def __init__(self, message: Message, group: Group) -> None:
        self.message, self.group = message, group
        self.dtype = np.dtype(DTYPES[message.dtype])
        (self.size,) = message.counts
        self.sends = message.kind == "send"
        self.shares = message.kind == "share"
        self.has_source = self.sends or (self.shares and message.peer == group.rank)

    def run(self, arguments: int, _phase: int, _chunk: int) -> None:
        """Communicate the arrays at the addresses of a launch: token, source, token, target."""
        try:
            count = 2 + self.has_source + (not self.sends)
            places = tuple((ctypes.c_uint64 * count).from_address(arguments))
            array = _array(places[1 if self.sends else -1], self.size, self.dtype)
            self.play(array, places)
        except BaseException as problem:  # nothing can be raised through the player
            self.group.fail(f"{type(problem).__name__}: {problem}")

    def play(self, array: Array, places: tuple[int, ...]) -> None:
        """Send or receive an array; what is shared is a copy on the rank that has it."""
        peer = self.message.peer
        if self.sends:
            self.group.send(array, peer)
        elif self.shares:
            if self.has_source:
                np.copyto(array, _array(places[1], self.size, self.dtype))
            self.group.share(array, peer)
        else:
            self.group.receive(array, peer)


_PLAYED: dict[str, type[_Sum] | type[_Slice] | type[_InTurn]] = {
    "all_reduce": _Sum,
    "reduce_scatter": _Slice,
    "all_to_all": _Swapped,
    "all_gather": _Gathered,
    "send": _InTurn,
    "receive": _InTurn,
    "share": _InTurn,
}


def _array(address: int, count: int, dtype: np.dtype[Any]) -> Array:
    memory: Any = (ctypes.c_char * (count * dtype.itemsize)).from_address(address)
    found: Array = np.frombuffer(memory, dtype)
    return found
