"""The kit of `make gpu-check`, without a GPU: what fails, hangs or finds no time is in the file."""

from __future__ import annotations

import json
import time
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from benchmarks.run import VARIANTS
from benchmarks.workloads import WORKLOADS
from tests.tools import ROOT, need_command, need_module, run_python
from tools.gpu_check import __main__ as kit
from tools.gpu_check import benchmarks, comparison, goals, process, stages
from tools.gpu_check.process import Countdown, Done
from tools.gpu_check.report import CheckReport, default_path
from tools.gpu_check.stages import Kit, Stage

ABOUT = {"commit": "c0ffee", "date": "2026-11-22", "machine": {"gpus": ["NVIDIA H200, 580, 9.0"]}}
HANGS = "import time; print('so far', flush=True); time.sleep(600)"


@pytest.fixture
def report(tmp_path: Path) -> CheckReport:
    return CheckReport(tmp_path / "found.json", ABOUT)


def written(report: CheckReport) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(report.path.read_text())
    return found


def answering(monkeypatch: pytest.MonkeyPatch, *answers: Done) -> list[list[str]]:
    """Let Python answer the first of `answers`, then the next, the last for ever; its commands."""
    commands: list[list[str]] = []

    def python(arguments: Any, seconds: float, before: Any = ()) -> Done:
        commands.append([*before, *arguments])
        return answers[min(len(commands), len(answers)) - 1]

    monkeypatch.setattr(stages, "python", python)
    monkeypatch.setattr(benchmarks, "python", python)
    return commands


def test_a_command_that_hangs_is_ended_with_all_that_it_started(tmp_path):
    mark = tmp_path / "alive"
    child = f"import time; time.sleep(4); open({str(mark)!r}, 'w')"
    code = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {child!r}]); {HANGS}"
    begin = time.monotonic()
    done = process.python(["-c", code], 2)
    assert time.monotonic() - begin < 20
    assert done.ended
    assert done.failure == "ended after 2 s: so far"
    time.sleep(4)
    assert not mark.exists()


def test_a_command_that_is_missing_or_fails_says_so():
    assert process.run(["no-such-tool"], 5).failure == (
        "status 127: no-such-tool: No such file or directory"
    )
    done = process.python(["-c", "print(1); raise SystemExit('broken')"], 60)
    assert done.failure == "status 1: 1\nbroken"
    assert process.python(["-c", "pass"], 60).failure == ""


def fails(kit: Kit, seconds: float) -> dict[str, Any]:
    raise ValueError("no such thing")


def hangs(kit: Kit, seconds: float) -> dict[str, Any]:
    return {"failure": process.python(["-c", HANGS], min(seconds, 1)).failure}


def test_every_stage_leaves_its_result_in_the_file(report):
    seen: list[dict[str, Any]] = []

    def looks(kit: Kit, seconds: float) -> dict[str, Any]:
        seen.append(written(report))
        return {"passed": 3}

    names = ("raises", "hangs", "looks")
    made = [Stage(n, 60, run) for n, run in zip(names, (fails, hangs, looks), strict=True)]
    stages.play(Kit("sim", report, Countdown(1e6)), made)
    (before,) = seen
    assert list(before["stages"]) == ["raises", "hangs"]
    found = written(report)
    assert found["stages"]["raises"]["failure"].endswith("ValueError: no such thing\n")
    assert found["stages"]["hangs"]["failure"] == "ended after 1 s: so far"
    assert found["stages"]["looks"]["passed"] == 3
    assert [f["name"] for f in found["failures"]] == ["raises", "hangs"]
    assert not kit.passed(found)


def test_a_stage_for_which_no_time_is_left_is_skipped_and_said_so(report):
    stages.play(Kit("sim", report, Countdown(0)), [Stage("ops", 60, fails)])
    assert written(report)["stages"] == {"ops": {"skipped": "0 s were left"}}
    assert kit.passed(written(report))


def test_a_stage_that_the_end_of_all_time_cut_short_is_for_the_next_run(report):
    stages.play(Kit("cuda", report, Countdown(30)), [Stage("a", 60, hangs), Stage("b", 20, hangs)])
    found = written(report)["stages"]
    assert found["a"]["skipped"] == found["b"]["failure"] == "ended after 1 s: so far"
    assert report.stage("a") is None and report.stage("b") is not None


