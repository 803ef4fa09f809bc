"""Walk machine code as one thread would execute it.

A walk executes the integer instructions that decide branches, for one thread of one block, and
counts how often each basic block is entered: loops over tiles, stages of reductions, causal
attention, warps with different roles. What depends on data (the slow path of a division, a search)
is unknown: such a region is skipped where possible, else entered once, and the walk records it. A
second walk, of the lanes of a warp, finds what their first accesses touch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from tools.gpu_model.constants import Tables
from tools.gpu_model.emulate import Action, steps_of
from tools.gpu_model.machine import LANES
from tools.gpu_model.sass import Block, Instruction
from tools.gpu_model.state import InstructionIndex, State, begun

MOST_VISITS = 400_000
"""Basic blocks that a thread enters before a walk is truncated; counts are then scaled."""
MOST_ACCESSES, VISITS_OF_TRACE = 64, 1500
"""Accesses and entered basic blocks after which the trace of a lane's addresses ends; up to twenty
times as many blocks if more accesses are requested, one and a half for each."""

Sizes = Sequence[int]


@dataclass
class ThreadWalk:
    """How often a thread enters each basic block.

    `stretches` are separated by barriers of all blocks, and begin anew where the last block of a
    group continues alone, by the ticket that it drew. `unknown` tells that loops depend on data,
    `truncated` that the walk did not reach its end.
    """

    stretches: list[Counter[int]] = field(default_factory=lambda: [Counter()])
    unknown: bool = False
    truncated: bool = False

    @property
    def visits(self) -> Counter[int]:
        return sum(self.stretches, Counter())


@dataclass(frozen=True)
class WarpAccess:
    """What an access of a warp touches on average: sectors of 32 bytes and lines of 128 bytes of
    memory, or for shared memory the factor over the cycles without bank conflicts."""

    sectors: float = 0
    lines: float = 0
    conflicts: float = 1


class Code:
    """The machine code of one kernel symbol, with the constant arrays of its file. `sizes` are
    those of block, then grid."""

    def __init__(self, blocks: Sequence[Block], tables: Tables | None = None) -> None:
        self.blocks, self.tables = blocks, tables or Tables()
        self._steps: dict[bool, list[list[Action]]] = {}
        self._backward = [b.kind == "jump" and b.target <= i for i, b in enumerate(blocks)]
        names = [[i.name for i in block.instructions] for block in blocks]
        self._draws = {i for i, found in enumerate(names) if "B2R" in found}
        self._arrives = {i - 1 for i in range(1, len(blocks)) if self._is_arrival(i)}
        self.asks = {i for i, b in enumerate(blocks) if self._is_asking(b)}
        """The code in which a thread asks for what another block stores."""
        self.polls = {i for i in self.asks if blocks[i].target == i}
        """The loops in which it does so until it is there."""
        self.waiting = {i + n for i in self._arrives for n in (1, 2)}
        """The blocks of code by which all blocks of a launch wait for each other."""

    def loops(self) -> list[tuple[int, int]]:
        """The first and the last basic block of each loop."""
        return [(b.target, i) for i, b in enumerate(self.blocks) if self._backward[i]]

    def keeps(self, place: InstructionIndex) -> bool:
        """Whether the instruction is a copy through L1."""
        opcode = self.blocks[place[0]].instructions[place[1]].opcode
        return opcode.startswith("LDGSTS") and "BYPASS" not in opcode

    def walk(self, block: Sizes, thread: Sizes, sizes: Sizes) -> ThreadWalk:
        """The path of a thread of a block."""
        state, steps = begun(block, thread, sizes, self.tables), self._compiled(False)
        walk, at = ThreadWalk(), 0
        for _ in range(MOST_VISITS):
            if at >= len(self.blocks):
                return walk
            walk.stretches[-1][at] += 1
            for step in steps[at]:
                step(state)
            if at in self._arrives or at in self._draws:
                walk.stretches.append(Counter())
            code = self.blocks[at]
            holds = state.holding(code.conditions) if code.kind != "next" else False
            if holds is None and at in self.polls:
                holds = False
            if holds is None:
                between = range(at, max(at + 1, code.target)) if code.kind == "jump" else ()
                loops = any(self._backward[i] and i not in self.polls for i in between)
                walk.unknown |= loops
                holds = self._skips(at) or (
                    loops and code.kind == "jump" and not self._backward[at]
                )
            if code.kind == "exit" and holds:
                return walk
            at = code.target if holds else at + 1
        walk.truncated = True
        return walk

    def accesses(
        self,
        block: Sizes,
        threads: Sequence[Sizes],
        sizes: Sizes,
        most: int = MOST_ACCESSES,
    ) -> dict[InstructionIndex, WarpAccess]:
        """What the first accesses of these threads, a warp, touch, by instruction. Arguments are
        assumed to be aligned; unknown accesses are left out."""
        rows: dict[InstructionIndex, list[list[int | None]]] = {}
        for lane, thread in enumerate(threads):
            state = self.traced(block, thread, sizes, most)
            for place, addresses in state.traced.items():
                known = rows.setdefault(place, [])
                known += [[None] * len(threads) for _ in addresses[len(known) :]]
                for row, address in zip(known, addresses, strict=False):
                    row[lane] = address
        return {
            place: _touched(self.blocks[place[0]].instructions[place[1]], found)
            for place, found in rows.items()
        }

    def traced(self, block: Sizes, thread: Sizes, sizes: Sizes, most: int = MOST_ACCESSES) -> State:
        """The state of a thread after `most` accesses, with known arguments."""
        state, steps, at = begun(block, thread, sizes, self.tables), self._compiled(True), 0
        state.pointers = True
        for _ in range(max(VISITS_OF_TRACE, min(20 * VISITS_OF_TRACE, most + most // 2))):
            if at >= len(self.blocks) or state.accesses > most:
                break
            for step in steps[at]:
                step(state)
            code = self.blocks[at]
            holds = state.holding(code.conditions) if code.kind != "next" else False
            if code.kind == "exit" and holds:
                break
            if holds is None:
                holds = self._skips(at)
            at = code.target if code.kind == "jump" and holds else at + 1
        return state

    def draws(self, block: Sizes, sizes: Sizes) -> tuple[int, ...]:
        """For each ticket that a block draws, the number of blocks of which one is last."""
        return tuple(self.traced(block, (0, 0, 0), sizes, MOST_VISITS).drawn)

    def _is_arrival(self, number: int) -> bool:
        """Whether a thread signals here that its block has arrived at the barrier of all blocks."""
        here, behind = (self.blocks[i : i + 1] for i in (number, number + 1))
        adds = any(i.opcode.startswith("ATOMG.E.ADD") for block in here for i in block.instructions)
        return adds and any(block.kind == "jump" and block.target == number + 1 for block in behind)

    def _is_asking(self, block: Block) -> bool:
        return any(i.name == "LDG" and "STRONG" in i.modifiers for i in block.instructions)

    def _compiled(self, traced: bool) -> list[list[Action]]:
        if traced not in self._steps:
            self._steps[traced] = steps_of(self.blocks, traced)
        return self._steps[traced]

    def _skips(self, at: int) -> bool:
        """Whether an unknown jump skips the call of a division's slow path, or a wait for what is
        already there."""
        code = self.blocks[at]
        if code.kind != "jump" or self._backward[at]:
            return False
        between = range(at + 1, code.target)
        return any(self.blocks[i].calls or i in self.polls for i in between)


def _touched(instruction: Instruction, rows: Sequence[Sequence[int | None]]) -> WarpAccess:
    """The access by rows of the lanes' addresses, one row per execution."""
    size = instruction.width
    known = [[a for a in row if a is not None] for row in rows]
    known = [row for row in known if row]
    if not known:
        return WarpAccess(sectors=size, lines=max(1, size / 4))
    if instruction.name in ("LDS", "STS", "LDSM"):
        return WarpAccess(conflicts=sum(_conflicts(row, size) for row in known) / len(known))
    step = min(size, 32)
    sectors = sum(len({b // 32 for a in row for b in range(a, a + size, step)}) for row in known)
    lines = sum(len({a // 128 for a in row}) for row in known)
    return WarpAccess(sectors / len(known), lines / len(known))


def _conflicts(addresses: Sequence[int], size: int) -> float:
    """The factor over the cycles without bank conflicts: phases of 128 bytes, in each the most
    words of one bank."""
    if size < 4:
        return 1
    together = LANES * 4 // size
    phases = [addresses[i : i + together] for i in range(0, len(addresses), together)]
    cycles = 0
    for phase in phases:
        words = {word for a in phase for word in range(a // 4, (a + size) // 4)}
        cycles += max(Counter(word % 32 for word in words).values())
    return cycles / len(phases)
