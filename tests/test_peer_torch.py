"""PyTorch as a peer: what its variants set, and that a captured step begins where others begin."""

from __future__ import annotations

import contextlib
from importlib import import_module
from types import ModuleType
from typing import Any

import pytest

from benchmarks.measure import Case
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
