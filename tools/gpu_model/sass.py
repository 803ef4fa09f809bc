"""Machine code of compiled kernels, parsed from nvdisasm's output into basic blocks."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from graphc.base.config import cache_dir

PREDICATE = re.compile(r"^!?U?P(\d+|T)$")
REGISTER = re.compile(r"^U?R(\d+|Z)$")
_LINE = re.compile(
    r"^\s*/\*([0-9a-f]+)\*/\s+(?:@(!?U?P[0-9T]+)\s+)?([A-Z][A-Za-z0-9_.]*)\s*(.*?)\s*;"
)
_LABEL = re.compile(r"^(\.L_[\w.]+|\$[\w$.]+):")
_OPERANDS = re.compile(r",(?![^\[]*\])")
_WIDTHS = {"128": 16, "64": 8, "U8": 1, "S8": 1, "U16": 2, "S16": 2}


class NoDisassemblerError(Exception):
    """nvdisasm is missing or failed; the message has the remedy."""


@dataclass(frozen=True)
class Instruction:
    """One instruction; `guard` is its predicate, "" if there is none."""

    guard: str
    opcode: str
    operands: tuple[str, ...]

    @property
    def name(self) -> str:
        """The opcode without modifiers."""
        return self.opcode.partition(".")[0]

    @property
    def modifiers(self) -> frozenset[str]:
        return frozenset(self.opcode.split(".")[1:])

    @property
    def width(self) -> int:
        """Bytes per lane of a memory access."""
        return next((size for word, size in _WIDTHS.items() if word in self.modifiers), 4)


@dataclass
class Block:
    """A basic block."""

    instructions: list[Instruction]
    kind: str = "next"
    """What its end does: "next" continues with the following block, "jump" goes to block `target`
    and "exit" leaves if all `conditions` hold."""
    conditions: tuple[str, ...] = ()
    target: int = -1
    calls: bool = False
    """Whether it calls a function."""


def find_nvdisasm() -> str:
    """The nvdisasm named by NVDISASM, beside nvcc, on the PATH or in a package of this Python.
    Raises NoDisassemblerError."""
    for place in _places():
        if os.access(place, os.X_OK) and not os.path.isdir(place):
            return place
    raise NoDisassemblerError(
        "nvdisasm is neither beside nvcc nor on the PATH. pip install nvidia-cuda-nvdisasm brings "
        "it, and NVDISASM may name it"
    )


def disassembled(image: bytes, program: str) -> dict[str, list[Block]]:
    """The basic blocks of each kernel symbol in a cubin, by the nvdisasm `program`, whose output is
    cached. Raises NoDisassemblerError."""
    folder = cache_dir() / "sass"
    kept = folder / f"{hashlib.sha256(image).hexdigest()[:32]}.sass"
    if not kept.exists():
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            file, made = Path(scratch) / "image.cubin", Path(scratch) / "made"
            file.write_bytes(image)
            done = subprocess.run([program, "-c", str(file)], capture_output=True, text=True)
            if done.returncode or ".text." not in done.stdout:
                failure = (done.stderr.strip().splitlines() or ["it says nothing"])[0]
                raise NoDisassemblerError(f"{program} failed on a compiled kernel: {failure}")
            made.write_text(done.stdout)
            made.replace(kept)
    return parsed(kept.read_text())


def parsed(text: str) -> dict[str, list[Block]]:
    """The basic blocks of each kernel symbol in nvdisasm's output."""
    codes = {}
    for part in re.split(r"^\.text\.", text, flags=re.MULTILINE)[1:]:
        name, _, body = part.partition(":")
        codes[name] = blocks_of(body.split("\n//----")[0])
    return codes


def blocks_of(text: str) -> list[Block]:
    """The basic blocks of one symbol's lines."""
    lines = list(_lines(text))
    targets = {_target(i) for _, i in lines if i.name == "BRA"}
    blocks, starts = [Block([])], dict[str, int]()
    for labels, instruction in lines:
        if targets & set(labels) and blocks[-1].instructions:
            blocks.append(Block([]))
        starts |= dict.fromkeys(labels, len(blocks) - 1)
        blocks[-1].instructions.append(instruction)
        _set_end(blocks[-1], instruction)
        if blocks[-1].kind != "next":
            blocks.append(Block([]))
    for block in blocks:
        if block.kind == "jump":
            block.target = starts.get(_target(block.instructions[-1]), len(blocks))
    return blocks


def _lines(text: str) -> Iterator[tuple[Sequence[str], Instruction]]:
    """The instructions, each with the labels before it."""
    labels: list[str] = []
    for line in text.splitlines():
        if found := _LABEL.match(line):
            labels.append(found[1])
        elif found := _LINE.match(line):
            words = (word.strip() for word in _OPERANDS.split(found[4]))
            operands = tuple(word.replace(".reuse", "") for word in words if word)
            yield labels, Instruction(found[2] or "", found[3], operands)
            labels = []


def _set_end(block: Block, instruction: Instruction) -> None:
    """Note in the block what its last instruction does to control flow."""
    guard = (instruction.guard,) if instruction.guard else ()
    if instruction.name == "BRA" and "DIV" not in instruction.opcode:
        given = tuple(o for o in instruction.operands if PREDICATE.match(o))
        block.kind, block.conditions = "jump", guard + given
    elif instruction.name in ("EXIT", "RET", "BRX", "JMX", "JMP"):
        block.kind, block.conditions = "exit", guard
    else:
        block.calls |= instruction.name == "CALL"


def _target(instruction: Instruction) -> str:
    found = re.search(r"`\(([^)]+)\)", " ".join(instruction.operands))
    return found[1] if found else ""


def _places() -> Iterator[str]:
    if named := os.environ.get("NVDISASM"):
        yield named
    if nvcc := shutil.which("nvcc"):
        yield str(Path(nvcc).resolve().parent / "nvdisasm")
    if found := shutil.which("nvdisasm"):
        yield found
    for folder in sys.path:
        for inside in ("nvidia/cu13/bin", "nvidia/cuda_nvdisasm/bin"):
            yield str(Path(folder or ".") / inside / "nvdisasm")
