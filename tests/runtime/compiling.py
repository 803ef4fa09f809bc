"""An empty cache and a compiler that counts its calls, for tests of what is built."""

from __future__ import annotations

import hashlib
import shutil
import stat
from pathlib import Path

import pytest

from tests.tools import need_command


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, clean_environment: pytest.MonkeyPatch) -> None:
    """An empty cache folder, and a compiler that writes a line per call into `calls`."""
    clean_environment.setenv("GRAPHC_CACHE_DIR", str(tmp_path / "cache"))
    clean_environment.setenv("GRAPHC_TIER", "1")
    need_command("g++", "clang++")
    calling(tmp_path, clean_environment, f'exec {shutil.which("g++") or "clang++"} "$@"')


def calling(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str) -> Path:
    """Let CXX be a script that notes its call and then does `command`."""
    script = tmp_path / f"compiler{hashlib.sha256(command.encode()).hexdigest()[:8]}"
    note = f'[ "$1" = --version ] || echo "$@" >> {tmp_path}/calls'
    script.write_text(f"#!/bin/sh\n{note}\n{command}\n")
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("CXX", str(script))
    return script


def calls(tmp_path: Path) -> int:
    path = tmp_path / "calls"
    return len(path.read_text().splitlines()) if path.exists() else 0


def objects(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "cache" / "cpu").glob("*.so"))
