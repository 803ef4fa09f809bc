"""Random graphs on every number of streams: the same bits as one stream, whatever overtakes what on
the CPU's threads and on the simulated GPU, a verifier that finds nothing, and no event too many."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from graphc.base.errors import PlanError
from graphc.ir import Graph
from graphc.ir.state import StateBuffer
from graphc.kernels.program.kernel import Kernel
from graphc.runtime.cpu.executable import CpuExecutable
from graphc.runtime.cuda.device import Device
from graphc.runtime.cuda.executable import CudaExecutable
from graphc.runtime.plan.plan import Plan, Record, Wait
from graphc.runtime.planner.planner import make_plan
from graphc.runtime.proof.verify import verify
from graphc.runtime.sim.queues import POLICIES
from tests.runtime.generic_kernels import GenericSimulator, cpu_functions, played_kernels
from tests.runtime.random_graphs import add_updates, random_graph, training_graph
from tests.tools import need_command

STREAMS = (1, 2, 3, 4, 5, 6, 7, 8)
BLOCK = 50
"""Graphs in one test."""
CALLS = 2


def a_graph(seed: int) -> tuple[Graph, dict[str, Kernel]]:
    dice = random.Random(seed)
    if seed % 5 == 4:
        wide, flops = dice.randint(1, 3), 10 ** dice.randint(4, 8)
        graph, kernels = training_graph(dice.randint(1, 6), 96, wide, flops)
    else:
        graph, kernels = random_graph(seed, dice.randint(2, 24))
        if seed % 5 == 3:
            graph, kernels = add_updates(graph, kernels)
    return graph, played_kernels(graph, kernels)


@pytest.mark.parametrize("seed", range(20))
def test_plans_have_the_bits_of_one_stream(seed: int) -> None:
    need_command("g++", "clang++")
    check_graph(seed)


@pytest.mark.slow
@pytest.mark.parametrize("block", range(10_000 // BLOCK))
def test_ten_thousand_graphs_have_the_bits_of_one_stream(block: int) -> None:
    need_command("g++", "clang++")
    for seed in range(100 + block * BLOCK, 100 + (block + 1) * BLOCK):
        check_graph(seed)


def check_graph(seed: int) -> None:
    graph, kernels = a_graph(seed)
    workers = random.Random(seed).randint(1, 8)
    expected: Any = None
    for streams in STREAMS:
        plan = make_plan(graph, kernels, device="cpu", streams=streams, workers=workers)
        plan.verify()
        check_events(plan)
        for load in (on_threads(graph, kernels), on_simulator(graph, kernels, seed, streams)):
            results = played(plan, load)
            expected = expected or results
            assert results == expected, f"seed {seed}, {streams} streams"


def check_events(plan: Plan) -> None:
    """Without any one wait, and without any one record and its waits, the plan is not valid."""
    for n, step in enumerate(plan.steps):
        if isinstance(step, Wait):
            check_invalid(plan, [s for i, s in enumerate(plan.steps) if i != n])
        if isinstance(step, Record):
            own = [s for s in plan.steps if getattr(s, "event", -1) != step.event]
            check_invalid(plan, own)


def check_invalid(plan: Plan, steps: list[Any]) -> None:
    with pytest.raises(PlanError):
        verify(replace(plan, steps=tuple(steps)))


Loaded = Callable[[Plan, Mapping[str, StateBuffer]], Any]


def on_threads(graph: Graph, kernels: Mapping[str, Kernel]) -> Loaded:
    functions = cpu_functions(graph, kernels)
    return lambda plan, state: CpuExecutable(plan, state, 3, functions)


def on_simulator(graph: Graph, kernels: Mapping[str, Kernel], seed: int, streams: int) -> Loaded:
    device = simulated(POLICIES[(seed + streams) % len(POLICIES)])
    device.driver.give(graph, kernels, seed)
    return lambda plan, state: CudaExecutable(plan, state, device, graph)


@cache
def simulated(policy: str) -> Device:
    return Device(GenericSimulator(policy=policy), f"sim {policy}", declares=True)


def played(plan: Plan, load: Loaded) -> list[bytes]:
    """Outputs and state of a few calls."""
    rng = np.random.default_rng(0)
    words = {
        b.value.name: rng.integers(0, 1 << 31, b.value.type.shape, np.uint32)
        for b in (*plan.inputs, *plan.state)
    }
    state = {b.value.name: StateBuffer(words[b.value.name].view(np.float32)) for b in plan.state}
    executable = load(plan, state)
    inputs = [words[b.value.name].view(np.float32) for b in plan.inputs]
    results = []
    for _ in range(CALLS):
        results += [array.tobytes() for array in executable.run(inputs)]
    for buffer in state.values():
        buffer.refresh_host()
        results.append(buffer.array.tobytes())
    return results
