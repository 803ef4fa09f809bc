"""Count what the instructions of a warp need of a multiprocessor's pipes, and their latency
alone."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from tools.gpu_model.emulate import results
from tools.gpu_model.machine import LANES, Machine
from tools.gpu_model.sass import Instruction
from tools.gpu_model.state import InstructionIndex
from tools.gpu_model.walk import Code, WarpAccess

FP32 = frozenset(
    "FFMA FADD FMUL FADD32I FMUL32I FFMA32I HFMA2 HADD2 HMUL2 FFMA2 FADD2 FMUL2".split()
)
XU = frozenset("MUFU I2F F2I F2F FRND POPC FLO BREV".split())
FP64 = frozenset("DADD DMUL DFMA DSETP DMNMX".split())
LOADS = frozenset("LDG LDGSTS LD".split())
STORES = frozenset("STG ST RED ATOMG ATOM".split())
BULK = frozenset("UTMALDG UBLKCP UTMASTG".split())
SHARED = frozenset("LDS STS LDSM STSM ATOMS LDL STL".split())
MATRIX = frozenset("HMMA IMMA QMMA DMMA HGMMA QGMMA".split())
OTHER = frozenset(
    "BRA EXIT BAR NOP BSSY BSYNC S2R LDC CS2R CALL RET DEPBAR LDGDEPBAR SHFL VOTE WARPSYNC".split()
)
"""Instructions that take an issue slot and no counted pipe."""

PRODUCTS: Mapping[str, int] = {
    "16816": 16 * 8 * 16,
    "1688": 16 * 8 * 8,
    "1684": 16 * 8 * 4,
    "16832": 16 * 8 * 32,
    "884": 8 * 8 * 4,
}
"""Multiply-adds of a warp by the shape in a tensor-core instruction."""


@dataclass
class WarpCounts:
    """The average work of a warp over those that were walked: cycles of pipes and of the warp
    alone, seconds of tensor cores at their dense peak, bytes that lanes move and bytes of the
    sectors that they touch."""

    issued: float = 0.0
    fma: float = 0.0
    imad: float = 0.0
    alu: float = 0.0
    xu: float = 0.0
    fp64: float = 0.0
    lsu: float = 0.0
    mma_seconds: float = 0.0
    wgmma_seconds: float = 0.0
    flops: float = 0.0
    load_bytes: float = 0.0
    load_sectors: float = 0.0
    other_sectors: float = 0.0
    kept_sectors: float = 0.0
    copy_bytes: float = 0.0
    store_bytes: float = 0.0
    wide_bytes: float = 0.0
    conflicts: float = 0.0
    shared_cycles: float = 0.0
    bulk: float = 0.0
    alone: float = 0.0
    waits: float = 0.0
    ring: float = 0.0
    ring_steps: float = 0.0
    missed: float = 1.0
    """The fraction of `kept_sectors`, those of copies through L1, that miss."""
    opcodes: dict[str, float] = field(default_factory=dict)
    unknown: bool = False
    truncated: bool = False
    hot: dict[str, Any] = field(default_factory=dict)

    @property
    def moved_bytes(self) -> float:
        """Bytes that lanes load, copy and store."""
        return self.load_bytes + self.copy_bytes + self.store_bytes

    def add(self, other: WarpCounts, share: float) -> None:
        """Add a share of another's counts."""
        for name in SUMMED:
            setattr(self, name, getattr(self, name) + getattr(other, name) * share)
        for opcode, count in other.opcodes.items():
            self.opcodes[opcode] = self.opcodes.get(opcode, 0.0) + count * share
        self.unknown |= other.unknown
        self.truncated |= other.truncated

    def scale(self, factor: float) -> None:
        for name in SUMMED:
            setattr(self, name, getattr(self, name) * factor)


SUMMED = tuple(f.name for f in fields(WarpCounts) if f.type == "float" and f.name != "missed")


Array = np.ndarray[Any, np.dtype[np.float64]]


def row_of(counts: WarpCounts) -> list[float]:
    """The summed counts, in the order of `SUMMED`."""
    return [getattr(counts, name) for name in SUMMED]


def counts_of(row: Array) -> WarpCounts:
    """The counts of a row of `row_of`, or of a sum of such rows."""
    made = WarpCounts()
    for name, value in zip(SUMMED, row, strict=True):
        setattr(made, name, float(value))
    return made


def counted(
    code: Code, accesses: Mapping[InstructionIndex, WarpAccess], machine: Machine
) -> list[WarpCounts]:
    """The work of a warp in each block of code, given what its accesses touch."""
    return [
        _Counting(code, number, accesses, machine).counts(block.instructions)
        for number, block in enumerate(code.blocks)
    ]


def matrix_flops(opcode: str) -> float:
    """FLOPs of a warp in a tensor-core instruction; 0 for others."""
    name, _, rest = opcode.partition(".")
    if name in ("HGMMA", "QGMMA"):
        found = re.search(r"(\d+)x(\d+)x(\d+)", rest)
        return math.prod(map(int, found.groups())) * 2 / 4 if found else 0.0
    if name not in MATRIX:
        return 0.0
    found = re.match(r"(?:SP\.)?(\d+)", rest)
    return 2.0 * PRODUCTS.get(found[1] if found else "", PRODUCTS["16816"])