def test_a_stage_gets_no_more_time_than_is_left(report):
    given: list[float] = []

    def notes(kit: Kit, seconds: float) -> dict[str, Any]:
        given.append(seconds)
        return {}

    made = [Stage("a", 10, notes), Stage("b", 60, notes)]
    stages.play(Kit("cuda", report, Countdown(30)), made)
    assert given[0] == 10
    assert 20 < given[1] <= 30


def test_a_file_of_the_same_commit_is_gone_on_with(report):
    kit_of = lambda r: Kit("sim", r, Countdown(100))  # noqa: E731
    done: list[str] = []

    def stage(name: str, found: dict[str, Any]) -> Stage:
        def run(kit: Kit, seconds: float) -> dict[str, Any]:
            done.append(name)
            return found

        return Stage(name, 60, run)

    both = [stage("smoke", {}), stage("ops", {"skipped": "no time"})]
    stages.play(kit_of(report), both)
    stages.play(kit_of(CheckReport(report.path, ABOUT)), both)
    assert done == ["smoke", "ops", "ops"]
    stages.play(kit_of(CheckReport(report.path, {**ABOUT, "commit": "another"})), both)
    assert done == ["smoke", "ops", "ops", "smoke", "ops"]


def test_the_file_is_named_by_date_and_gpu():
    assert default_path(ABOUT) == ROOT / "benchmarks" / "results" / "2026-11-22-h200.json"


def test_tests_are_counted_and_the_text_of_failures_kept(monkeypatch):
    out = (
        "tests/cuda/test_gpu.py::test_a[cuda-1] PASSED [ 50%]\n"
        "tests/cuda/test_gpu.py::test_a[cuda-2] FAILED [100%]\nE  AssertionError: 3 is not 4\n"
    )
    commands = answering(monkeypatch, Done(1, out, "", 9.0), Done(0, "", "", 1.0))
    found = stages.run_tests("cuda", "an_op_means", 60)
    assert (found["passed"], found["failed"]) == (1, 1)
    assert found["failure"] == f"status 1: {out.strip()}"
    assert commands[0][-6:-2] == ["-m", "gpu", "-k", "an_op_means"]
    assert commands[0][-2:] == list(stages.TESTS)
    assert commands[0][commands[0].index("-W") + 1] == "default"  # other packages may warn
    assert stages.run_tests("cuda", "an_op_means", 60) == {"failure": "no test passed: "}


def test_warnings_of_other_packages_do_not_fail_tests(tmp_path):
    test = tmp_path / "test_warning.py"
    test.write_text("import warnings\ndef test_it():\n    warnings.warn('old')\n")
    options = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", str(ROOT / "pyproject.toml")]
    assert process.python([*options, str(test)], 60).status == 1
    assert process.python([*options, "-W", "default", str(test)], 60).failure == ""


def test_memcheck_does_not_count_errors_of_the_api(report, monkeypatch):
    commands = answering(monkeypatch, Done(0, "ERROR SUMMARY: 0 errors\n", "", 1.0))
    monkeypatch.setattr(stages.shutil, "which", lambda name: f"/bin/{name}")
    for name in ("memcheck", "racecheck"):
        found = stages.sanitizer(name)(Kit("cuda", report, Countdown(9)), 60)
        assert found == {"summary": ["ERROR SUMMARY: 0 errors"]}
    memcheck, racecheck = (command[: command.index("-m")] for command in commands)
    assert memcheck[-2:] == ["--report-api-errors", "no"]
    assert "--report-api-errors" not in racecheck


def test_spilling_kernels_are_named(report, monkeypatch):
    answering(monkeypatch, Done(0, 'mlp [1]\n{"a": [32, 0, 8], "b": [255, 4, 0]}\n', "", 1.0))
    found = stages.kernels(Kit("cuda", report, Countdown(9)), 60)
    assert found == {"spilled": ["b"], "a": [32, 0, 8], "b": [255, 4, 0]}


def taken(report: CheckReport, workloads: list[str], seconds: float = 1e6) -> int:
    each = goals.measurements(workloads)
    return benchmarks.take_all(report, Countdown(seconds), "cuda:1", each)


