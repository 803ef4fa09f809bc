"""The benchmarks: fixed weights and inputs, one JSON line, the same losses as PyTorch."""

from __future__ import annotations

import hashlib
import json
import re

import numpy as np
import pytest

from benchmarks import run
from benchmarks.measure import main
from benchmarks.workloads import WORKLOADS, find
from tests.tools import need_module, run_python

KEYS = (
    "peer variant workload mode threads median_ms p10 p90 first_call_s peak_rss_mb gflop_fwd check"
    " noise"
)


@pytest.mark.parametrize(
    ("name", "digest", "gflop"),
    [
        ("mlp-small-b20", "d1f5d0215df02d60", 0.0010163),
        ("mlp-small-b100", "2a046e844d004be9", 0.0050816),
        ("mnist-cnn-b100", "e7827fc41a76c16a", 0.4586),
        ("mnist-cnn-b1000", "3a02da4e6b78620e", 4.586),
        ("flux-conv-b1000", "75856835a7772236", 2.9410560),
    ],
)
def test_weights_and_inputs_are_always_the_same(name, digest, gflop):
    parameters, x, y = WORKLOADS[name].data()
    content = b"".join(a.tobytes() for a in (*parameters.values(), x, y))
    assert hashlib.sha256(content).hexdigest()[:16] == digest
    assert x.dtype == np.float32
    assert y.dtype == np.int32
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


@pytest.mark.parametrize("mode", ["train", "forward"])
@pytest.mark.parametrize("name", ["mlp-small-b20", "mnist-cnn-b100"])
def test_losses_and_outputs_are_those_of_pytorch(name, mode):
    need_module("torch")
    arguments = ["--workload", name, "--mode", mode, "--seconds", "0.01", "--json"]
    ours = json.loads(run_python("-m", "benchmarks.run", *arguments))
    theirs = json.loads(run_python("-m", "benchmarks.peer_torch", *arguments))
    assert ours["check"] == pytest.approx(theirs["check"], rel=2e-4, abs=2e-6)
