"""The soak and fault checks in small, and that they find what they look for."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tools.soak import __main__ as soak
from tools.soak.checks import CHECKS, Check
from tools.soak.interrupts import interrupted
from tools.soak.nets import digest, trainer
from tools.soak.vitals import SoakError, Vitals, check_flat

LINUX = os.path.isdir("/proc/self/fd")


@pytest.mark.skipif(not LINUX, reason="/proc shows what a process holds")
@pytest.mark.parametrize("name", [check.name for check in CHECKS])
def test_checks_find_nothing(name: str) -> None:
    check = next(check for check in CHECKS if check.name == name)
    result = soak.run(check, check.quick, 120.0, os.environ)
    assert "failed" not in result, result["failed"]
    assert "skipped" in result["found"] or result["found"]


VITALS = Vitals(10 << 20, 5, 3, 100, 64)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"resident": 12 << 20}, "resident was 10485760, then [12582912, 10485760]"),
        ({"files": 6}, "files was 5, then [6, 5]"),
        ({"threads": 5}, "threads was 3, then [5, 3]"),
        ({"mappings": 101}, "mappings was 100, then [101, 100]"),
        ({"arena": 65}, "arena was 64, then [65, 64]"),
    ],
)
def test_growth_is_found(change: dict[str, int], message: str) -> None:
    more = Vitals(**{**VITALS.__dict__, **change})
    with pytest.raises(SoakError) as caught:
        check_flat([VITALS, more, VITALS])
    assert str(caught.value) == message
    assert check_flat([VITALS, VITALS])["files grown"] == 0


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("raise ValueError('lost')", "ValueError: lost"),
        ("os.abort()", "status -6"),
        ("time.sleep(60)", "hung for 2 s"),
    ],
)
def test_a_check_that_fails_crashes_or_hangs_is_told(
    body: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = tmp_path / "bad_check.py"
    module.write_text(f"import os, time\n\n\ndef bad(amount, folder):\n    {body}\n")
    child = tmp_path / "child.py"
    child.write_text("import sys, bad_check\nfrom pathlib import Path\nbad_check.bad(1, Path())\n")
    real = soak.subprocess.Popen

    def started(command: list[str], **options: Any) -> Any:
        return real([command[0], str(child)], **options)

    monkeypatch.setattr(soak.subprocess, "Popen", started)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    result = soak.run(Check("bad_check.bad", "", 1, 1), 1, 2.0)
    assert expected in result["failed"]


def test_results_are_written_and_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found: dict[str, Any] = {
        "check": "loaders",
        "amount": 10,
        "seconds": 1.0,
        "found": {"forks": 10},
    }
    lost = {"check": "workers", "amount": 2, "seconds": 2.0, "failed": "status 1: SoakError\nmore"}
    results = iter([found, lost])
    monkeypatch.setattr(soak, "run", lambda *_: next(results))
    out = tmp_path / "new" / "soak.json"
    assert soak.main(["--only", "loaders", "workers", "--out", str(out)]) == 1
    assert json.loads(out.read_text())["results"] == [found, lost]
    said = capsys.readouterr().out
    assert "| forks in a loop over `Batches` | forks 10 | 1.0 |" in said
    assert "FAILED: status 1: SoakError |" in said
    assert soak.main(["--only", "loaders", "--seconds", "0", "--out", str(out)]) == 1


def test_the_state_of_half_a_step_has_another_digest() -> None:
    program = trainer()
    whole = program.state_dict()
    torn = {name: array + (name == sorted(whole)[0]) for name, array in whole.items()}
    assert digest(whole) == digest(dict(whole)) != digest(torn)


def test_ctrl_c_comes_while_a_function_runs_and_never_after() -> None:
    assert interrupted(0.01, lambda: [sum(range(1000)) for _ in range(10**7)])
    assert not interrupted(10.0, lambda: None)
