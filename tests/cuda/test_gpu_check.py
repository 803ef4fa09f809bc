"""The kit that `make gpu-check` runs, without a GPU."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from tools import gpu_check

PASSED = {"passed": 460, "failures": []}
CLEAN = {"memcheck": {"status": 0, "summary": ["ERROR SUMMARY: 0 errors"]}}


@pytest.mark.parametrize(
    ("tests", "sanitizer", "expected"),
    [
        (PASSED, CLEAN, True),
        (PASSED, {"missing": "compute-sanitizer is not on the PATH"}, True),
        (PASSED, {"memcheck": "no time was left"}, True),
        (PASSED, {"memcheck": {"status": 7, "summary": []}}, False),
        ({"passed": 459, "failed": 1, "failures": ["test_x"]}, CLEAN, False),
        ({"skipped": 460, "failures": []}, CLEAN, False),
    ],
)
def test_a_gpu_passes_if_tests_pass_and_no_tool_finds_anything(
    tests: dict[str, Any], sanitizer: dict[str, Any], expected: bool
):
    assert gpu_check.passed({"tests": tests, "sanitizer": sanitizer}) is expected


def printing(text: str, status: int = 0) -> Any:
    """A stand-in for running Python that prints `text`; keeps the commands."""

    def python(arguments: Any, **_: Any) -> subprocess.CompletedProcess[str]:
        python.commands.append(list(arguments))
        return subprocess.CompletedProcess(arguments, status, text, "what went wrong")

    python.commands = []  # type: ignore[attr-defined]
    return python


def test_counts_and_failures_are_read_from_the_tests(monkeypatch):
    printed = "FAILED tests/cuda/test_gpu.py::test_a - x\n2 failed, 30 passed, 4 skipped in 9.1s\n"
    python = printing(printed)
    monkeypatch.setattr(gpu_check, "python", python)
    found = gpu_check.run_tests("cuda")
    assert found.pop("seconds") >= 0
    assert found == {
        "failed": 2,
        "passed": 30,
        "skipped": 4,
        "failures": ["tests/cuda/test_gpu.py::test_a - x"],
    }
    assert python.commands[0][-3:] == ["-m", "gpu", "tests/cuda/test_gpu.py"]


def test_each_workload_is_measured_on_both_sides(monkeypatch):
    python = printing('{"median_ms": 1.5}\n')
    monkeypatch.setattr(gpu_check, "python", python)
    monkeypatch.setattr(gpu_check, "version", lambda name: "2.13")
    lines = gpu_check.run_benchmarks("cuda:1", float("inf"))
    assert lines == [{"median_ms": 1.5}] * len(lines)
    chosen = [(c[1], c[3]) for c in python.commands if c[5] == "mlp-small-b20" and c[7] == "train"]
    assert chosen == [
        ("benchmarks.run", "default"),
        ("benchmarks.run", "streams2"),
        ("benchmarks.run", "streams4"),
        ("benchmarks.peer_torch", "eager"),
        ("benchmarks.peer_torch", "eager_fused"),
        ("benchmarks.peer_torch", "compile"),
    ]
    assert all(command[9] == "cuda:1" for command in python.commands)


def test_a_measurement_that_fails_is_part_of_the_results(monkeypatch):
    monkeypatch.setattr(gpu_check, "python", printing("", status=1))
    assert gpu_check.measure("benchmarks.run", "default", "mlp-small-b20", "train", "cuda") == {
        "module": "benchmarks.run",
        "variant": "default",
        "workload": "mlp-small-b20",
        "mode": "train",
        "error": "what went wrong",
    }


def test_the_benchmarks_stop_in_time(monkeypatch):
    monkeypatch.setattr(gpu_check, "python", printing("{}"))
    assert gpu_check.run_benchmarks("cuda", 0.0) == []


def test_the_file_is_named_by_date_and_gpu():
    results = {"machine": {"gpus": ["NVIDIA H200, 580.1, 143771 MiB, 9.0"]}, "date": "2026-11-21"}
    path = Path("benchmarks/results/2026-11-21-nvidia-h200.json")
    assert gpu_check.default_path(results) == gpu_check.ROOT / path


def test_the_workloads_exist():
    from benchmarks.workloads import find

    assert [find(name).name for name in gpu_check.WORKLOADS] == list(gpu_check.WORKLOADS)


def test_spilling_kernels_are_named(monkeypatch):
    monkeypatch.setattr(
        gpu_check, "python", printing('mlp [1]\n{"a": [32, 0, 8], "b": [255, 4, 0]}\n')
    )
    assert gpu_check.run_steps("cuda") == {
        "spilled": ["b"],
        "a": [32, 0, 8],
        "b": [255, 4, 0],
    }
