"""C++ and CUDA are written as .clang-format says, which is what `make format` makes of them."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.tools import ROOT, need_module

FOLDERS = ("benchmarks", "kernels", "runtime", "tests", "tools")
SUFFIXES = (".h", ".cuh", ".cpp", ".cu")


def complaints(folder: Path, files: list[Path]) -> str:
    """What the formatter that pyproject.toml asks for says of the files, by .clang-format."""
    tool = need_module("clang_format").get_executable("clang-format")
    style = f"--style=file:{ROOT / '.clang-format'}"
    command = [tool, style, "--dry-run", "--Werror", *map(str, files)]
    result = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert (result.returncode == 0) == (result.stderr == "")
    return result.stderr


def test_every_header_and_source_is_formatted() -> None:
    found = [p for folder in FOLDERS for p in (ROOT / folder).rglob("*") if p.suffix in SUFFIXES]
    assert len(found) > 40
    assert complaints(ROOT, found) == ""


def test_a_file_that_is_not_formatted_is_named(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.cuh"
    wrong.write_text("template <class T>\nstruct Pair {\n    T first, second;\n};\n")
    assert "wrong.cuh:2" in complaints(tmp_path, [wrong])


def test_make_lint_and_make_format_name_the_same_files() -> None:
    lines = (ROOT / "Makefile").read_text().splitlines()
    (files,) = [line for line in lines if line.startswith("CPP_FILES =")]
    assert all(f"{folder} " in files for folder in FOLDERS)
    assert all(f"'*{suffix}'" in files for suffix in SUFFIXES)
    assert sum("$(CPP_FILES)" in line for line in lines) == 2
