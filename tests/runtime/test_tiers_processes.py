"""Two tiers where processes end early, fork, are interrupted or killed, or have no compiler."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from graphc.base.errors import CompileError
from graphc.runtime.compilers import cache
from tests.runtime.compiling import calling
from tests.runtime.test_compiler import gone, hanging, needs_proc
from tests.support.tiers import StandIns, program, stand_ins, steps, stocked
from tests.tools import ROOT

__all__ = ["stand_ins", "stocked"]

STEPS = 3
CHILD = """
import sys
from pathlib import Path
import pytest
from tests.support.tiers import StandIns, program, steps
with pytest.MonkeyPatch.context() as patch:
    stand_ins = StandIns(Path({sources!r}), patch)
    begun, arguments = program("mlp")
    results = steps(begun, arguments, {steps})
    print(stand_ins.played > 0, begun.ready, flush=True)
    {then}
    print("end", flush=True)
"""


def child(stocked: tuple[Path, Path], then: str = "pass") -> subprocess.Popen[str]:
    """A process that has trained for some steps when it has printed a line, and then does more."""
    text = CHILD.format(sources=str(stocked[1]), steps=STEPS, then=then)
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    environment.pop("GRAPHC_TIER", None)
    return subprocess.Popen(
        [sys.executable, "-c", text], cwd=ROOT, env=environment, text=True, **pipes
    )


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        _, errors = process.communicate()
        raise AssertionError(errors)
    return line


def started(pids: Path, process: subprocess.Popen[str]) -> None:
    """Wait until compilers are running."""
    end = time.monotonic() + 60
    while not (pids.exists() and pids.read_text().count("\n") >= 2):
        assert time.monotonic() < end and process.poll() is None
        time.sleep(0.02)


def folder(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "cpu"


def hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let compilers hang, of the version that has built the library; returns the file of their
    numbers."""
    version = subprocess.run(["g++", "--version"], capture_output=True, text=True, check=True)
    pids = hanging(tmp_path, monkeypatch)
    script = Path(os.environ["CXX"])
    line = version.stdout.splitlines()[0]
    script.write_text(script.read_text().replace("echo hanging 1.0", f"echo '{line}'"))
    return pids


