"""Compilers that hang, and compilers that nobody waits for any more."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from graphc.base.errors import CompileError
from graphc.runtime.compilers import compiler
from graphc.runtime.compilers.player_library import begin_player
from graphc.runtime.compilers.translation_units import build_kernels
from tests.runtime.compiling import calling, objects, own_cache
from tests.support.translation_units import ANSWER, many
from tests.tools import ROOT

__all__ = ["own_cache"]

HANGS = """
[ "$1" = --version ] && echo hanging 1.0 && exit
sh -c "echo \\$\\$ >> {pids}; exec sleep 300" &
echo $$ >> {pids}
wait
"""
"""A compiler that starts another process, as g++ does, and waits for it."""


def hanging(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    pids = tmp_path / "pids"
    calling(tmp_path, monkeypatch, HANGS.format(pids=pids))
    return pids


def gone(pids: Path, seconds: float = 20.0) -> bool:
    """Whether all processes that wrote their numbers end in time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if not any(_runs(int(pid)) for pid in pids.read_text().split()):
            return True
        time.sleep(0.02)
    return False


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


needs_proc = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")


@needs_proc
def test_a_compiler_that_hangs_is_ended_with_all_that_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pids = hanging(tmp_path, monkeypatch)
    monkeypatch.setenv("GRAPHC_COMPILE_SECONDS", "1.5")
    begin = time.monotonic()
    with pytest.raises(CompileError) as caught:
        build_kernels({"answer": ANSWER})
    first, second = str(caught.value).split("\n")
    assert first == (
        "the compiler did not end within 1.5 s and was stopped; GRAPHC_COMPILE_SECONDS sets how "
        "long it may take"
    )
    assert second.startswith(f"command: {os.environ['CXX']} ")
    assert time.monotonic() - begin < 60 and gone(pids)
    assert list((tmp_path / "cache" / "cpu").iterdir()) == []


KILLED = """
from graphc.runtime.compilers.translation_units import build_kernels
from tests.support.translation_units import many
build_kernels(many(30))
"""


@needs_proc
def test_compilers_of_a_process_that_is_killed_end_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pids = hanging(tmp_path, monkeypatch)
    process = subprocess.Popen([sys.executable, "-c", KILLED], cwd=ROOT)
    try:
        end = time.monotonic() + 60
        while time.monotonic() < end and not (pids.exists() and pids.read_text().count("\n") >= 2):
            time.sleep(0.02)
        assert not gone(pids, 0.1)
    finally:
        process.kill()
        process.wait()
    assert gone(pids, 2.0)


def test_a_compiler_has_a_limit_of_cpu_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPHC_COMPILE_SECONDS", "20.5")
    assert compiler.run(["sh", "-c", "ulimit -t"]).stdout == "21\n"


INTERRUPTED = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from graphc.runtime.compilers.player_library import begin_player, player_library
from graphc.runtime.compilers.translation_units import build_kernels
from tests.support.translation_units import many
try:
    {call}
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


@needs_proc
@pytest.mark.parametrize(
    "call", ["build_kernels(many(30))", "player_library()", "begin_player(), input()"]
)
def test_an_interrupt_ends_running_compilers_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    pids = hanging(tmp_path, monkeypatch)
    command = [sys.executable, "-c", INTERRUPTED.format(call=call)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    running = subprocess.Popen(command, cwd=ROOT, text=True, **pipes)
    try:
        end = time.monotonic() + 60
        while not (pids.exists() and pids.read_text().count("\n") >= 2):
            assert time.monotonic() < end and running.poll() is None
            time.sleep(0.02)
        running.send_signal(signal.SIGINT)
        output, _ = running.communicate(timeout=30)
    finally:
        running.kill()
    assert output == "interrupted\n" and running.returncode == 0
    assert gone(pids)
    assert [p for p in (tmp_path / "cache" / "cpu").iterdir() if p.is_dir()] == []


def test_the_first_failure_ends_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def work(number: int) -> None:
        if number == 0:
            raise CompileError("the first")
        compiler.run(["sleep", "300"])

    monkeypatch.setattr(compiler, "usable_cores", lambda: 3)
    begin = time.monotonic()
    with pytest.raises(CompileError, match=r"^the first$"):
        compiler.side_by_side(work, range(6))
    assert time.monotonic() - begin < 60


def test_a_compiler_that_is_ended_from_outside_was_given_up() -> None:
    said: list[str] = []

    def work() -> None:
        with pytest.raises(CompileError) as error:
            compiler.run(["sleep", "300"])
        said.append(str(error.value))

    thread = compiler.BackgroundThread(work, "given up")
    thread.start()
    thread.end()
    assert said == ["given up\ncommand: sleep 300"]


def test_what_ends_by_itself_gives_its_output_and_status() -> None:
    done = compiler.run(["sh", "-c", "echo out; echo err >&2; exit 3"])
    assert (done.stdout, done.stderr, done.returncode) == ("out\n", "err\n", 3)
    assert begin_player().daemon
    build_kernels(many(2))
    assert objects(Path(os.environ["GRAPHC_CACHE_DIR"]).parent)


def test_temporary_files_lie_in_the_scratch_folder(tmp_path: Path) -> None:
    assert compiler.run(["sh", "-c", "echo $TMPDIR"], tmp_path).stdout == f"{tmp_path}\n"


def test_compilers_of_kernels_have_a_scratch_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "log"
    own = tmp_path / "compiler"
    real = compiler.find_compiler().command[0]
    own.write_text(f'#!/bin/sh\necho "$TMPDIR" >> {log}\nexec {real} "$@"\n')
    own.chmod(0o700)
    monkeypatch.setenv("CXX", str(own))
    monkeypatch.setenv("GRAPHC_CACHE_DIR", str(tmp_path / "cache"))
    build_kernels(many(2))
    folders = log.read_text().split()
    assert folders and all(Path(f).parent == tmp_path / "cache" / "cpu" for f in folders)
    assert not any(Path(f).exists() for f in folders)
