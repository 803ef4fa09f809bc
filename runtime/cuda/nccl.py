"""Messages of a plan on GPUs, by NCCL: sums over all ranks, issued on the plan's streams.

A message is one call of `ncclAllReduce`, `ncclReduceScatter`, `ncclAllGather`, `ncclSend`,
`ncclRecv` or `ncclBroadcast`, or a group of sends and receives, on the stream of its step, where
the arrays lie. While a stream is captured, it becomes a part of the CUDA graph, so later steps of
the host cost nothing. NCCL adds in an order of its own, which is the same from run to run on the
same machines.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from typing import Any

from graphc.base.errors import RunError
from graphc.ir import DTYPES
from graphc.kernels.program.message import Message
from graphc.parallel.group import Group
from graphc.runtime.planner.tasks import aligned

KINDS = {"f16": "Float16", "bf16": "Bfloat16", "f32": "Float32", "f64": "Float64"}
"""NCCL's names of dtypes."""
SOURCE_AND_TARGET = 4
"""The arguments of a message on the rank that shares an array: two tokens beside the arrays."""


@functools.cache
def communicator(group: Group, ordinal: int) -> Nccl:
    """The communicator of a group whose rank here has the GPU of this number, which is current.

    All ranks make it together. Raises RunError if nccl4py or NCCL is missing.
    """
    return Nccl(group, _bindings())


class Nccl:
    """A communicator of all ranks, one GPU each. `nccl` are the bindings."""

    def __init__(self, group: Group, nccl: Any) -> None:
        self._nccl = nccl
        text = bytes(nccl.get_unique_id()).hex() if group.rank == 0 else ""
        unique = nccl.UniqueId.from_buffer(bytearray.fromhex(group.agreed(text)))
        self._communicator = nccl.comm_init_rank(group.ranks, unique.ptr, group.rank)

    def issue(self, message: Message, pointers: Sequence[int], stream: Any) -> Callable[[], Any]:
        """A function that issues a message on a stream; `pointers` are its kernel's arguments."""
        if message.in_turn:
            return self._issue_in_turn(message, pointers, stream)
        kind = int(getattr(self._nccl.DataType, KINDS[message.dtype]))
        operation = int(self._nccl.RedOp.Sum)
        behind = self._communicator, int(stream.handle)
        source, target = pointers[0], pointers[len(message.counts)]
        if message.kind == "all_gather":
            own = message.counts[0] // message.ranks
            return partial(self._nccl.all_gather, source, target, own, kind, *behind)
        if message.kind == "all_to_all":
            return partial(self._swap, message, source, target, kind, int(stream.handle))
        if message.kind == "reduce_scatter":
            (own,) = message.counts
            scatter = self._nccl.reduce_scatter
            return partial(scatter, source, target, own, kind, operation, *behind)
        itemsize = DTYPES[message.dtype].itemsize
        elements = sum(aligned(count * itemsize) for count in message.counts) // itemsize
        return partial(self._nccl.all_reduce, source, target, elements, kind, operation, *behind)

    def _swap(self, message: Message, source: int, target: int, kind: int, stream: int) -> None:
        """Send each rank its part at `source`; receive the parts of all ranks at `target`."""
        count = message.counts[0] // message.ranks
        nbytes = count * DTYPES[message.dtype].itemsize
        self._nccl.group_start()
        for rank in range(message.ranks):
            behind = count, kind, rank, self._communicator, stream
            self._nccl.send(source + rank * nbytes, *behind)
            self._nccl.recv(target + rank * nbytes, *behind)
        self._nccl.group_end()

    def _issue_in_turn(
        self, message: Message, pointers: Sequence[int], stream: Any
    ) -> Callable[[], Any]:
        """The same for a message between two ranks, or from one to all: of bytes."""
        size = message.counts[0] * DTYPES[message.dtype].itemsize
        how = size, int(self._nccl.DataType.Uint8), message.peer
        behind = self._communicator, int(stream.handle)
        if message.kind == "send":
            return partial(self._nccl.send, pointers[1], *how, *behind)
        if message.kind == "receive":
            return partial(self._nccl.recv, pointers[-1], *how, *behind)
        source = pointers[1] if len(pointers) == SOURCE_AND_TARGET else pointers[-1]
        return partial(self._nccl.broadcast, source, pointers[-1], *how, *behind)


def _bindings() -> Any:
    try:
        return import_module("nccl.bindings.nccl")
    except (ImportError, OSError) as problem:
        raise RunError(
            f"data-parallel training on GPUs needs nccl4py (pip install 'graphc[nccl]'): {problem}"
        ) from None
