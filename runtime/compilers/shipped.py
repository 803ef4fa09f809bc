"""Shared objects that a wheel brings, for machines that have built none of their own.

`tools/build_wheel.py` builds them: the player, without the Python module that speeds up calls, and
the library of prebuilt kernels once for each instruction set of a kind of machine, x86-64 or ARM64.
They have the bits of those that a machine builds. A checkout has none.
"""

from __future__ import annotations

import hashlib
import platform
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

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


@dataclass(frozen=True)
class Level:
    """CPUs that a library is for."""

    lanes: int
    """The float32 in a vector of its kernels."""
    flags: tuple[str, ...] = ()
    """Flags that choose such CPUs, where they have more than every CPU of the kind."""
    needs: tuple[str, ...] = ()
    """What the system reports of such a CPU."""


LEVELS = {
    "x86_64": {
        "sse2": Level(4, ("-march=x86-64",)),
        "avx2": Level(8, ("-march=x86-64-v3",), ("avx2", "fma", "bmi2", "f16c")),
        "avx512": Level(
            16, ("-march=x86-64-v4",), ("avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")
        ),
    },
    "aarch64": {"neon": Level(4)},
}
"""The instruction sets that wheels have libraries for, by kind of machine; the first is the one
that every such machine has."""


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


def player(machine: str = platform.machine()) -> Shipped:
    """The player for any CPU of a kind of machine."""
    baseline = next(iter(LEVELS[machine].values()))
    flags = (*_portable(baseline), f"-I{PLAYER_SOURCE.parent}", *PLAYER_FLAGS)
    return Shipped("player", (PLAYER_SOURCE,), flags, headers_digest(PLAYER_SOURCE.parent))


def prebuilt(isa: str, machine: str = platform.machine()) -> Shipped:
    """The library of prebuilt kernels for an instruction set of a kind of machine."""
    level = LEVELS[machine][isa]
    flags = (*_portable(level), f"-DGRAPHC_LANES={level.lanes}", f"-I{KERNEL_HEADERS}")
    sources = tuple(sorted(LIBRARY_SOURCES.glob("*.cpp")))
    return Shipped(f"prebuilt-{isa}", sources, flags, library_headers(LIBRARY_SOURCES))


def library_headers(folder: Path) -> str:
    """The digests of all that the library's sources in a folder include."""
    return f"{kernel_headers()} {headers_digest(folder)}"


def player_of_this_machine() -> Path | None:
    """The player that a wheel brought, if one did."""
    return _found([player()] if _levels() else [])


def prebuilt_of_this_cpu() -> Path | None:
    """The library that a wheel brought for this CPU or GRAPHC_ISA."""
    lanes = cpu_target().lanes
    return _found(
        prebuilt(isa)
        for isa, level in _levels().items()
        if level.lanes == lanes and {*level.needs} <= {*cpu_features()}
    )


def _levels() -> dict[str, Level]:
    """The instruction sets of this machine's kind that wheels have libraries for."""
    return LEVELS.get(platform.machine(), {}) if sys.platform == "linux" else {}


def _found(objects: Iterable[Shipped]) -> Path | None:
    """The first of these objects that the installed package has; a checkout asks for none."""
    if not SHIPPED.is_dir():
        return None
    return next((path for o in objects if (path := o.path).is_file()), None)


def _portable(level: Level) -> tuple[str, ...]:
    """LIBRARY_FLAGS for all CPUs of a level."""
    return (*(f for f in LIBRARY_FLAGS if not f.startswith("-march=")), *level.flags)
