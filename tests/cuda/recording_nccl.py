"""What a plan with messages asks of NCCL and of a driver that records, as JSON: calls, streams,
events and their order, at once and while a graph is captured.

test_nccl.py runs this in a process of its own, with the recording driver in place of libcuda and
recording bindings in place of NCCL's.
"""

from __future__ import annotations

import ctypes
import enum
import json
import os
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np

import graphc
from graphc import nn, optim
from graphc.parallel.group import Group
from graphc.runtime.cuda.driver import PycudaDriver
from graphc.runtime.plan.plan import Copy, Launch, Step

DRIVER = ctypes.CDLL("libcuda.so.1")
DRIVER.fake_record.restype = ctypes.c_char_p
DRIVER.fake_machine.argtypes = (ctypes.c_int, ctypes.c_size_t)


class Twin:
    """A transport of two ranks that give the same."""

    name, rank, ranks = "twin", 0, 2

    def all_gather(self, whole: Any, bounds: Any) -> None:
        whole[bounds[1] : bounds[2]] = whole[bounds[0] : bounds[1]] if len(whole) else whole

    def all_to_all(self, source: Any, bounds: Any, target: Any) -> None:
        target[:] = source[bounds[0] : bounds[1]]

    def broadcast(self, array: Any, root: int = 0) -> None:
        note(f"broadcast {array.nbytes}")

    def wake(self) -> None:
        """Nothing waits."""

    def close(self, failed: bool) -> None:
        """Nothing is open."""


class DataType(enum.IntEnum):
    """NCCL's numbers of dtypes."""

    Float32 = 7
    Float64 = 8
    Uint8 = 1


class UniqueId:
    """An identity of 128 bytes."""

    def __init__(self) -> None:
        self.memory = bytearray(range(128))
        self.ptr = 4711

    def __bytes__(self) -> bytes:
        return bytes(self.memory)

    @classmethod
    def from_buffer(cls, buffer: bytearray) -> UniqueId:
        found = cls()
        assert buffer == found.memory
        return found


def note(line: str) -> None:
    DRIVER.fake_note(f"{line}\n".encode())


def comm_init_rank(ranks: int, identity: int, rank: int) -> int:
    note(f"communicator of {ranks} identity {identity} rank {rank}")
    return 99


def all_reduce(
    source: int, target: int, count: int, kind: int, op: int, communicator: int, stream: int
) -> None:
    where = "in place" if source == target else "elsewhere"
    note(f"all_reduce {stream} count {count} kind {kind} op {op} of {communicator} {where}")


def reduce_scatter(
    source: int, target: int, count: int, kind: int, op: int, communicator: int, stream: int
) -> None:
    note(f"reduce_scatter {stream} count {count} kind {kind} op {op} of {communicator}")


def all_gather(
    source: int, target: int, count: int, kind: int, communicator: int, stream: int
) -> None:
    note(f"all_gather {stream} count {count} kind {kind} of {communicator}")


def compiled(self: Any, text: str, name: str, where: str = "") -> bytes:
    return b"image"


def loss_of(model: Any, x: Any) -> Any:
    return graphc.mean(model(x) ** 2)


def taken() -> list[str]:
    """The record so far, which begins anew."""
    lines = DRIVER.fake_record().decode().splitlines()
    DRIVER.fake_clear()
    return lines


def line(plan: Any, step: Step) -> list[Any]:
    """A step as [kind, stream, elements of a message or number of launches or the event]."""
    if isinstance(step, Launch):
        kernel = plan.kernels[step.kernel]
        if kernel.message is not None and kernel.message.in_turn:
            (count,) = kernel.message.counts
            return [kernel.message.kind, step.stream, 4 * count, kernel.message.peer]
        if kernel.message is not None:
            size = step.reads[-1].stop - step.reads[0].start
            if kernel.message.kind != "all_reduce":
                own = min(size, step.writes[0].stop - step.writes[0].start)
                return ["message", step.stream, own // 4]
            return ["message", step.stream, -(-size // 64) * 16]
        return ["launch", step.stream, len(kernel.launches)]
    kind = "copy" if isinstance(step, Copy) else type(step).__name__.lower()
    return [kind, step.stream, getattr(step, "event", None)]


def parallel_of(sharded: bool, shards: int | None, stages: int) -> Any:
    """Two ranks, of which only the first is there, with a part of the batch or a stage each."""
    if stages:
        parallel: Any = graphc.PipelineParallel(stages)
    else:
        parallel = graphc.DataParallel(shard_optimizer_state=sharded, shards=shards)
    parallel.group, parallel.ranks = Group(Twin()), 2  # type: ignore[arg-type]
    return parallel


def send(source: int, count: int, kind: int, rank: int, communicator: int, stream: int) -> None:
    note(f"send {stream} count {count} kind {kind} to {rank} of {communicator}")


def recv(target: int, count: int, kind: int, rank: int, communicator: int, stream: int) -> None:
    note(f"recv {stream} count {count} kind {kind} from {rank} of {communicator}")


def share(
    source: int, target: int, count: int, kind: int, root: int, communicator: int, stream: int
) -> None:
    note(f"share {stream} count {count} kind {kind} of {root} of {communicator}")


BINDINGS = SimpleNamespace(
    DataType=DataType,
    RedOp=SimpleNamespace(Sum=0),
    UniqueId=UniqueId,
    get_unique_id=UniqueId,
    comm_init_rank=comm_init_rank,
    all_reduce=all_reduce,
    reduce_scatter=reduce_scatter,
    all_gather=all_gather,
    broadcast=share,
    send=send,
    recv=recv,
    group_start=lambda: note("group_start"),
    group_end=lambda: note("group_end"),
)


def main(sharded: bool = False, shards: int | None = None, stages: int = 0) -> None:
    """Print what a program records as it is compiled, and in its first three steps.

    With `stages`, that of the first of two stages, with so many micro-batches.
    """
    PycudaDriver.products = PycudaDriver.convolutions = None  # type: ignore[assignment]
    PycudaDriver.compile = compiled  # type: ignore[method-assign]
    sys.modules["nccl.bindings.nccl"] = BINDINGS  # type: ignore[assignment]
    os.environ["GRAPHC_BUCKET_BYTES"] = "20000"
    DRIVER.fake_machine(1, 1 << 34)
    layers = [layer for _ in range(4) for layer in (nn.Linear(64, 64), nn.ReLU())]
    step = graphc.compile(
        loss_of,
        nn.Sequential(*layers),
        graphc.spec((32, 64)),
        update=optim.SGD(lr=0.1, momentum=0.9 * sharded),
        device="cuda",
        parallel=parallel_of(sharded, shards, stages),
    )
    found: dict[str, Any] = {"compile": taken()}
    x = np.zeros((32, 64), np.float32)
    found["steps"] = []
    for _ in range(3):
        step(x)
        found["steps"].append(taken())
    found["plan"] = [line(step.plan, each) for each in step.plan.steps]
    print(json.dumps(found))


if __name__ == "__main__":
    main()
