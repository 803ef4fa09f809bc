"""What several tests need: tools that may be missing, and how tests run a program."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parent.parent


def need_module(name: str) -> ModuleType:
    """The module, such as torch; without it the test skips, or fails where CI=true."""
    try:
        return import_module(name)
    except ImportError as error:
        return _missing(f"{name} is not installed: {error}")


def need_package(name: str) -> None:
    """Like `need_module` for one that cannot be imported here, such as PyCUDA without a driver."""
    try:
        found = find_spec(name) is not None
    except ModuleNotFoundError:
        found = False
    if not found:
        _missing(f"{name} is not installed")


def need_command(*names: str) -> str:
    """The path of the first of these commands that is there; else skips, or fails where CI=true."""
    for name in names:
        path = shutil.which(name)
        if path:
            return path
    return _missing(f"none of these commands is on the PATH: {', '.join(names)}")


def may_lack_command(*names: str) -> str:
    """Like `need_command`, for tools that CI does without (nvcc): skips everywhere."""
    for name in names:
        path = shutil.which(name)
        if path:
            return path
    pytest.skip(f"none of these commands is on the PATH: {', '.join(names)}")


def run_python(
    *arguments: str, environment: Mapping[str, str] | None = None, folder: Path = ROOT
) -> str:
    """The output of this Python on `arguments`, run in `folder`, warnings being errors; the test
    fails with all it printed if it fails."""
    result = subprocess.run(
        [sys.executable, "-W", "error", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), **(environment or {})},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, f"{arguments}:\n{result.stdout}\n{result.stderr}"
    return result.stdout


def _missing(reason: str) -> ModuleType:
    if os.environ.get("CI") == "true":
        pytest.fail(f"{reason}; CI=true asks for it")
    pytest.skip(reason)
