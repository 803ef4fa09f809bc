"""Programs whose kernels run again so that they take less memory: the same bits as without, for
several steps, running statistics, random numbers and moments included."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import graphc
from graphc import nn, optim
from graphc.ir import verify
from graphc.text import parse
from tests.tools import first_quick, need_command

BATCH, STEPS = 16, 3


class Images(nn.Module):
    """Residual blocks with batch norm and dropout."""

    def __init__(self) -> None:
        self.convolutions = [nn.Conv2d(c, 8, 3, padding=1) for c in (3, 8, 8, 8)]
        self.norms = [nn.BatchNorm2d(8) for _ in self.convolutions]
        self.drop, self.head = nn.Dropout(0.3), nn.Linear(8, 10)

    def forward(self, x: Any) -> Any:
        for n, (convolution, norm) in enumerate(zip(self.convolutions, self.norms, strict=True)):
            y = self.drop(graphc.relu(norm(convolution(x))))
            x = x + y if n else y
        return self.head(graphc.mean(x, axis=(2, 3)))


class Symbols(nn.Module):
    """Two LSTM layers between pointwise ones."""

    def __init__(self) -> None:
        self.first, self.lstm = nn.Linear(6, 12), nn.LSTM(12, 12, num_layers=2)
        self.middle, self.head = nn.Linear(12, 48), nn.Linear(48, 10)

    def forward(self, x: Any) -> Any:
        y, _ = self.lstm(graphc.tanh(self.first(x)))
        return self.head(graphc.gelu(self.middle(y)))[-1]


MODELS = {"images": (Images, (BATCH, 3, 12, 12)), "symbols": (Symbols, (9, BATCH, 6))}
RULES = {
    "images": lambda: optim.SGD(lr=0.1, momentum=0.9, weight_decay=0.01),
    "symbols": lambda: optim.Adam(lr=0.01, clip_grad_norm=1.0),
}


def loss_fn(model: Any, x: Any, y: Any) -> Any:
    return graphc.cross_entropy(model(x), y)


def compiled(name: str, device: str = "cpu", **options: Any) -> Any:
    graphc.seed(1)
    make, shape = MODELS[name]
    x, y = graphc.spec(shape), graphc.spec((BATCH,), "int32")
    options = {"update": RULES[name](), "seed": 5, "device": device, **options}
    return graphc.compile(loss_fn, make(), x, y, **options)


def played(program: Any, name: str) -> dict[str, Any]:
    """The losses of some steps, and all state behind them."""
    dice = np.random.RandomState(0)
    losses = {}
    for step in range(STEPS):
        x = dice.standard_normal(MODELS[name][1]).astype(np.float32)
        losses[f"loss {step}"] = program(x, dice.randint(0, 10, BATCH).astype(np.int32))
    return {**losses, **program.state_dict()}


def assert_same_bits(expected: dict[str, Any], found: dict[str, Any]) -> None:
    assert expected.keys() == found.keys()
    for name, array in expected.items():
        np.testing.assert_array_equal(array, found[name], err_msg=name)


@pytest.fixture(scope="module", params=MODELS)
def usual(request: pytest.FixtureRequest) -> tuple[str, Any, dict[str, Any]]:
    need_command("g++", "clang++")
    program = compiled(request.param, streams=1)
    return request.param, program.plan, played(program, request.param)


def launches_again(plan: Any) -> list[str]:
    return [n for n in plan.notes if n.startswith("memory: ") and " again before " in n]


@pytest.mark.parametrize("streams", [1, 3])
def test_lean_programs_give_the_same_bits(
    usual: tuple[str, Any, dict[str, Any]], streams: int
) -> None:
    name, plan, expected = usual
    lean = compiled(name, memory="lean", streams=streams, threads=2)
    assert lean.plan.streams == streams
    assert launches_again(lean.plan) and (streams > 1 or lean.plan.peak_bytes < plan.peak_bytes)
    assert_same_bits(expected, played(lean, name))


@pytest.mark.parametrize("share", first_quick(2, [0.95, 0.75, 0.85]))
def test_a_limit_is_kept_with_the_same_bits_or_refused(
    usual: tuple[str, Any, dict[str, Any]], share: float
) -> None:
    name, plan, expected = usual
    limit = int(share * plan.peak_bytes)
    try:
        program = compiled(name, memory=limit, streams=1)
    except graphc.RunError as error:
        assert name == "symbols" and share < 0.95, error
        return
    assert program.plan.peak_bytes <= limit
    assert_same_bits(expected, played(program, name))


def test_a_limit_below_all_that_is_possible_is_refused_with_what_is_held() -> None:
    with pytest.raises(graphc.RunError) as error:
        compiled("images", memory=50_000)
    first, second, *held = str(error.value).splitlines()
    assert first.startswith("loss_fn: the plan takes ") and first.endswith(
        " bytes of work memory, memory= or GRAPHC_MEMORY_LIMIT allows 50000; nothing has run, "
        "state is unchanged"
    )
    assert second.startswith("  at its peak, step ") and second.endswith("), it holds:")
    assert len(held) == 11 and all(" bytes  " in line for line in held)
    assert all("test_lean_programs.py:" in line for line in held[:10])


@pytest.fixture(scope="module")
def program() -> Any:
    """A lean one."""
    return compiled("images", memory="lean")


def test_a_lean_graph_is_a_stage_and_can_be_read_again(program: Any) -> None:
    assert program.stages["lean"] is program.graph
    verify(program.graph)
    assert parse(str(program.graph)) == program.graph
    again = [n for n in program.graph.nodes if n.outputs[0].name.endswith(".again")]
    assert {n.op.kernel for n in again if n.op.name == "kernel"} <= set(program.kernels)


def test_running_statistics_are_written_once(program: Any) -> None:
    updated = [new for _, new in program.graph.updates]
    assert len(set(updated)) == len(updated)
    assert not any(value.name.endswith(".again") for value in updated)
    assert any("norm" in line or "bn" in line for line in launches_again(program.plan))


@pytest.mark.parametrize("name", MODELS)
def test_lean_plans_for_a_gpu_are_made_anywhere(name: str) -> None:
    lean, plan = compiled(name, "cuda", memory="lean").plan, compiled(name, "cuda").plan
    assert lean.peak_bytes < plan.peak_bytes