def test_measurements_are_taken_by_value_and_failures_kept(report, monkeypatch):
    broken = Done(1, "", "RuntimeError: out of memory", 1.0)
    silent = Done(0, "", "", 1.0)
    commands = answering(monkeypatch, silent, broken, Done(0, '{"median_ms": 1.5}\n', "", 1.0))
    workloads = ["pw-gelu", "mlp-4x256-b16"]
    assert taken(report, workloads) == 0
    lines = {line["name"]: line for line in written(report)["benchmarks"]}
    names = list(lines)
    assert names[:2] == [f"mlp-4x256-b16 train {x}" for x in ("graphc:default", "torch:eager")]
    assert lines[names[0]]["failure"] == "no JSON line was printed: "
    assert lines[names[1]]["failure"] == "status 1: RuntimeError: out of memory"
    assert lines[names[2]] == {"name": names[2], "median_ms": 1.5}
    assert names == [each.name for each in goals.measurements(workloads)]
    assert all(command[9] == "cuda:1" for command in commands)
    assert not kit.passed(written(report))  # graphc's did not say what it measured
    report.add_measurement(names[0], {"median_ms": 2.0})
    assert kit.passed(written(report))  # what a peer cannot do is no fault of graphc


def test_measurements_stop_in_time_and_go_on_in_the_next_run(report, monkeypatch):
    commands = answering(monkeypatch, Done(0, "{}\n", "", 1.0))
    every = len(goals.measurements(["pw-gelu"]))
    assert taken(report, ["pw-gelu"], 0) == every
    assert commands == []
    assert taken(report, ["pw-gelu"]) == 0
    assert taken(report, ["pw-gelu"]) == 0
    assert len(commands) == every


def test_what_failed_is_tried_again_behind_what_was_not_tried(report, monkeypatch):
    first, second, *_ = goals.measurements(["pw-gelu"])
    report.add_measurement(first.name, {"failure": "out of memory"})
    commands = answering(monkeypatch, Done(0, "{}\n", "", 1.0))
    assert taken(report, ["pw-gelu"]) == 0
    variants = [command[3] for command in commands]
    assert (variants[0], variants[-1]) == (second.variant, first.variant)
    assert not any("failure" in line for line in written(report)["benchmarks"])


def test_a_measurement_that_the_end_of_all_time_cut_short_is_left(report, monkeypatch):
    answering(monkeypatch, Done(124, "", "", 50.0, ended=True))
    assert taken(report, ["pw-gelu"], 60) == len(goals.measurements(["pw-gelu"]))
    assert written(report)["benchmarks"] == []
    assert taken(report, ["pw-gelu"]) == 0
    assert written(report)["benchmarks"][0]["failure"] == "ended after 50 s"


def test_without_a_gpu_pytorch_runs_on_the_cpu(monkeypatch):
    commands = answering(monkeypatch, Done(0, "{}\n", "", 1.0))
    for peer in ("graphc", "torch"):
        benchmarks.measure(goals.Measurement(peer, "v", "pw-gelu", "train"), "sim", 60)
    assert [command[9] for command in commands] == ["sim", "cpu"]


def test_the_workloads_and_variants_exist():
    assert set(goals.CHOSEN) <= set(WORKLOADS)
    peer = need_module("torch") and import_module("benchmarks.peer_torch")
    known = {"graphc": VARIANTS, "torch": peer.VARIANTS}
    for each in goals.measurements(goals.CHOSEN):
        assert each.variant in known[each.peer]


def test_what_decides_goals_is_measured_first_and_nothing_twice():
    every = goals.measurements(goals.CHOSEN)
    assert len({each.name for each in every}) == len(every)
    decisive = goals.decisive(goals.CHOSEN)
    named = [each for each in decisive if goals.goal_of(each.workload) is not goals.OTHERS]
    assert every[: len(named)] == named and set(decisive) <= set(every)
    for goal in goals.GOALS:
        for workload in goal.workloads:
            peers = {(x.peer, x.variant) for x in every if x.workload == workload}
            assert {("graphc", v) for v in goal.ours} <= peers
            assert {("torch", v) for v in goal.theirs} <= peers
    assert not any("compile" in each.variant for each in decisive)


