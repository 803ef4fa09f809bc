"""Train exported models for ten steps on every target, and print what their states hash to.

    python -m benchmarks.exported                      # all models and targets
    python -m benchmarks.exported gpt wasm32 aarch64

Targets whose compiler or emulator is missing are left out, with the reason. Compilers but g++ are
those of the package ziglang; emulators are qemu-user's, qemu-system-arm and Node.js.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import zlib
from pathlib import Path
from typing import Any

from benchmarks.exported_models import MODELS, STEPS, training_step
from graphc.export.targets import MACHINES

SECONDS = 600
"""The longest that one command may take."""
CROSS = {
    "aarch64": ("qemu-aarch64",),
    "riscv64": ("qemu-riscv64",),
    "wasm32": ("node", "selftest.mjs"),
    "cortex-m": ("qemu-system-arm", "-M", "mps2-an500", "-nographic", "-semihosting", "-kernel"),
}
"""What runs the self-test of a target; the test's path follows, but for Node.js."""
X86 = {"x86-64": "sse2", "x86-64-avx2": "avx2", "x86-64-avx512": "avx512f"}
"""The feature that a CPU must have, in the words of Linux."""


class MissingError(Exception):
    """A tool, or this CPU, cannot build or run a target."""


@functools.cache
def zig() -> str:
    """The words that start zig. Raises MissingError."""
    if importlib.util.find_spec("ziglang"):
        return f"{sys.executable} -m ziglang"
    found = shutil.which("python-zig") or shutil.which("zig")
    if not found:
        raise MissingError("ziglang is not installed: pip install 'graphc[export]'")
    return found


def check(target: str) -> None:
    """Raise MissingError unless the target's programs can be built and run here."""
    gxx = {"aarch64": "aarch64-linux-gnu-g++"}.get(target, "g++" if target in X86 else "")
    for command in filter(None, (gxx, CROSS.get(target, ("",))[0])):
        if not shutil.which(command):
            raise MissingError(f"{command} is not on the PATH")
    if target in X86:
        features = Path("/proc/cpuinfo")
        if not features.exists() or X86[target] not in features.read_text():
            raise MissingError(f"this CPU has no {X86[target]}")
    elif target != "aarch64":
        zig()


def run(*words: str, folder: Path, environment: dict[str, str] | None = None) -> str:
    """What a command in a folder prints; AssertionError with that if it fails."""
    done = subprocess.run(
        words,
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,  # where QEMU prints what comes by semihosting
        text=True,
        timeout=SECONDS,
    )
    assert done.returncode == 0, f"{words}:\n{done.stdout}"
    return done.stdout


def build(folder: Path, target: str) -> None:
    """Run build.sh of an export."""
    environment = dict(os.environ)
    if target == "aarch64":
        environment["LDFLAGS"] = "-static"
    elif target not in X86:
        environment |= {"CXX": f"{zig()} c++", "CC": f"{zig()} cc"}
    run("sh", "build.sh", folder=folder, environment=environment)


def selftest(folder: Path, name: str, target: str) -> list[str]:
    """Build an export and return the lines of its self-test."""
    build(folder, target)
    return tested(folder, name, target)


def tested(folder: Path, name: str, target: str, threads: int = 1) -> list[str]:
    """The lines of the self-test of an export that has been built, on so many threads."""
    words = list(CROSS.get(target, ()))
    if target != "wasm32":
        words.append(f"build/{name}_selftest{'.elf' * (target == 'cortex-m')}")
        words[0] = words[0] if len(words) > 1 else str(folder / words[0])
    if threads > 1:
        words += [f"{name}.weights", str(threads)]
    return run(*words, folder=folder).splitlines()


def states(lines: list[str]) -> list[str]:
    """The checksums of the state after each call, as a self-test prints them."""
    return [line.split()[-1] for line in lines if "state " in line and "memory" not in line]


def in_python(name: str) -> str:
    """The checksum of the state after ten calls in Python."""
    step, batches = training_step(name)
    return state_after(step, batches)


def state_after(step: Any, batches: Any) -> str:
    """The checksum of a CPU program's state after a call for each of the batches."""
    from graphc.export.lowering import lower_for
    from graphc.export.memory import HEADER, lay_out

    for batch in batches:
        step(*batch)
    entries = lower_for(MACHINES["x86-64"], {"step": step})
    return f"{zlib.crc32(lay_out(entries).state.image()[HEADER:]):08x}"


def measured(step: Any, batches: Any, name: str, target: str) -> str:
    """A row of the table."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made) / target
        step.export(folder, target, name=name, calls=STEPS, inputs=batches)
        lines = selftest(folder, name, target)
        ends = {"wasm32": f"{name}.wasm", "cortex-m": f"{name}_selftest.elf"}
        size = (folder / "build" / ends.get(target, f"{name}_selftest")).stat().st_size
        # What it holds of the self-test's inputs, and of the weights, is no code.
        size -= 0 if target == "wasm32" else sum(a.nbytes for batch in batches for a in batch)
        size -= (folder / f"{name}.weights").stat().st_size if target == "cortex-m" else 0
        header = (folder / f"{name}.h").read_text()
        arena, state = (
            header.partition(f"{name.upper()}_{what}_BYTES ")[2].split()[0]
            for what in ("ARENA", "STATE")
        )
        stack = [int(line.split()[-1], 16) for line in lines if line.startswith("stack ")]
    cells = [target, states(lines)[-1], f"{size:,}", f"{int(arena):,}", f"{int(state):,}"]
    return " | ".join(["", name, *cells, f"{stack[0]:,}" if stack else "", ""]).strip()


def main(words: list[str]) -> None:
    """Print the table of the models and targets among the words."""
    names = [word for word in words if word in MODELS] or [*MODELS]
    targets = [word for word in words if word in MACHINES] or [*MACHINES]
    print("| model | target | state | program | arena | state bytes | stack |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for name in names:
        print(f"| {name} | Python | {in_python(name)} | | | | |", flush=True)
        step, batches = training_step(name)
        for target in targets:
            try:
                check(target)
                print(measured(step, batches, name, target), flush=True)
            except MissingError as reason:
                print(f"| {name} | {target} | left out: {reason} | | | | |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