def by_width(opcodes: Mapping[str, float]) -> dict[str, Any]:
    """Numbers of instructions in total and of interesting ones by name; accesses by bytes per
    lane."""
    made: dict[str, Any] = {"instructions": round(sum(opcodes.values()), 1)}
    for opcode, count in opcodes.items():
        name = opcode.partition(".")[0]
        if name in ("LDS", "STS", "LDG", "LDGSTS", "STG"):
            sizes = made.setdefault(name, {})
            size = str(Instruction("", opcode, ()).width)
            sizes[size] = round(sizes.get(size, 0) + count, 1)
        elif name in ("FFMA", "LDSM", "DFMA", "LDL", "STL") or name in BULK | MATRIX:
            made[name] = round(made.get(name, 0) + count, 1)
    return made


class _Counting:
    """Counts one block of code."""

    def __init__(
        self,
        code: Code,
        number: int,
        accesses: Mapping[InstructionIndex, WarpAccess],
        machine: Machine,
    ) -> None:
        self.code, self.number, self.accesses, self.machine = code, number, accesses, machine
        self.made = WarpCounts()

    def counts(self, instructions: Sequence[Instruction]) -> WarpCounts:
        made, shared = self.made, False
        for place, i in enumerate(instructions):
            if i.name == "NOP":
                continue
            made.issued += 1
            made.opcodes[i.opcode] = made.opcodes.get(i.opcode, 0.0) + 1
            if i.guard == "!PT":
                continue
            made.alone += 1 if i.name in FP32 | MATRIX else 2
            shared |= i.name in ("LDS", "LDSM")
            if i.name in LOADS | STORES:
                self.access(place, i)
            elif i.name in SHARED:
                self.shared(place, i)
            else:
                self.other(i)
        made.alone += self.machine.shared_latency * shared
        asks = self.number in self.code.asks - self.code.waiting
        made.alone += self.machine.turn * asks
        made.waits = _waits(instructions) - asks
        return made

    def access(self, place: int, i: Instruction) -> None:
        """Of memory."""
        made, size, where = self.made, i.width, (self.number, place)
        touched = self.accesses.get(where, WarpAccess(size, max(1, size / 4)))
        made.lsu += max(1, size / 4, touched.lines)
        sectors, moved = 32 * touched.sectors, size * LANES
        if i.name in ("LDG", "LD"):
            made.load_sectors += sectors
            made.load_bytes += moved
        elif self.code.keeps(where):
            made.kept_sectors += sectors
        else:
            made.other_sectors += sectors
        made.copy_bytes += moved if i.name == "LDGSTS" else 0
        made.store_bytes += moved if i.name in STORES else 0
        made.wide_bytes += moved if size >= 16 else 0

    def shared(self, place: int, i: Instruction) -> None:
        """Of shared memory."""
        size = 16 if i.opcode.endswith(".4") else i.width
        cycles = 3 if i.name == "LDS" and size == 16 else max(1, size / 4)
        touched = self.accesses.get((self.number, place), WarpAccess())
        worse = touched.conflicts if i.name != "LDSM" else 1
        self.made.lsu += cycles * worse
        self.made.conflicts += cycles * worse
        self.made.shared_cycles += cycles

    def other(self, i: Instruction) -> None:
        made, machine = self.made, self.machine
        if flops := matrix_flops(i.opcode):
            peak = machine.tf32 if "TF32" in i.opcode else machine.bf16
            seconds = flops * machine.multiprocessors * 4 / peak
            made.wgmma_seconds += seconds if i.name.endswith("GMMA") else 0
            made.mma_seconds += 0 if i.name.endswith("GMMA") else seconds
            made.flops += flops
        elif i.name in FP32:
            made.fma += 1
            pairs = 2 if i.name == "FFMA2" else 1
            made.flops += 2 * LANES * pairs if i.name.startswith("FFMA") else 0
        elif i.name == "IMAD":
            made.imad += 1
        elif i.name in XU:
            made.xu += 1
        elif i.name in FP64:
            made.fp64 += 1
            made.flops += 2 * LANES if i.name == "DFMA" else 0
        elif i.name in BULK:
            made.bulk += 1
        elif i.name == "SHFL":
            made.lsu += 1
            made.alone += machine.shuffle
        elif i.name == "BAR":
            made.alone += machine.barrier
        elif i.name == "DEPBAR" and i.operands[:1] == ("SB0",) and len(i.operands) > 1:
            pending = int(i.operands[1], 16) if i.operands[1].startswith("0x") else 0
            made.ring_steps += 1
            made.ring += 1 / (pending + 1)
        elif i.name not in OTHER and not i.name.startswith("U"):
            made.alu += 1


def _waits(instructions: Sequence[Instruction]) -> int:
    """The number of waits for loads in this code: at the first use of one, all have arrived. Loads
    that later code uses count as one."""
    waits, pending = 0, set[str]()
    for instruction in instructions:
        text = " ".join(instruction.operands)
        if pending and any(re.search(rf"\b{register}\b", text) for register in pending):
            waits, pending = waits + 1, set()
        if instruction.name in ("LDG", "LD") and instruction.guard != "!PT":
            pending |= set(results(instruction))
    return waits + bool(pending)
