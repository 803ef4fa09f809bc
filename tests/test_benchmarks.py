"""The benchmarks: fixed weights and inputs, one JSON line, the same losses as PyTorch."""

from __future__ import annotations

import hashlib
import json
import re
import sys

import numpy as np
import pytest

from benchmarks import ablate, first_call, run, streams
from benchmarks.measure import main
from benchmarks.workloads import FOR_CPU, WORKLOADS, find
from tests.tools import first_quick, need_module, run_python

KEYS = (
    "peer variant workload mode threads median_ms p10 p90 gpu_ms cpu_ms first_call_s peak_rss_mb"
    " gflop_fwd check noise"
)


@pytest.mark.parametrize(
    ("name", "digest", "gflop"),
    [
        ("mlp-small-b20", "d1f5d0215df02d60", 0.0010163),
        ("mlp-small-b100", "2a046e844d004be9", 0.0050816),
        ("mlp-4x256-b16", "ca6d70de79635a99", 0.0063734),
        ("mnist-cnn-b100", "e7827fc41a76c16a", 0.4586),
        ("mnist-cnn-b1000", "3a02da4e6b78620e", 4.586),
        ("flux-conv-b100", "f4913e77aa16ebf6", 0.2941056),
        ("flux-conv-b1000", "75856835a7772236", 2.9410560),
        ("lstm-h512-b64", "34c257dd4a833ab4", 34.3639327),
        ("conv-backward-b8", "2c8bf4e140c2e330", 7.3987523),
        ("resnet18-b1", "cb3e777120e8a3ba", 3.6281467),
        ("resnet18-b8", "fa24eeb114e35dc4", 29.0251735),
        ("resnet50-b1", "e0df11d9ab6aa560", 8.1783685),
        ("resnet50-b8", "8a54ecdba29d66bf", 65.4269481),
        ("gpt4-b1", "88cadcc8fd843e52", 0.9059697),
        ("gpt4-b8", "79198ca0d3f2488b", 7.2477573),
        ("pw-chain", "89128f10883c01f6", 0.0),
        ("pw-layernorm", "485dc8dcaee3ac65", 0.0),
        ("pw-batchnorm", "feb00e104e91acb4", 0.0),
        ("pw-softmax", "4d37bb5758c35cf7", 0.0),
        ("pw-gelu", "30667dc6731a8c6d", 0.0),
    ],
)
def test_weights_and_inputs_are_always_the_same(name, digest, gflop):
    data = WORKLOADS[name].data()
    content = b"".join(a.tobytes() for a in (*data.parameters.values(), data.x, data.y))
    assert hashlib.sha256(content).hexdigest()[:16] == digest
    assert data.x.dtype == (np.int32 if name.startswith("gpt") else np.float32)
    labels = not name.startswith(("pw", "conv-", "lstm"))
    assert data.y.dtype == (np.int32 if labels else np.float32)
    assert WORKLOADS[name].gflop == pytest.approx(gflop, rel=1e-3)


def test_an_unknown_workload_is_an_error_that_lists_those_that_are_there():
    message = f"workload: expected one of {', '.join(WORKLOADS)}, got 'gpt5'"
    with pytest.raises(SystemExit, match=f"^{re.escape(message)}$"):
        find("gpt5")


@pytest.mark.parametrize("mode", ["train", "forward"])
def test_a_run_prints_one_json_line(mode, capsys):
    arguments = ["--workload", "mlp-small-b20", "--mode", mode, "--device", "reference"]
    main("graphc", tuple(run.STREAMS), run.prepare, [*arguments, "--seconds", "0.01", "--json"])
    (line,) = capsys.readouterr().out.splitlines()
    result = json.loads(line)
    assert list(result) == KEYS.split()
    assert (result["peer"], result["workload"], result["mode"]) == ("graphc", "mlp-small-b20", mode)
    assert result["p10"] <= result["median_ms"] <= result["p90"]
    assert len(result["check"]) == 5


def test_a_mode_that_a_workload_does_not_have_is_an_error():
    arguments = ["--workload", "gpt4-b1", "--mode", "train"]
    with pytest.raises(SystemExit, match=r"^gpt4-b1 has no mode 'train'$"):
        main("graphc", tuple(run.STREAMS), run.prepare, arguments)


