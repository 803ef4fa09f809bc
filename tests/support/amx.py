"""Helpers of test_amx.py and of tests beside it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from graphc.runtime.compilers.shared_objects import FLAGS, KERNEL_HEADERS, find_compiler


def disassembled(file: Path, *flags: str) -> str:
    """The machine code of `file` for a CPU with AMX."""
    compiler = [*find_compiler().command, *FLAGS, "-march=sapphirerapids", f"-I{KERNEL_HEADERS}"]
    command = [*compiler, "-dM", "-E", "-x", "c++", "/dev/null"]
    known = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    if shutil.which("objdump") is None or "__AMX_BF16__" not in known:
        pytest.skip("no disassembler, or a compiler without AMX")
    made = file.with_suffix(".so")
    subprocess.run([*compiler, *flags, str(file), "-o", str(made)], check=True)
    command = ["objdump", "-d", "--no-show-raw-insn", str(made)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout
