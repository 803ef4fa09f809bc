"""Build exports and run them: here, under emulators and in Node.js."""

from __future__ import annotations

import functools
import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.tools import missing, need_command

SECONDS = 240
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


@functools.cache
def need_zig() -> str:
    """The words that start zig; else skips, or fails where CI=true."""
    if importlib.util.find_spec("ziglang"):
        return f"{sys.executable} -m ziglang"
    found = shutil.which("python-zig") or shutil.which("zig")
    return found or missing("ziglang is not installed: pip install 'graphc[export]'")


def need_target(target: str) -> None:
    """Skips the test unless the target's programs can be built and run here."""
    if target in X86:
        need_command("g++")
        flags = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
        if X86[target] not in flags:
            missing(f"this CPU has no {X86[target]}")
    else:
        need_command(CROSS[target][0])
        if target == "aarch64":
            need_command("aarch64-linux-gnu-g++")
        else:
            need_zig()


def build(folder: Path, target: str) -> None:
    """Run build.sh; the test fails with its output if it does."""
    environment = dict(os.environ)
    if target not in X86 and target != "aarch64":
        zig = need_zig()
        environment |= {"CXX": f"{zig} c++", "CC": f"{zig} cc"}
    elif target == "aarch64":
        environment["LDFLAGS"] = "-static"
    run("sh", "build.sh", folder=folder, environment=environment)


def selftest(folder: Path, name: str, target: str) -> list[str]:
    """Build an export and return the lines of its self-test; the test fails if that does."""
    need_target(target)
    build(folder, target)
    words = list(CROSS.get(target, ()))
    if target != "wasm32":
        words.append(f"build/{name}_selftest{'.elf' * (target == 'cortex-m')}")
        words[0] = words[0] if len(words) > 1 else str(folder / words[0])
    return run(*words, folder=folder).splitlines()


def states(lines: list[str]) -> list[str]:
    """The checksums of the state after each call, as a self-test prints them."""
    return [line.split()[-1] for line in lines if "state " in line and "memory" not in line]


def run(*words: str, folder: Path, environment: dict[str, str] | None = None) -> str:
    """What a command in a folder prints; the test fails with that if it fails."""
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
