"""The micro-kernels of micro.cu: how each is launched, and what its time consists of.

A time is a sum of costs, such as a gap and 4,096 latencies of L2, so `fit.py` finds the costs from
the times. Each kernel comes in two sizes, a and b, of which the second does four times as much.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tools.gpu_model.machine import LANES, Machine

SOURCE = Path(__file__).with_name("micro.cu")
SIZES: Mapping[str, int] = {"a": 1, "b": 4}
COPIED = 256 << 20
"""Bytes of the smaller copy."""


@dataclass(frozen=True)
class Ring:
    """Pointers that a chase follows: their number and the bytes from one to the next."""

    count: int
    stride: int


RINGS: Mapping[str, Ring] = {
    "l1": Ring(256, 32),
    "l2": Ring(1 << 15, 128),
    "memory": Ring(1 << 15, 16384),
}
"""8 KB; 4 MB in lines of their own; 512 MB, each pointer followed once."""
STEP = 7919
"""How many pointers further each points; it has no divisor in common with their number."""


LOOP = 8
"""Cycles that a warp alone takes for an iteration of a loop of one load: four instructions."""


@dataclass(frozen=True)
class Micro:
    """A launch of `symbol` with so many blocks and threads, or a copy on the device; its time is
    the sum of `costs`, the number of times that each cost is paid."""

    name: str
    symbol: str
    blocks: int
    threads: int
    costs: Mapping[str, float]
    ring: str = ""
    """The ring that it follows."""

    @property
    def cooperative(self) -> bool:
        return self.name.startswith("waits")

    @property
    def copied(self) -> int:
        """Bytes of a copy; 0 for a launch."""
        return int(self.costs.get("copied", 0)) // 2


def micros(machine: Machine) -> Iterator[Micro]:
    """Those of a GPU with the multiprocessors and peaks of `machine`."""
    m = int(machine.multiprocessors)
    yield Micro("empty", "empty", m, 128, {"node": 1})
    for name, size in SIZES.items():

        def micro(
            kind: str, blocks: int, threads: int, size: str = name, ring: str = "", **costs: float
        ) -> Micro:
            symbol = f"{'chase' if ring else kind}_{size}"
            costs = costs if "node" in costs else {"gap": 1, **costs}
            return Micro(f"{kind}_{size}", symbol, blocks, threads, costs, ring)

        yield micro("spin", m, 128, cycle=8000 * size)
        turns = 16 * size
        yield micro("waits", m, 256, node=1, wait=turns, barrier=2 * turns, cycle=10 * turns)
        steps, first = 1024 * size, RINGS["l1"].count
        yield micro("l1", 1, LANES, ring="l1", l1=steps - first, l2=first, cycle=2 * steps)
        yield micro("l2", 1, LANES, ring="l2", l2=steps, cycle=2 * steps)
        yield micro("memory", 1, LANES, ring="memory", memory=steps, cycle=2 * steps)
        yield micro("chase_shared", 1, LANES, shared=steps, cycle=LOOP * steps)
        turns = 512 * size
        yield micro("barriers", 1, 256, barrier=turns, cycle=2 * turns)
        yield micro("shuffles", 1, LANES, shuffle=turns, cycle=2 * turns)
        yield micro("read", 2 * m, 512, read=2 * m * 512 * 8 * 16 * 16 * size)
        warps = 2 * m * 1024 / LANES
        yield micro("adds", 2 * m, 1024, slot=warps / (4 * m) * 67 * 64 * size)
        if machine.arch == "sm_75":  # whose tensor cores multiply neither
            yield micro("copy", 1, 1, copied=2.0 * COPIED * size)
            continue
        warps = 4 * m * 256 / LANES
        flops = warps * 64 * size * 16 * 2 * 16 * 8
        yield micro("bfloats", 4 * m, 256, mma=flops * 16 / machine.bf16)
        yield micro("tf32", 4 * m, 256, mma=flops * 8 / machine.tf32)
        if machine.arch == "sm_90a":
            flops = 4 * m * 64 * size * 4 * 2 * 64 * 128 * 16
            yield micro("groups", 4 * m, 128, wgmma=flops / machine.bf16)
        yield micro("copy", 1, 1, copied=2.0 * COPIED * size)