def test_graphc_is_set_beside_pytorch_of_its_own_precision():
    times = {
        "graphc:tf32": (0.5, 0.25), "graphc:default": (1.0, None), "torch:eager_fused": (3.0, None),
        "torch:compile": (2.0, 1.5), "torch:graphs_tf32": (0.4, None), "graphc:wgmma": (0.1, None),
    }  # fmt: skip
    lines: list[dict[str, Any]] = [
        {"name": f"mnist-cnn-b100 train {name}", "median_ms": ms, "gpu_ms": alone}
        for name, (ms, alone) in times.items()
    ]
    failed = {"name": "pw-gelu train graphc:tf32", "failure": "out of memory"}
    note, *told = comparison.compared([*lines, failed], ["pw-gelu", "mnist-cnn-b100"])
    assert note.startswith("PyTorch's own default is tf32 in convolutions and float32 in matrix ")
    assert told == [
        "Goal: 1.5 times as fast as the best of eager, graphs and torch.compile",
        "  mnist-cnn-b100 train float32: 2.00; graphc default 1.0; "
        "PyTorch compile 2.0 (1.5), eager_fused 3.0",
        "  mnist-cnn-b100 train tf32: 0.80; graphc tf32 0.5 (0.25); PyTorch graphs_tf32 0.4",
    ]
    assert comparison.compared([failed], ["pw-gelu"]) == []


def test_the_share_of_copy_bandwidth_is_measured():
    need_command("g++", "clang++")
    found = json.loads(run_python("-m", "tools.gpu_check.bandwidth", "sim").splitlines()[-1])
    assert len(found) == 5
    assert all(x["us"] > 0 and 0 < x["share"] < 1 for x in found.values())


def test_the_smoke_stage_passes_on_the_simulated_gpu():
    need_command("g++", "clang++")
    checks = json.loads(run_python("-m", "tools.gpu_check.smoke", "sim").splitlines()[-1])
    assert set(checks.values()) == {"ok"}
    assert len(checks) == 10


@pytest.mark.parametrize(("find", "put", "check"), [
    ("return lane / 4 + i / 2 * 8; }", "return lane / 4 + i % 2 * 8; }", "mma bf16"),
    ("lane % 4 + i / 2 * 4; }", "lane % 4 + i % 2 * 4; }", "mma tf32"),
    ("lane % 4 * 2 + 1", "lane % 4 * 2", "ldmatrix"),
    ("y[i] += a * x[i]", "y[i] = a * x[i]", "graph"),
    ("y[i] += a * x[i]", "y[i] = a * x[i]", "graph update"),
    ("n / 2 + 1", "n / 2", "early launches"),
])  # fmt: skip
def test_the_smoke_stage_finds_a_wrong_layout(
    tmp_path, monkeypatch, find: str, put: str, check: str
):
    from tools.gpu_check import smoke

    need_command("g++", "clang++")
    text = smoke.SOURCE.read_text()
    assert find in text
    changed = tmp_path / "smoke.cu"
    changed.write_text(text.replace(find, put))
    monkeypatch.setattr(smoke, "SOURCE", changed)
    found = smoke.Smoke("sim")
    with pytest.raises(AssertionError):
        smoke.CHECKS[check](found)
    found.close()


def test_a_device_that_is_missing_is_a_failure_of_the_smoke_stage(report):
    found = stages.smoke(Kit("cuda:77", report, Countdown(60)), 60)
    assert "RunError" in found["failure"]


def test_what_is_left_fits_a_quarter_of_an_hour() -> None:
    """Two calls, each with the start of a machine, leave time for the measurements of the goals."""
    assert kit.parser().parse_args([]).minutes == 6.5
    names = [stage.name for stage in stages.STAGES]
    first = stages.STAGES[: names.index("goals")]
    assert sum(stage.seconds for stage in first) <= 360
    assert names[:3] == ["smoke", "ops", "models"]


@pytest.mark.slow
def test_the_whole_kit_runs_on_the_simulated_gpu(tmp_path):
    """Every stage but those of compute-sanitizer, and every measurement of graphc."""
    need_command("g++", "clang++")
    path = tmp_path / "sim.json"
    options = ["--device", "sim", "--out", str(path), "--workloads", "mlp-small-b20"]
    with pytest.raises(SystemExit) as ended:
        kit.main([*options, "--minutes", "90"])
    found = json.loads(path.read_text())
    assert ended.value.code == 0, found["failures"]
    assert list(found["stages"]) == [stage.name for stage in stages.STAGES]
    skipped = {name for name, each in found["stages"].items() if {"skipped", "missing"} & {*each}}
    sanitizers = {"memcheck", "racecheck", "synccheck", "initcheck"}
    assert skipped <= {*sanitizers, "counters", "binding"}
    measured = {line["name"] for line in found["benchmarks"] if "failure" not in line}
    ours = {m.name for m in goals.measurements(["mlp-small-b20"]) if m.peer == "graphc"}
    assert ours and ours <= measured
    assert found["stages"]["ops"]["passed"] > 40 and found["stages"]["models"]["passed"] > 20
