"""Shared objects that a wheel brings, for machines that have built none of their own.

`tools/build_wheel.py` builds them: the player, without the Python module that speeds up calls, and
the library of prebuilt kernels once for each instruction set. They have the bits of those that a
machine builds. A checkout has none.
"""

from __future__ import annotations

import hashlib
import platform
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from graphc.base.config import INSTRUCTION_SETS
from graphc.runtime.compilers.shared_objects import (
    FLAGS,
    KERNEL_HEADERS,
    cpu_features,
    cpu_target,
    headers_digest,
    kernel_headers,
)

PLAYER_SOURCE = Path(__file__).parents[1] / "cpu" / "native" / "player.cpp"
PLAYER_FLAGS = ("-pthread", "-O2", "-std=c++17")
"""-O3 takes half as long again, the headers of C++20 three times as long as those of C++17."""
LIBRARY_SOURCES = KERNEL_HEADERS / "prebuilt"
"""The folder of the sources and headers of the library of prebuilt kernels."""
LIBRARY_FLAGS = tuple("-O2" if flag == "-O3" else flag for flag in FLAGS)
"""The flags of generated kernels, but for loops that are written for registers already: no others
matter, and their versions would take a third of the library's build. The bits are the same."""
SHIPPED = Path(__file__).parents[1] / "shipped"
"""The folder of the objects in an installed package."""
LEVELS = {
    "sse2": ("x86-64", ()),
    "avx2": ("x86-64-v3", ("avx2", "fma", "bmi2", "f16c")),
    "avx512": ("x86-64-v4", ("avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")),
}
"""What compilers call a CPU with each instruction set, and what such a CPU has."""


@dataclass(frozen=True)
class Shipped:
    """An object of the wheel: how it is built, and under which name it is found."""

    name: str
    sources: tuple[Path, ...]
    flags: tuple[str, ...]
    headers: str
    """The digest of what the sources include."""

    @property
    def path(self) -> Path:
        """Where an installed package has it, if the wheel was built from the same sources."""
        contents = [path.read_text() for path in self.sources]
        parts = (*contents, self.headers, *(f for f in self.flags if not f.startswith("-I")))
        digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]
        return SHIPPED / f"{self.name}-{digest}.so"


def player() -> Shipped:
    """The player for any CPU of this machine's kind."""
    flags = (*_portable("sse2"), f"-I{PLAYER_SOURCE.parent}", *PLAYER_FLAGS)
    return Shipped("player", (PLAYER_SOURCE,), flags, headers_digest(PLAYER_SOURCE.parent))


def prebuilt(isa: str) -> Shipped:
    """The library of prebuilt kernels for an instruction set."""
    lanes = f"-DGRAPHC_LANES={INSTRUCTION_SETS[isa]}"
    flags = (*_portable(isa), lanes, f"-I{KERNEL_HEADERS}")
    sources = tuple(sorted(LIBRARY_SOURCES.glob("*.cpp")))
    return Shipped(f"prebuilt-{isa}", sources, flags, library_headers(LIBRARY_SOURCES))


def library_headers(folder: Path) -> str:
    """The digests of all that the library's sources in a folder include."""
    return f"{kernel_headers()} {headers_digest(folder)}"


def found(objects: Iterable[Shipped]) -> Path | None:
    """The first of these objects that the installed package has; a checkout asks for none."""
    if not SHIPPED.is_dir() or platform.machine() != "x86_64" or sys.platform != "linux":
        return None
    return next((path for o in objects if (path := o.path).is_file()), None)


def prebuilt_of_this_cpu() -> Path | None:
    """The library that a wheel brought for this CPU or GRAPHC_ISA."""
    lanes = cpu_target().lanes
    return found(
        prebuilt(isa)
        for isa, (_, needs) in LEVELS.items()
        if INSTRUCTION_SETS[isa] == lanes and {*needs} <= {*cpu_features()}
    )


def _portable(isa: str) -> tuple[str, ...]:
    """LIBRARY_FLAGS for all CPUs with an instruction set."""
    return (*(f for f in LIBRARY_FLAGS if not f.startswith("-march=")), f"-march={LEVELS[isa][0]}")
