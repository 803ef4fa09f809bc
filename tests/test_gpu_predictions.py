"""Predictions of what a check of a GPU measures, and the comparison with what it measured."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from graphc.runtime.cuda.compile import compile_cuda
from tests.tools import need_command, need_cuda_compiler, need_nvdisasm, run_python
from tools.gpu_check import bandwidth, counters, predicted, stages
from tools.gpu_check.process import Countdown, Done
from tools.gpu_model import predict
from tools.gpu_model.constants import code_digest
from tools.gpu_model.machine import ENDS, H100, H200, ends, machine_called

STEP = {
    "us": [10.0, 8.0, 12.0],
    "nodes": 2,
    "kernels": {
        "add": {"us": [5.0, 4.0, 6.0], "code": "aa"},
        "sum": {"us": [5.0, 4.0, 6.0], "code": "bb"},
    },
}
PREDICTED = {
    "commit": "c0ffee",
    "steps": {"lenet train graphc:tf32": STEP, "gpt train graphc:tf32": STEP},
    "bandwidth": {"chain": {"us": [10.0, 9.0, 11.0], "share": [0.9, 0.8, 1.0]}},
    "host": {"us per step": [20.0, 10.0, 40.0], "GB/s of inputs": {"1": [10.0, 5.0, 20.0]}},
}


def measured(**kernels: tuple[float, str]) -> dict[str, Any]:
    found = {name: {"us": us, "code": code} for name, (us, code) in kernels.items()}
    line = {"name": "lenet train graphc:tf32", "gpu_ms": 0.013, "kernels": found}
    others = [{"name": "lenet train torch:eager", "gpu_ms": 1.0}, {"name": "gpt train graphc:tf32"}]
    stages = {"bandwidth": {"seconds": 9, "chain": {"us": 9.5, "share": 0.95}}}
    stages["host"] = {"us per step": 9.0, "GB/s of inputs": {"1": 12.0, "2": 13.0}}
    return {"machine": {"gpus": ["NVIDIA H200, 580"]}, "benchmarks": [line, *others],
            "stages": stages}  # fmt: skip


def test_measurements_are_judged_by_their_ranges() -> None:
    results = measured(add=(7.0, "aa"), sum=(3.0, "bb"))
    found = {each.name: each for each in predicted.comparisons(results, PREDICTED)}
    assert {name: each.verdict for name, each in found.items()} == {
        "lenet train graphc:tf32": "ABOVE",
        "lenet train graphc:tf32 add": "ABOVE",
        "lenet train graphc:tf32 sum": "BELOW",
        "chain, us": "inside",
        "chain, share": "inside",
        "us per step": "BELOW",
        "GB/s of inputs, 1 threads": "inside",
    }
    step = found["lenet train graphc:tf32"]
    assert step.text.endswith(": 13, predicted 10 (8 to 12): 1.30, ABOVE")


def test_what_has_changed_since_is_not_judged() -> None:
    results = measured(add=(7.0, "aa"), sum=(3.0, "cc"))
    found = list(predicted.comparisons(results, PREDICTED))
    verdicts = {each.name.rpartition(" ")[2]: each.verdict for each in found[:3]}
    assert verdicts == {"graphc:tf32": "changed since", "add": "ABOVE", "sum": "changed since"}
    told = predicted.summary(found)
    assert told[0] == "step: ; 1 changed since"
    ratios = "1.40 (1.40 to 1.40)"
    assert told[1] == f"kernel: 0 of 1 inside; measured / predicted {ratios}; 1 changed since"
    assert [each.name.rpartition(" ")[2] for each in predicted.worst(found)] == ["add"]
    missing = list(predicted.comparisons(measured(add=(7.0, "aa")), PREDICTED))
    assert missing[0].verdict == "changed since"  # the plan is another one


def test_the_newest_predictions_for_the_gpu_are_used(tmp_path: Path) -> None:
    for name in ("2026-11-01-h200", "2026-11-29-h200", "2026-12-01-h100"):
        (tmp_path / f"{name}.json").write_text(json.dumps(PREDICTED))
    results = measured(add=(7.0, "aa"), sum=(4.5, "bb"))
    told = predicted.report(results, tmp_path)
    assert told["file"] == "2026-11-29-h200.json"
    assert "of commit c0ffee" in told["lines"][0]
    assert not any("not predicted" in line for line in told["lines"])
    tuned = {"name": "lenet train graphc:tf32_libraries", "gpu_ms": 1.0}
    more = {**results, "benchmarks": [*results["benchmarks"], tuned]}
    lines = predicted.report(more, tmp_path)["lines"]
    assert "not predicted: lenet train graphc:tf32_libraries" in lines
    assert told["worst"][0]["name"].endswith(" add") and len(told["worst"]) == 2
    other = {**results, "machine": {"gpus": ["NVIDIA L4, 580"]}}
    assert predicted.report(other, tmp_path) == {
        "missing": "there are no predictions for NVIDIA L4"
    }


def test_the_models_of_gpus_by_their_names() -> None:
    assert machine_called("NVIDIA H100 80GB HBM3") == H100
    assert machine_called("simulated") == H200
    fast, slow = ends(H100)
    for name in ENDS:
        assert sorted((getattr(fast, name), getattr(slow, name)))[0] <= getattr(H100, name)
    assert fast.node < H100.node < slow.node and fast.copy > H100.copy > slow.copy


NCU = """{"median_ms": 1}
==PROF== Connected
"ID","Kernel Name","Section Name","Metric Name","Metric Unit","Metric Value"
"0","add_0","SpeedOfLight","Duration","us","7.5"
"0","add_0","SpeedOfLight","DRAM Throughput","%","41.2"
"1","sum_0","SpeedOfLight","Duration","us","3.0"
"2","add_0","SpeedOfLight","Duration","us","9.9"
"""


def counted(monkeypatch: pytest.MonkeyPatch, answer: Done) -> tuple[dict[str, Any], list[str]]:
    commands: list[str] = []

    def python(arguments: Any, seconds: float, before: Any = ()) -> Done:
        commands.extend([*before, *arguments])
        return answer

    monkeypatch.setattr(counters, "python", python)
    monkeypatch.setattr(counters.shutil, "which", lambda name: f"/bin/{name}")
    worst = [{"name": "mnist-cnn-b100 train graphc:tf32 add"}]
    return counters.read(worst, "cuda", Countdown(60), ["mnist-cnn-b100"]), commands


def test_counters_of_the_first_launch_of_a_kernel_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    found, command = counted(monkeypatch, Done(0, NCU, "", 1.0))
    assert found["mnist-cnn-b100 train graphc:tf32"] == {
        "add_0": {"Duration": "7.5 us", "DRAM Throughput": "41.2 %"},
        "sum_0": {"Duration": "3.0 us"},
    }
    assert command[0] == "/bin/ncu" and "regex:^(add)" in command
    assert command[command.index("--variant") + 1] == "tf32"


def test_why_there_are_no_counters(monkeypatch: pytest.MonkeyPatch) -> None:
    forbidden = Done(1, "", "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission", 1.0)
    assert "may not read" in counted(monkeypatch, forbidden)[0]["missing"]
    assert counted(monkeypatch, Done(1, "", "no", 1.0))[0]["failure"] == "status 1: no"
    assert counters.read([], "cuda", Countdown(60), [])["missing"].startswith("no kernel")
    monkeypatch.setattr(counters.shutil, "which", lambda name: None)
    assert counters.read([], "cuda", Countdown(60), []) == {"missing": "ncu is not on the PATH"}


def test_a_digest_tells_machine_code_and_not_names() -> None:
    need_cuda_compiler()
    text = 'extern "C" __global__ void twice(float* x) { x[threadIdx.x] *= 2; }'
    one, renamed, other = (
        code_digest(compile_cuda(changed, "twice", "sm_90a").image)
        for changed in (text, text.replace("twice", "\n\ndouble_it"), text.replace("2;", "3;"))
    )
    assert one == renamed != other


def test_steps_kernels_and_bandwidth_are_predicted(tmp_path: Path) -> None:
    need_cuda_compiler()
    need_nvdisasm()
    predict.main(["--workloads", "pw-softmax", "--rows", "64", "--folder", str(tmp_path)])
    (h100, h200) = (json.loads(p.read_text()) for p in sorted(tmp_path.iterdir()))
    (step,) = h200["steps"].values()
    assert list(h200["steps"]) == ["pw-softmax train graphc:default"]
    expected, least, most = step["us"]
    assert least < expected < most and expected < h100["steps"][next(iter(h100["steps"]))]["us"][0]
    (kernel,) = step["kernels"].values()
    assert kernel["us"] == step["us"] and len(kernel["code"]) == 12
    changed = json.loads((path := max(tmp_path.iterdir())).read_text())
    changed["steps"] |= {"other": {**step, "commit": "c0ffee"}}
    path.write_text(predict.lines(changed))
    for anew, kept in (([], True), (["--anew"], False)):
        changed["steps"]["pw-softmax train graphc:default"]["us"] = [1.0, 1.0, 1.0]
        path.write_text(predict.lines(changed))
        options = ["--workloads", "pw-softmax", "--rows", "64", "--folder", str(tmp_path)]
        predict.main([*options, *anew])
        again = json.loads(path.read_text())["steps"]
        assert (again["pw-softmax train graphc:default"]["us"][0] == 1) is kept
        assert again["other"]["commit"] == "c0ffee"
    shares = [each["share"] for each in h200["bandwidth"].values()]
    assert len(shares) == 5 and all(low <= share <= high for share, low, high in shares)


def test_variants_chosen_by_measurement_are_not_predicted() -> None:
    assert predict.why_not("tf32") == predict.why_not("default") == ""
    assert "measurement" in predict.why_not("tf32_libraries")
    assert "switch" in predict.why_not("wgmma")


def test_committed_predictions_have_ranges() -> None:
    paths = sorted(predicted.FOLDER.glob("*.json"))
    assert {path.stem.rpartition("-")[2] for path in paths} == {"h100", "h200"}
    for path in paths:
        found = json.loads(path.read_text())
        wanted = [each.name for each in predict.measured(predict.goals.CHOSEN)]
        assert {*found["steps"], *found["not predicted"]} <= {*wanted} and wanted[0] in found[
            "steps"
        ]
        titles = [bandwidth.title(each) for each in bandwidth.chosen(bandwidth.ROWS)]
        assert list(found["bandwidth"]) == titles and set(found["host"]) == set(PREDICTED["host"])
        assert "dirty" not in found["commit"] and path.stat().st_size < 400_000
        for step in found["steps"].values():
            ranges = [step["us"], *(kernel["us"] for kernel in step["kernels"].values())]
            assert all(0 < low <= us <= high for us, low, high in ranges)


def test_a_step_reports_its_kernels_on_the_simulated_gpu() -> None:
    need_command("g++", "clang++")
    options = ["--workload", "mlp-small-b20", "--device", "sim", "--seconds", "0.01"]
    line = json.loads(run_python("-m", "benchmarks.run", *options).splitlines()[-1])
    assert {"matmul_bias_relu", "sgd_update"} <= set(line["kernels"])
    assert all(kernel["us"] > 0 for kernel in line["kernels"].values())


def test_the_stage_of_counters_takes_the_furthest_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(stages.predicted, "report", lambda results: {"worst": [{"name": "a"}]})
    monkeypatch.setattr(stages.counters, "read", lambda worst, *rest: asked.extend(worst) or {})
    report = SimpleNamespace(results={})
    kit: Any = SimpleNamespace(report=report, device="cuda", workloads=("pw-gelu",))
    assert stages.furthest(kit, 5) == {} and asked == [{"name": "a"}]
