"""Checks to run before a commit: `python -m tools.check`, within two minutes.

It checks formatting, lint and types of everything, then runs the tests of what differs from the
last commit (of the last commit, if nothing does): changed test files, those named after a changed
module, and those that import one. What does not fit the time is left to `make test`.
"""

from __future__ import annotations

import argparse
import ast
import re
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SECONDS = 120.0
CPP = ("*.h", "*.cuh", "*.cpp", "*.cu", "*.c")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="check", description=__doc__)
    parser.add_argument("--list", action="store_true", help="only print the tests")
    options = parser.parse_args(arguments)
    begin = time.monotonic()
    changed = changed_files()
    tests = [str(path.relative_to(ROOT)) for path in tests_of(changed)]
    if options.list:
        print("\n".join(tests))
        return 0
    tools = Path(sys.executable).parent
    texts = [str(f) for f in changed if any(f.match(p) for p in CPP)]
    commands: list[list[str | Path]] = [
        [tools / "ruff", "format", "--check", "."],
        [tools / "ruff", "check", "."],
        [tools / "mypy"],
    ]
    if texts:
        commands.append([tools / "clang-format", "--dry-run", "--Werror", *texts])
    failed = sum(subprocess.run(list(map(str, c)), cwd=ROOT).returncode != 0 for c in commands)
    if tests:
        command = [sys.executable, "-m", "pytest", "-q", "-n", "auto", "-m", "not slow", *tests]
        try:
            left = SECONDS - (time.monotonic() - begin)
            failed += subprocess.run(command, cwd=ROOT, timeout=left).returncode not in (0, 5)
        except subprocess.TimeoutExpired:
            print(f"{SECONDS:.0f} s are over: `make test` runs the rest of {len(tests)} files")
    print(f"{len(tests)} test files, {time.monotonic() - begin:.0f} s: {'FAILED' * bool(failed)}")
    return 1 if failed else 0


def changed_files() -> list[Path]:
    """Files that differ from the last commit, new ones included; else those of the last commit."""
    different = _git("diff", "--name-only", "HEAD") + _git(
        "ls-files", "--others", "--exclude-standard"
    )
    names = different or _git("diff", "--name-only", "HEAD~1", "HEAD")
    return [path for name in names if (path := ROOT / name).is_file()]


def tests_of(changed: Iterable[Path]) -> list[Path]:
    """The test files of changed files: changed tests first, then those named after a changed file,
    then those that import one or name a changed header in quotes."""
    files = [path.resolve() for path in changed]
    modules = {name for path in files for name in module_names(path)}
    stems = {f"test_{path.stem}" for path in files}
    headers = [path.stem for path in files if path.suffix in (".h", ".cuh")]
    quoted = re.compile(
        "|".join(rf'"{re.escape(stem)}(\.cuh|\.h)?"' for stem in headers) or r"(?!)"
    )
    ranked: list[tuple[int, Path]] = []
    for test in sorted((ROOT / "tests").rglob("test_*.py")):
        if test in files:
            ranked.append((0, test))
        elif test.stem in stems:
            ranked.append((1, test))
        elif modules & set(imported(test)) or quoted.search(test.read_text()):
            ranked.append((2, test))
    return [test for _, test in sorted(ranked)]


def module_names(path: Path) -> Iterator[str]:
    """The names that a Python file is imported by; kernels and runtime are also parts of the
    package."""
    if path.suffix != ".py":
        return
    parts = path.relative_to(ROOT).with_suffix("").parts
    parts = parts[:-1] if parts[-1] == "__init__" else parts
    if parts[:1] in (("kernels",), ("runtime",)):
        parts = ("graphc", *parts)
    if parts:
        yield ".".join(parts)


def imported(path: Path) -> Iterator[str]:
    """The modules and names that a file imports."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _git(*words: str) -> list[str]:
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True)
    return done.stdout.splitlines() if done.returncode == 0 else []


if __name__ == "__main__":
    sys.exit(main())
