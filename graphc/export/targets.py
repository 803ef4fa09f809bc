"""The machines that programs are exported for."""

from __future__ import annotations

from dataclasses import dataclass

from graphc.base.errors import GraphError
from graphc.base.target import Caches, Target

_COMMON = Caches()
_SMALL = Caches(first=16 * 1024, second=16 * 1024)


@dataclass(frozen=True)
class Machine:
    """A machine that a C++ compiler knows."""

    name: str
    """The name that `target=` takes."""
    title: str
    """What it is, in words."""
    lanes: int
    """The float32 in a vector of its kernels."""
    flags: tuple[str, ...]
    """Flags of g++ and clang++ that choose the instructions."""
    compiler: str
    """The command of g++, or of its cross compiler."""
    zig: str
    """The target of `zig c++`."""
    zig_flags: tuple[str, ...]
    """Flags of `zig c++` that choose the instructions."""
    pointer_bytes: int = 8
    """The size of an address."""
    flushes: bool = True
    """Whether it has a mode in which denormals count as zeros."""
    hosted: bool = True
    """Whether there is an operating system, with files and threads."""
    caches: Caches = _COMMON
    """Of one core."""

    @property
    def target(self) -> Target:
        """What passes and lowering know of it."""
        return Target("cpu", self.lanes, f"export {self.name}", self.caches)


MACHINES = {
    machine.name: machine
    for machine in (
        Machine(
            "x86-64",
            "any 64-bit x86 CPU, with SSE2",
            4,
            ("-march=x86-64",),
            "g++",
            "x86_64-linux-musl",
            ("-mcpu=x86_64",),
        ),
        Machine(
            "x86-64-avx2",
            "x86 CPUs with AVX2 and FMA, from 2013 on",
            8,
            ("-march=x86-64-v3",),
            "g++",
            "x86_64-linux-musl",
            ("-mcpu=x86_64_v3",),
        ),
        Machine(
            "x86-64-avx512",
            "x86 CPUs with AVX-512",
            16,
            ("-march=x86-64-v4",),
            "g++",
            "x86_64-linux-musl",
            ("-mcpu=x86_64_v4",),
        ),
        Machine(
            "aarch64",
            "64-bit Arm CPUs, with NEON",
            4,
            (),
            "aarch64-linux-gnu-g++",
            "aarch64-linux-musl",
            (),
        ),
        Machine(
            "wasm32",
            "WebAssembly with 128-bit SIMD, in browsers and Node.js",
            4,
            ("--target=wasm32", "-msimd128", "-mbulk-memory"),
            "clang++",
            "wasm32-wasi",
            ("-mcpu=generic+simd128+bulk_memory",),
            pointer_bytes=4,
            flushes=False,
            hosted=False,
        ),
        Machine(
            "riscv64",
            "64-bit RISC-V CPUs (RV64GC), without vector instructions",
            4,
            (),
            "riscv64-linux-gnu-g++",
            "riscv64-linux-musl",
            (),
            flushes=False,
        ),
        Machine(
            "cortex-m",
            "Arm Cortex-M7 microcontrollers with an FPU, without an operating system",
            4,
            ("-mthumb", "-mcpu=cortex-m7", "-mfpu=fpv5-sp-d16", "-mfloat-abi=hard"),
            "arm-none-eabi-g++",
            "thumb-freestanding-eabihf",
            ("-mcpu=cortex_m7+fp_armv8d16sp",),
            pointer_bytes=4,
            hosted=False,
            caches=_SMALL,
        ),
    )
}
"""The machines by name."""


def find_machine(name: str) -> Machine:
    """Return the machine of that name. Raises GraphError if there is none."""
    if name not in MACHINES:
        raise GraphError(
            f"export: target expected one of {', '.join(MACHINES)}, cuda, or a GPU such as sm_90a, "
            f"got {name!r}"
        )
    return MACHINES[name]
