"""The machine code of compiled kernels, as nvdisasm prints it: which instructions are in it, and
how wide what moves between global memory and the multiprocessor is."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

LINE = re.compile(r"\s*/\*[0-9a-f]{4,}\*/\s+(?:@(!?U?P\w+)\s+)?([A-Z][\w.]*)\s*(.*?)\s*;")
LABEL = re.compile(r"^(\.L_[\w.]+):")
MOVES = ("LDG", "STG", "LDGSTS", "LD", "ST")
"""Loads, stores and copies to shared memory, of global memory."""
REPEATED = 8
"""How often a loop's instructions count for each loop around them."""


@dataclass(frozen=True)
class Instruction:
    opcode: str
    """With modifiers, as LDG.E.128.CONSTANT."""
    times: int
    """How often it counts."""

    @property
    def name(self) -> str:
        return self.opcode.partition(".")[0]

    @property
    def width(self) -> int:
        """Bytes that a lane moves."""
        for part in self.opcode.split("."):
            if part in ("128", "64"):
                return int(part) // 8
            if part in ("U16", "S16", "U8", "S8"):
                return int(part[1:]) // 8
        return 4


def disassembled(image: bytes, nvdisasm: str, folder: Path) -> dict[str, list[Instruction]]:
    """The instructions of each kernel in a cubin, by its symbol, without those that never run."""
    file = folder / "image.cubin"
    file.write_bytes(image)
    command = [nvdisasm, "-c", str(file)]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    parts = re.split(r"^\.text\.(\S+):$", text, flags=re.M)[1:]
    return {
        name: _instructions(body.splitlines())
        for name, body in zip(parts[::2], parts[1::2], strict=True)
    }


def _instructions(lines: Sequence[str]) -> list[Instruction]:
    found: list[tuple[str, str]] = []
    labels: dict[str, int] = {}
    loops: list[tuple[int, int]] = []
    for line in lines:
        if label := LABEL.match(line):
            labels[label.group(1)] = len(found)
        elif match := LINE.match(line):
            guard, opcode, operands = match.groups()
            target = re.search(r"`\((\.L_[\w.]+)\)", operands)
            start = labels.get(target.group(1)) if target and opcode.startswith("BRA") else None
            if start is not None and start < len(found):
                loops.append((start, len(found)))
            found.append((opcode, guard or ""))
    return [
        Instruction(opcode, REPEATED ** sum(a <= i <= b for a, b in loops))
        for i, (opcode, guard) in enumerate(found)
        if guard != "!PT" and opcode != "NOP"
    ]


def moved(instructions: Sequence[Instruction]) -> tuple[int, int]:
    """Bytes that a lane moves, and those of them by accesses of 16 bytes: in each loop as if it
    were played `REPEATED` times."""
    sizes = [(i.width, i.width * i.times) for i in instructions if i.name in MOVES]
    return sum(n for _, n in sizes), sum(n for width, n in sizes if width == 16)
