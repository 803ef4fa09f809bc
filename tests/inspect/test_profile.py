"""The profile table: what it adds up, what it names, and its trace."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import graphc
from graphc import optim
from graphc.base.errors import GraphError
from graphc.inspect.profile import Profile, ProfileRow, gradients_of
from graphc.inspect.trace_events import Span
from graphc.runtime.plan.plan import Launch, Record
from graphc.runtime.tuning.device_limits import DeviceLimits, limits_of
from tests.small_models import MODELS, loss_fn


def compiled(device: str = "cpu", streams: int = 2, rule: object = None) -> graphc.Program:
    kind, shape = MODELS["lenet"]
    specs = graphc.spec(shape), graphc.spec((shape[0],), "int32")
    update = rule or optim.SGD(lr=0.1, momentum=0.9)
    return graphc.compile(loss_fn, kind(), *specs, update=update, device=device, streams=streams)


def batch() -> tuple[np.ndarray, np.ndarray]:
    _, shape = MODELS["lenet"]
    rng = np.random.default_rng(0)
    return rng.random(shape, "float32"), rng.integers(0, 10, shape[0]).astype("int32")


def test_rows_and_idle_are_the_whole_call_and_the_state_stays() -> None:
    program = compiled()
    before = program.state_dict()
    profile = program.profile(*batch(), repeats=8)
    after = program.state_dict()
    assert all((before[name] == after[name]).all() for name in before)
    assert sum(r.microseconds for r in profile.rows) / 8 + profile.idle == pytest.approx(
        profile.step
    )
    launches = {s.kernel for s in program.plan.steps if isinstance(s, Launch)}
    assert {row.kernel for row in profile.rows} == launches
    for row in profile.rows:
        assert row.calls == 8
        assert 0 < row.least <= row.mean <= row.most
        assert row.limit >= 0
    last = str(profile).splitlines()[-1]
    assert last.startswith(("overhead and idle", "gained by streams"))
    head = str(profile).splitlines()[1].split("  ")
    words = [word.strip() for word in head if word.strip()]
    assert words == [
        *("kernel", "gradient of", "line", "calls", "total ms", "%", "avg µs", "min µs", "max µs"),
        *("MB", "GFLOP/s", "GB/s", "% limit"),
    ]


@pytest.mark.parametrize("rule", [optim.SGD(lr=0.1, momentum=0.9), optim.AdamW(clip_grad_norm=1.0)])
def test_backward_kernels_name_what_they_differentiate_by(rule: object) -> None:
    found = gradients_of(compiled("cuda", 1, rule))
    assert found["conv1_wgrad"] == "conv1.weight"
    assert found["fc2_wgrad"] == "fc2.weight"
    assert found["conv2_dgrad_relu_grad"] == "conv2 input"
    named = {name for names in found.values() for name in names.split(", ")}
    parameters = {name for name, _ in MODELS["lenet"][0]().named_parameters()}
    assert parameters <= named


ROWS = (
    ProfileRow("conv1_a", "net.py:3", 2, 4000.0, 0, 0, module="body.conv1"),
    ProfileRow("body_b", "net.py:4", 2, 1000.0, 0, 0, module="body"),
    ProfileRow("loss", "net.py:9", 2, 2000.0, 0, 0),
)


def test_by_module_adds_up_what_is_inside() -> None:
    text = Profile("f", 2, ROWS, step=5000.0).by_module()
    rows = [tuple(re.split(r"\s{2,}", line.strip())) for line in text.splitlines()[2:]]
    assert rows == [
        ("body", "5.000", "50.0"),
        ("body.conv1", "4.000", "40.0"),
        ("conv1_a", "2", "4.000", "40.0"),
        ("body_b", "2", "1.000", "10.0"),
        ("(no module)", "2.000", "20.0"),
        ("loss", "2", "2.000", "20.0"),
    ]


def test_what_streams_gain_is_less_than_nothing_idle() -> None:
    profile = Profile("f", 2, ROWS, step=3000.0)
    assert profile.idle == -500.0
    assert str(profile).splitlines()[-1].split() == [
        "gained",
        "by",
        "streams",
        "2",
        "-1.000",
        "-14.3",
        "-500.0",
    ]


def test_limits_are_measured_and_shares_are_of_the_nearer_one() -> None:
    limits = limits_of("cpu", 1)
    assert limits.origin == "measured"
    assert limits.flops > 1000  # a GFLOP/s
    assert limits.bytes > 100
    again = limits_of("cpu", 1)
    assert again.flops >= limits.flops and again.bytes >= limits.bytes
    assert limits_of("cuda", 1).origin == "estimated"
    assert DeviceLimits(100.0, 10.0, "").share(500, 20, 10.0) == 0.5
    assert DeviceLimits(100.0, 10.0, "").share(50, 20, 10.0) == 0.2


def test_a_trace_has_a_bar_per_launch_and_an_arrow_per_wait(tmp_path: Path) -> None:
    program = compiled()
    profile = program.profile(*batch(), repeats=1)
    profile.to_chrome_trace(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    bars = [e for e in events if e["ph"] == "X"]
    launches = [s for s in program.plan.steps if isinstance(s, Launch)]
    assert [(e["name"], e["tid"]) for e in bars] == [(s.kernel, s.stream) for s in launches]
    assert all(e["dur"] >= 0 and e["ts"] >= 0 for e in bars)
    begins, ends = ([e for e in events if e["ph"] == ph] for ph in "sf")
    assert [e["id"] for e in begins] == [e["id"] for e in ends]
    assert len(begins) >= sum(isinstance(s, Record) for s in program.plan.steps) // 2 > 0
    for begin, end in zip(begins, ends, strict=True):
        assert begin["tid"] != end["tid"]
        assert begin["ts"] <= end["ts"]
    tracks = [e["args"]["name"] for e in events if e["name"] == "thread_name"]
    assert tracks == ["stream 0", "stream 1"]
    with pytest.raises(GraphError) as error:
        profile.to_chrome_trace(tmp_path / "no" / "trace.json")
    place = tmp_path / "no" / "trace.json"
    assert str(error.value) == f"cannot write the trace to {place}: No such file or directory"


def test_a_trace_without_a_plan_is_empty(tmp_path: Path) -> None:
    Profile("f", 1, (), spans=(Span(0, 0.0, 1.0),)).to_chrome_trace(tmp_path / "t.json")
    assert json.loads((tmp_path / "t.json").read_text())["traceEvents"] == []


def test_graphc_profile_prints_what_was_called_when_the_process_ends() -> None:
    script = """
import numpy as np, graphc
used = graphc.compile(lambda x: graphc.exp(x), graphc.spec(4), device="cpu", streams=1)
other = graphc.compile(lambda x: graphc.sin(x), graphc.spec(4), device="cpu", streams=1)
print(used(np.zeros(4, "float32")).sum(), used(np.ones(4, "float32")).shape)
"""

    def said(value: str) -> str:
        environment = {**os.environ, "GRAPHC_PROFILE": value}
        command = [sys.executable, "-c", script]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        assert done.stdout == "4.0 (4,)\n"
        return done.stderr

    table = said("1")
    assert table.count("profile function") == 1
    assert "\nexp_kernel " in table
    assert said("") == ""
