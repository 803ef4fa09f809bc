"""Recurrent networks as whole programs: launches per step, bytes, streams, threads, size."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import graphc
from graphc import nn, optim
from graphc.ir.interpret import evaluate
from graphc.runtime.plan.plan import Copy, Launch, Loop, Plan
from tests.before_passes import compile_before_passes
from tests.kernels.cuda_harness import build_device
from tests.nn.running import random
from tests.tools import first_quick, need_command

STEPS, BATCH, FEATURES, HIDDEN = 6, 32, 8, 16


class Peephole(nn.Module):
    """An LSTM whose gates look at the cell (Gers, Schraudolph and Schmidhuber, 2002), by hand."""

    def __init__(self) -> None:
        self.of_x = nn.Linear(FEATURES, 4 * HIDDEN)
        self.of_h = nn.Linear(HIDDEN, 4 * HIDDEN, bias=False)
        draw = np.random.default_rng(0).standard_normal
        self.peeps = [nn.Parameter(draw(HIDDEN).astype(np.float32)) for _ in range(3)]

    def forward(self, x: graphc.Tensor) -> tuple[graphc.Tensor, Any]:
        def step(state: Any, element: Any) -> Any:
            h, c = state
            z = self.of_x(element) + self.of_h(h)
            i, f, g, o = (z[:, n * HIDDEN : (n + 1) * HIDDEN] for n in range(4))
            i, f = graphc.sigmoid(i + self.peeps[0] * c), graphc.sigmoid(f + self.peeps[1] * c)
            c = f * c + i * graphc.tanh(g)
            h = graphc.sigmoid(o + self.peeps[2] * c) * graphc.tanh(c)
            return (h, c), h

        zeros = graphc.zeros((x.shape[1], HIDDEN))
        last, y = graphc.scan(step, (zeros, zeros), x)
        return y, last


class Sequence(nn.Module):
    def __init__(self, layers: Any) -> None:
        self.layers, self.head = layers, nn.Linear(HIDDEN, 1)

    def forward(self, x: graphc.Tensor) -> graphc.Tensor:
        return self.head(self.layers(x)[0])


def loss_fn(model: Any, x: graphc.Tensor, y: graphc.Tensor) -> graphc.Tensor:
    return graphc.mse_loss(model(x), y)


MAKE = {
    "lstm": lambda: nn.LSTM(FEATURES, HIDDEN),
    "gru": lambda: nn.GRU(FEATURES, HIDDEN),
    "peephole": Peephole,
}


def training(
    name: str,
    steps: int = STEPS,
    layers: Any = None,
    compile: Callable[..., Any] = graphc.compile,
    **options: Any,
) -> Any:
    graphc.seed(3)
    model = Sequence(MAKE[name]() if layers is None else layers)
    specs = graphc.spec((steps, BATCH, FEATURES)), graphc.spec((steps, BATCH, 1))
    return compile(loss_fn, model, *specs, update=optim.Adam(lr=0.01), **options)


def loops(plan: Plan) -> list[Loop]:
    return [step for step in plan.steps if isinstance(step, Loop)]


@pytest.mark.parametrize("device", ["cpu", "sim"])
@pytest.mark.parametrize("name", MAKE)
def test_a_step_is_one_kernel_forward_and_two_backward(
    name: str, device: str, unbuilt: None
) -> None:
    need_command("g++", "clang++")
    plan = training(name, device=device).plan
    forward, backward = (kernels_of(plan, loop) for loop in loops(plan))
    assert [kernel.template for kernel in forward] == ["contract"]
    assert "contract" in [kernel.template for kernel in backward]
    assert len(backward) == 2


def kernels_of(plan: Plan, loop: Loop) -> list[Any]:
    assert not any(isinstance(step, Copy) for step in loop.steps)
    return [plan.kernels[step.kernel] for step in loop.steps if isinstance(step, Launch)]


def test_a_body_may_hold_a_literal_that_lies_in_memory() -> None:
    need_command("g++", "clang++")
    table = random(16, HIDDEN)

    def fn(x: Any) -> Any:
        # Read outside as well, it lies in memory once.
        start = x[0] * table
        return graphc.scan(lambda c, e: (graphc.tanh(c + e * table), c * table), start, x)

    x = random(STEPS, 16, HIDDEN)
    program = graphc.compile(fn, graphc.spec(x.shape), device="cpu")
    got, (expected, _) = program(x), evaluate(program.stages["trace"], [x])
    for a, b in zip(got, expected, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)


def test_lanes_follow_what_drops_an_axis_of_one() -> None:
    need_command("g++", "clang++")

    def fn(x: Any) -> Any:
        step = lambda c, e: (graphc.tanh(c + e), c)  # noqa: E731
        last, y = graphc.scan(step, x[0], x)
        flat = graphc.tanh(graphc.reshape(graphc.tanh(last), (16, HIDDEN))) * 2
        return flat, graphc.exp(graphc.reshape(y, (STEPS, 16, HIDDEN)))

    x = random(STEPS, 16, 1, HIDDEN)
    program = graphc.compile(fn, graphc.spec(x.shape), device="cpu")
    got, (expected, _) = program(x), evaluate(program.stages["trace"], [x])
    for a, b in zip(got, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5)


class Offset(nn.Module):
    """A parameter with the extents of a batch of states, and a scalar."""

    def __init__(self) -> None:
        self.start = nn.Parameter(random(BATCH, HIDDEN))
        self.scale = nn.Parameter(np.float32(0.5))

    def forward(self, x: graphc.Tensor) -> graphc.Tensor:
        step = lambda c, e: (graphc.tanh(c + e * self.scale), None)  # noqa: E731
        return graphc.scan(step, self.start, x)[0]


def test_a_parameter_with_lanes_is_updated_beside_scalars() -> None:
    need_command("g++", "clang++")
    x, y = random(STEPS, BATCH, HIDDEN), random(BATCH, HIDDEN, seed=1)
    states = []
    for compile in (partial(graphc.compile, device="cpu"), compile_before_passes):
        specs = graphc.spec(x.shape), graphc.spec(y.shape)
        step = compile(loss_fn, Offset(), *specs, update=optim.SGD(lr=0.1))
        step(x, y)
        states.append(step.state_dict())
    for name, array in states[1].items():
        np.testing.assert_allclose(states[0][name], array, atol=1e-6, err_msg=name)


@pytest.mark.parametrize("name", ["lstm", "gru", "peephole"])
def test_no_gate_is_copied(name: str, unbuilt: None) -> None:
    """A step touches the pre-activations and the stored gates forward; backward the stored gates,
    and their gradients once to write and once to read (a GRU has two kinds of gradients, and reads
    the pre-activations and one of the stored gates again); besides these a few states, and
    nothing else."""
    plan = training(name, device="cpu").plan
    state = 4 * BATCH * HIDDEN
    gates = (3 if name == "gru" else 4) * state
    most = {"forward": 2 * gates + 5 * state, "backward": 3 * gates + 8 * state}
    most["backward"] += {"lstm": 0, "gru": 3 * gates, "peephole": state}[name]
    for (kind, bound), loop in zip(most.items(), loops(plan), strict=True):
        touched = sum(
            place.stop - place.start
            for step in loop.steps
            if isinstance(step, Launch)
            for place in (*step.reads, *step.writes)
            if place.segment == "work"
        )
        assert touched <= bound, (kind, touched, bound)


def test_the_program_is_as_large_for_a_thousand_steps(unbuilt: None) -> None:
    short, long = (training("lstm", steps=steps, device="cpu").plan for steps in (8, 1000))
    assert len(short.steps) == len(long.steps)
    assert len(str(long)) < 1.1 * len(str(short))


@pytest.mark.parametrize("kind", first_quick(1, ["LSTM", "GRU"]))
def test_bits_are_the_same_for_every_stream_and_thread_count(kind: str) -> None:
    need_command("g++", "clang++")
    x, y = random(STEPS, BATCH, FEATURES), random(STEPS, BATCH, 1, seed=1)
    seen = set()
    for streams, threads in ((1, 1), (1, 2), (2, 1), (2, 2), (3, 2), (8, 3)):
        graphc.seed(5)
        layers = getattr(nn, kind)(FEATURES, HIDDEN // 2, num_layers=2, bidirectional=True)
        step = training("lstm", layers=layers, device="cpu", streams=streams, threads=threads)
        losses = [step(x, y) for _ in range(3)]
        state = step.state_dict()
        seen.add((*map(bytes, losses), *(state[name].tobytes() for name in sorted(state))))
    assert len(seen) == 1


@pytest.mark.parametrize("name", MAKE)
def test_training_on_the_simulated_gpu_is_what_the_trace_means(name: str) -> None:
    need_command("g++", "clang++")
    x, y = random(STEPS, BATCH, FEATURES), random(STEPS, BATCH, 1, seed=1)
    simulated = training(name, device="sim")
    reference = training(name, compile=compile_before_passes)
    for _ in range(3):
        np.testing.assert_allclose(simulated(x, y), reference(x, y), rtol=2e-5)
    expected = reference.state_dict()
    for key, array in simulated.state_dict().items():
        np.testing.assert_allclose(array, expected[key], atol=2e-5, err_msg=key)


@pytest.mark.parametrize("arch", first_quick(1, ["sm_90a", "sm_80"]))
def test_nvcc_takes_the_kernels_of_the_loops_and_spills_nothing(arch: str, tmp_path: Any) -> None:
    compiler = need_command("nvcc")
    plans = [training(name, device="cuda").plan for name in MAKE]
    kernels = [k for plan in plans for loop in loops(plan) for k in kernels_of(plan, loop)]
    # Kernels of different programs may have one name.
    usages = [
        build_device([kernel], _made(tmp_path / str(number)), compiler, arch)
        for number, kernel in enumerate(kernels)
    ]
    assert len(kernels) == 9
    assert not [s for usage in usages for s, used in usage.items() if used.spilled]


def _made(folder: Any) -> Any:
    folder.mkdir()
    return folder


def test_a_stack_may_be_reshaped_across_its_batch() -> None:
    """The sums of the rows are again a row: the batch's place from the end differs before and
    after the reduction of one kernel."""
    need_command("g++", "clang++")

    def loss(x: Any, w: Any, b: Any) -> Any:
        def step(h: Any, element: Any) -> Any:
            h = graphc.tanh(h @ w + element)
            return h, h

        _, y = graphc.scan(step, graphc.zeros(x.shape[1:]), x)
        rows = graphc.sum(graphc.reshape(y, (-1, 8)) @ b, axis=1)
        return graphc.sum(graphc.square(graphc.reshape(rows, (1, -1)) + 1.0))

    arrays = random(4, 32, 8), random(8, 8), random(8, 5)
    specs = [graphc.spec(a.shape) for a in arrays]
    gradient = graphc.grad(loss, argnums=(0, 1, 2))
    program = graphc.compile(gradient, *specs, device="cpu")
    want, _ = evaluate(program.stages["trace"], arrays)
    for a, b in zip(program(*arrays), want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4 * np.abs(b).max())
