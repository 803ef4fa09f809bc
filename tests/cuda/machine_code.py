"""What is in the machine code of compiled kernels: instructions, and how wide what moves between
global memory and the multiprocessor is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tools.gpu_model.sass import Block, Instruction

MOVES = ("LDG", "STG", "LDGSTS", "LD", "ST")
"""Loads, stores and copies to shared memory, of global memory."""
REPEATED = 8
"""How often a loop's instructions count for each loop around them."""


def executed(blocks: Sequence[Block]) -> Iterator[tuple[Instruction, int]]:
    """The instructions that ever run, and how often they count."""
    loops = [(b.target, i) for i, b in enumerate(blocks) if b.kind == "jump" and b.target <= i]
    for number, block in enumerate(blocks):
        times = REPEATED ** sum(first <= number <= last for first, last in loops)
        yield from ((i, times) for i in block.instructions if i.guard != "!PT" and i.name != "NOP")


def moved(blocks: Sequence[Block]) -> tuple[int, int]:
    """Bytes that a lane moves, and those of them by accesses of 16 bytes: in each loop as if it
    were played `REPEATED` times."""
    sizes = [(i.width, i.width * times) for i, times in executed(blocks) if i.name in MOVES]
    return sum(n for _, n in sizes), sum(n for width, n in sizes if width == 16)
