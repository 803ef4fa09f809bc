"""PyTorch as a peer: what its variants set, and that a captured step begins where others begin."""

from __future__ import annotations

import contextlib
from importlib import import_module
from types import ModuleType
from typing import Any

import pytest

from benchmarks.measure import Case, GpuStep
from benchmarks.workloads import find
from tests.tools import need_module


@pytest.fixture
def peer() -> ModuleType:
    need_module("torch")
    return import_module("benchmarks.peer_torch")


def case(variant: str, workload: str = "mlp-4x256-b16", mode: str = "train") -> Case:
    return Case(find(workload), mode, 1, variant, "cpu")


def test_a_captured_step_needs_a_gpu(peer):
    with pytest.raises(SystemExit) as caught:
        peer.prepare(case("graphs"))
    assert str(caught.value) == "graphs: CUDA graphs need a GPU, got device 'cpu'"


@pytest.mark.parametrize(("variant", "rounded"), [("eager", False), ("eager_tf32", True)])
def test_tf32_is_said_in_either_case(peer, variant: str, rounded: bool):
    torch = peer.torch
    before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    try:
        peer.prepare(case(variant, mode="forward"))
        assert torch.backends.cuda.matmul.allow_tf32 is rounded
        assert torch.backends.cudnn.allow_tf32 is rounded
    finally:
        torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before


@pytest.mark.parametrize("workload", ["mlp-4x256-b16", "lstm-h64-b256"])
def test_a_captured_step_gives_the_losses_of_an_eager_one(peer, monkeypatch, workload: str):
    """With a stand-in for graphs that computes when it is launched: SGD's momentum and Adam's
    moments and step count begin anew after the steps before the capture."""
    calls: list[tuple[Any, ...]] = []
    captured = peer._captured

    def recorded(case: Case, compute: Any, *rest: Any) -> Any:
        def noted(*inputs: Any) -> Any:
            result = compute(*inputs).detach()
            calls.append((compute, inputs, result))
            return result

        return captured(case, noted, *rest)

    class Graph:
        def replay(self) -> None:
            compute, inputs, result = calls[-1]
            result.copy_(compute(*inputs).detach())

    class Stream:
        def wait_stream(self, other: Any) -> None:
            pass

    monkeypatch.setattr(peer, "_captured", recorded)
    for name, stand_in in (
        ("CUDAGraph", Graph),
        ("graph", lambda graph: contextlib.nullcontext()),
        ("Stream", Stream),
        ("current_stream", Stream),
        ("stream", lambda stream: contextlib.nullcontext()),
    ):
        monkeypatch.setattr(peer.torch.cuda, name, stand_in)
    monkeypatch.setattr(peer, "needs_gpu", lambda case: None)
    steps = [peer.prepare(case(variant, workload)) for variant in ("eager_fused", "graphs")]
    eager, graphs = ([float(step()) for _ in range(4)] for step in steps)
    assert len(calls) == peer.WARM_STEPS + 1
    assert graphs == pytest.approx(eager, rel=1e-5)
    assert len(set(eager)) == 4


@pytest.mark.parametrize("workload", ["lstm-h64-b256", "gru-h64-b256"])
def test_cells_one_after_another_give_what_the_layer_does(peer, workload: str):
    steps = [peer.prepare(case(variant, workload)) for variant in ("eager_fused", "cells")]
    layer, cells = ([float(step()) for _ in range(3)] for step in steps)
    assert cells == pytest.approx(layer, rel=1e-5)


def test_a_gpu_is_asked_what_steps_take_alone(peer, monkeypatch):
    """By events around steps that take 7 us each."""
    steps: list[int] = []

    class Event:
        def __init__(self, enable_timing: bool) -> None:
            assert enable_timing

        def record(self) -> None:
            self.now = len(steps)

        def elapsed_time(self, later: Any) -> float:
            return 7e-3 * (later.now - self.now)

    monkeypatch.setattr(peer.torch.cuda, "Event", Event)
    monkeypatch.setattr(peer.torch.cuda, "synchronize", lambda: None)
    on_gpu = Case(find("mlp-4x256-b16"), "train", 1, "graphs", "cuda")
    timed = peer._timed(on_gpu, lambda: 3.5, lambda: steps.append(1))
    assert isinstance(timed, GpuStep) and timed() == 3.5
    assert timed.alone(4, 3) == pytest.approx([7.0] * 3)
    assert len(steps) == 1 + 4 * 3
    assert peer._timed(case("eager"), timed.step, timed.step) is timed.step