@needs_proc
def test_a_process_that_ends_early_leaves_no_compilers(
    stand_ins: StandIns, stocked: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pids = hangs(tmp_path, monkeypatch)
    ends = """
    pids = Path({pids!r})
    while not (pids.exists() and pids.read_text().count(chr(10)) > 1): pass
"""
    process = child(stocked, then=ends.format(pids=str(pids)).strip())
    assert first_line(process) == "True False\n"
    output, errors = process.communicate(timeout=60)
    assert (output, errors, process.returncode) == ("end\n", "", 0)
    assert gone(pids)
    assert [path for path in folder(tmp_path).iterdir() if path.is_dir()] == []


@needs_proc
def test_an_interrupt_of_waiting_leaves_the_program_as_it_is(
    stand_ins: StandIns, stocked: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pids = hangs(tmp_path, monkeypatch)
    waits = """
    import signal
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        begun.wait()
    except KeyboardInterrupt:
        print(begun.ready, len(steps(begun, arguments, 2)) > 2, flush=True)
"""
    process = child(stocked, then=waits.strip())
    assert first_line(process) == "True False\n"
    started(pids, process)
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=60)
    assert (output, errors, process.returncode) == ("False True\nend\n", "", 0)
    assert gone(pids)


def killed_while_building(
    stocked: tuple[Path, Path], tmp_path: Path, stand_ins: StandIns, times: int
) -> None:
    expected = steps(*program("mlp", wait=True), STEPS)
    stand_ins.forget()
    chance = random.Random(times)
    for _ in range(times):
        process = child(stocked, then="begun.wait()")
        first = first_line(process)
        assert first.split()[0] in ("True", "False")
        time.sleep(chance.random() * 2)
        process.kill()
        process.communicate()
        for path in folder(tmp_path).glob("*.so"):
            body, keys = cache.unsealed(path.read_bytes())
            assert body and path.stem[-32:] in keys
        # Where an earlier one has finished them all, the next begins anew.
        if chance.random() < 0.2 or first.startswith("False"):
            stand_ins.forget()
    begun, arguments = program("mlp")
    assert steps(begun, arguments, STEPS) == expected
    begun.wait()
    assert steps(*program("mlp", wait=True), STEPS) == expected


def test_a_process_killed_while_building_leaves_a_whole_cache(
    stand_ins: StandIns, stocked: tuple[Path, Path], tmp_path: Path
) -> None:
    killed_while_building(stocked, tmp_path, stand_ins, 10)


@pytest.mark.slow
def test_many_processes_killed_while_building_leave_a_whole_cache(
    stand_ins: StandIns, stocked: tuple[Path, Path], tmp_path: Path
) -> None:
    killed_while_building(stocked, tmp_path, stand_ins, 100)


def test_the_child_of_a_fork_compiles_by_itself(
    stand_ins: StandIns, stocked: tuple[Path, Path]
) -> None:
    forks = """
    import os
    child = os.fork()
    if not child:
        begun.wait()
        steps(begun, arguments, 1)
        os._exit(0 if begun.ready else 1)
    begun.wait()
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), begun.ready, flush=True)
"""
    process = child(stocked, then=forks.strip())
    output, errors = process.communicate(timeout=120)
    assert (output, errors) == ("True False\n0 True\nend\n", "")


@needs_proc
def test_compilers_in_the_background_give_way(
    stand_ins: StandIns, stocked: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pids = hangs(tmp_path, monkeypatch)
    process = child(stocked, then="import time; time.sleep(300)")
    try:
        first_line(process)
        started(pids, process)
        numbers = map(int, pids.read_text().split())
        assert {os.getpriority(os.PRIO_PROCESS, number) for number in numbers} == {19}
        assert os.getpriority(os.PRIO_PROCESS, process.pid) == 0
    finally:
        process.kill()
        process.communicate()


def test_prebuilt_kernels_need_no_compiler(
    stand_ins: StandIns,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    expected = steps(*program("mlp", wait=True), 2)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("GRAPHC_LOG", "info")
    begun, arguments = program("mlp")
    assert begun.ready and steps(begun, arguments, 2) == expected
    program("mlp")
    said = [line for line in capsys.readouterr().err.splitlines() if "no C++ compiler" in line]
    assert [line.partition(". Install")[0] for line in said] == [
        "graphc: kernels run prebuilt; compiled they take half the time: no C++ compiler: g++ and "
        "clang++ are not on the PATH"
    ]
    stand_ins.lacking({"contract"})
    with pytest.raises(CompileError, match=r"^no C\+\+ compiler: ") as error:
        program("mlp")
    (note,) = error.value.__notes__
    assert note.startswith("no prebuilt function computes ") and "l1_wgrad" in note
    with pytest.raises(CompileError, match=r"^no C\+\+ compiler: "):
        program("mlp", wait=True)


def test_a_plan_that_is_found_begins_prebuilt_again(
    stand_ins: StandIns, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRAPHC_PLAN_CACHE", "1")
    calling(tmp_path, monkeypatch, '[ "$1" = --version ] && exec g++ "$@"\nexit 1')
    first, arguments = program("mlp")
    expected = steps(first, arguments, 2)
    (stored,) = (tmp_path / "cache" / "plans").glob("*.plan")
    assert len(json.loads(cache.unsealed(stored.read_bytes())[0])["prebuilt"]) == len(first.kernels)
    stand_ins.patch.setattr("graphc.runtime.cpu.tiers.prebuilt", lambda *_: None)
    again, arguments = program("mlp")
    assert steps(again, arguments, 2) == expected
    assert [n for n in again.plan.notes if n.startswith("tiers")] == [
        n for n in first.plan.notes if n.startswith("tiers")
    ]