def test_help_lists_the_workloads(capsys):
    with pytest.raises(SystemExit, match=r"^0$"):
        main("graphc", tuple(run.STREAMS), run.prepare, ["--help"])
    said = capsys.readouterr().out.splitlines()
    listed = said[said.index("workloads and their modes:") + 1 :]
    assert [line.split()[0] for line in listed] == list(WORKLOADS)


QUICK = (("mlp-small-b20", "forward"), ("mnist-cnn-b100", "train"))


@pytest.mark.parametrize(
    ("name", "mode"),
    [
        pytest.param(name, mode, marks=() if (name, mode) in QUICK else pytest.mark.slow)
        for name, workload in FOR_CPU.items()
        for mode in workload.modes
    ],
)
def test_losses_and_outputs_are_those_of_pytorch(name, mode):
    need_module("torch")
    arguments = ["--workload", name, "--mode", mode, "--seconds", "0.01", "--json"]
    ours = json.loads(run_python("-m", "benchmarks.run", *arguments))
    theirs = json.loads(run_python("-m", "benchmarks.peer_torch", *arguments))
    # The losses of so few images depend on rounding: PyTorch's in float64 differ as much.
    tolerance = 5e-3 if (name, mode) == ("resnet18-b8", "train") else 2e-4
    assert ours["check"] == pytest.approx(theirs["check"], rel=tolerance, abs=2e-6)


@pytest.mark.parametrize("model", first_quick(1, [streams.Convolutions, streams.Inception]))
def test_streams_are_compared_in_one_row(model):
    cells = streams.row(model.__name__, model, 1, seconds=0.0).strip("| ").split(" | ")
    assert cells[:2] == [f"{model.__name__}, batch 1", "10"]
    assert len(cells) == 8 and cells[2].endswith("us (1.000)")
    assert re.fullmatch(r"[124]: \d+ us \(\d\.\d{3}\)", cells[7])


def test_ablate_has_a_line_for_what_changes_the_plan() -> None:
    title, *lines = ablate.table("mlp-small-b20", rounds=1, threads=1)
    assert title.startswith("**mlp-small-b20**, 1 threads, 1 rounds")
    assert tuple(lines[:2]) == ablate.HEADER
    rows = {cells[0]: cells[1:] for cells in (line.strip("| ").split(" | ") for line in lines[2:])}
    assert next(iter(rows)) == "nothing"
    assert list(rows)[-1] == ablate.NO_FUSION
    launches = {off: int(row[1]) for off, row in rows.items()}
    moved = {off: float(row[2]) for off, row in rows.items()}
    assert launches[ablate.NO_FUSION] > launches["fuse_updates"] > launches["nothing"]
    assert moved[ablate.NO_FUSION] > moved["nothing"]


def test_first_calls_are_timed_in_processes_of_their_own():
    found = first_call.in_process(sys.executable, "mlp-batches", "graphc", 1, {})
    assert len(found["losses"]) == len(first_call.BATCHES)
    assert all(found[clock] > 0 for clock in first_call.CLOCKS)
    slow = {**found, "wall": 4.0}
    rows = list(
        first_call.lines("mlp-batches", {"graphc": [{**found, "wall": 1.0}], "jax": [slow]})
    )
    assert rows[0].startswith("| mlp-batches | graphc | 1.00 (1.00) | ")
    assert rows[0].endswith("| 0.25 |")
    assert rows[1].endswith("|  |")


@pytest.mark.parametrize("scenario", first_call.SCENARIOS[:-1])
def test_a_scenario_of_first_calls_has_workloads(scenario):
    found = first_call.workloads(scenario)
    assert len(found) == (len(first_call.HIDDEN) if "hidden" in scenario else 1)
    assert all(
        np.isfinite(w.data().x).all() for w in found if w.batch < 100 and "res" not in w.name
    )


def test_loading_a_saved_program() -> None:
    lines = run_python("-m", "benchmarks.loading", "mlp-small-b20", "--rounds", "1").splitlines()
    assert [line.split(" | ")[:2] for line in lines[2:]] == [
        ["| mlp-small-b20", "train"],
        ["| mlp-small-b20", "forward"],
    ]
    wall, cpu, thread, load, size = map(float, lines[2].strip(" |").split(" | ")[2:])
    assert wall >= load > 0 and cpu >= thread > 0 and size > 0
