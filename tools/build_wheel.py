"""Build a wheel with compiled objects inside: `python -m tools.build_wheel dist`.

Whoever installs it runs programs at once, without a compiler: it holds the player, and the library
of prebuilt kernels, for SSE2, AVX2 and AVX-512 or for NEON, of which the CPU's is chosen when it is
loaded. It takes a minute on two cores. The wheel's tag names the newest version of the C library
that the objects need, so build it on the oldest system that it is for.

`--machine aarch64` builds the wheel of ARM64 on another machine, with the compiler of the ziglang
package, with aarch64-linux-gnu-g++, or with CXX.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from importlib.util import find_spec
from pathlib import Path

from graphc.base.errors import CompileError
from graphc.runtime.compilers import shipped
from graphc.runtime.compilers.compiler import failure, find_compiler, run, side_by_side
from graphc.runtime.compilers.shipped import LEVELS, Shipped
from tools.wheel_hook import FOLDER, TAG

ROOT = Path(__file__).resolve().parents[1]
BASELINE = (2, 17)
"""The oldest C library that wheels have a tag for."""


def compiler_for(machine: str) -> tuple[str, ...]:
    """The command of a C++ compiler for a kind of machine. Raises CompileError if there is none."""
    if machine != platform.machine() and "CXX" not in os.environ:
        if find_spec("ziglang"):
            libc = ".".join(map(str, BASELINE))
            return sys.executable, "-m", "ziglang", "c++", "-target", f"{machine}-linux-gnu.{libc}"
        if command := shutil.which(f"{machine}-linux-gnu-g++"):
            return (command,)
        raise CompileError(
            f"a wheel for {machine}: expected the ziglang package, {machine}-linux-gnu-g++ or CXX, "
            "got none of them"
        )
    return find_compiler().command


def build_objects(compiler: Sequence[str], objects: Iterable[Shipped], folder: Path) -> list[Path]:
    """Compile the objects into a folder. Raises CompileError."""
    jobs, parts = list[tuple[str, Sequence[str]]](), list[tuple[Shipped, list[str]]]()
    for wanted in objects:
        names = [str(folder / f"{wanted.name}-{source.stem}.o") for source in wanted.sources]
        parts.append((wanted, names))
        compile_only = [flag for flag in wanted.flags if flag != "-shared"]
        for source, name in zip(wanted.sources, names, strict=True):
            jobs.append((wanted.name, [*compile_only, "-c", str(source), "-o", name]))
    links = [(w.name, [*w.flags, "-s", *p, "-o", str(folder / w.path.name)]) for w, p in parts]

    def call(job: tuple[str, Sequence[str]]) -> None:
        name, arguments = job
        print(f"{name}: {Path(arguments[-1]).name}", file=sys.stderr)
        command = [*compiler, *arguments]
        done = run(command)
        if done.returncode:
            raise failure(f"{name} of a wheel", "", command, done)

    side_by_side(call, jobs)
    side_by_side(call, links)
    for _, names in parts:
        for name in names:
            Path(name).unlink()
    return [folder / wanted.path.name for wanted, _ in parts]


def tag_of(objects: Iterable[Path], machine: str) -> str:
    """The platform's tag: of the newest version of the C library that an object needs (PEP 600)."""
    needed = {BASELINE}
    for path in objects:
        versions = re.findall(rb"GLIBC_(\d+)\.(\d+)", path.read_bytes())
        needed.update((int(major), int(minor)) for major, minor in versions)
    major, minor = max(needed)
    return f"manylinux_{major}_{minor}_{machine}"


def build_wheel(
    target: Path, isas: Iterable[str] | None = None, machine: str = platform.machine()
) -> Path:
    """Build the wheel into a folder, with libraries for these instruction sets of a kind of
    machine, by default for all of them; returns its path. Raises CompileError."""
    target.mkdir(parents=True, exist_ok=True)
    libraries = [shipped.prebuilt(isa, machine) for isa in isas or LEVELS[machine]]
    with tempfile.TemporaryDirectory(prefix="graphc-wheel-") as name:
        objects = [shipped.player(machine), *libraries]
        built = build_objects(compiler_for(machine), objects, Path(name))
        tag = tag_of(built, machine)
        command = [
            sys.executable,
            "-m",
            "hatchling",
            "build",
            "-t",
            "wheel",
            "-d",
            str(target.resolve()),
        ]
        subprocess.run(command, cwd=ROOT, check=True, env={**os.environ, FOLDER: name, TAG: tag})
    (wheel,) = target.glob(f"graphc-*-py3-none-{tag}.whl")
    return wheel


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="build_wheel", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--machine", choices=[*LEVELS], default=platform.machine())
    parser.add_argument("--isa", nargs="+", help="such as sse2 avx2; by default all")
    options = parser.parse_args(arguments)
    if sys.platform != "linux" or options.machine not in LEVELS:
        parser.error(
            f"expected Linux on {' or '.join(LEVELS)}, got {sys.platform} on {options.machine}; "
            "`pip wheel .` builds a wheel without objects"
        )
    if unknown := {*(options.isa or ())} - {*LEVELS[options.machine]}:
        known = ", ".join(LEVELS[options.machine])
        parser.error(f"--isa: expected some of {known}, got {', '.join(sorted(unknown))}")
    wheel = build_wheel(options.folder, options.isa, options.machine)
    print(f"{wheel}: {wheel.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
