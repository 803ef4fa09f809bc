"""`streams="auto"`: what is measured, and what is chosen by it. The clock is a fake one."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pytest

import graphc
from graphc import nn, optim
from graphc.base.errors import RunError
from graphc.ir import Type, Value
from graphc.ir.state import StateBuffer
from graphc.runtime.compilers import cache
from graphc.runtime.plan.plan import Plan
from graphc.runtime.planner.planner import make_plan
from graphc.runtime.tuning.stream_autotuner import SECONDS, choose_plan, compare, decide, ratio
from graphc.runtime.tuning.timing import Timing
from tests.runtime.random_graphs import independent


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPHC_CACHE_DIR", str(tmp_path))


@dataclass
class Machine:
    """A device whose plan of n streams takes `times[n]` seconds, on its own clock, times a factor
    of up to 1 + `noise`; its kernels take `kernel` microseconds."""

    times: Mapping[int, float]
    noise: float = 0.0
    kernel: float = 50.0
    wide: int = 500
    now: float = 0.0
    dice: random.Random = field(default_factory=lambda: random.Random(0))
    played: list[int] = field(default_factory=list)
    planned: list[tuple[int, Mapping[str, float]]] = field(default_factory=list)
    states: list[Mapping[str, StateBuffer]] = field(default_factory=list)

    def clock(self) -> float:
        return self.now

    def plan_for(self, streams: int, measured: Mapping[str, float]) -> Plan:
        self.planned.append((streams, measured))
        graph = independent(chunks=1, wide=self.wide)
        return make_plan(*graph, device="cpu", streams=streams, workers=2, measured=measured)

    def load(self, plan: Plan, state: Mapping[str, StateBuffer]) -> Loaded:
        self.states.append(state)
        return Loaded(self, plan)

    def choose(self, machine: str | None = "one", limit: int | None = None) -> Plan:
        return choose_plan(self.plan_for, self.load, machine, limit, self.clock)


@dataclass
class Loaded:
    machine: Machine
    plan: Plan

    def run(self, inputs: Sequence[Any]) -> list[Any]:
        machine = self.machine
        machine.played.append(self.plan.streams)
        factor = 1 + machine.dice.random() * machine.noise
        machine.now += machine.times[self.plan.streams] * factor
        return []

    def profile(self, inputs: Sequence[Any], repeats: int) -> list[Timing]:
        self.machine.now += (1 + repeats) * self.machine.times[1]
        each = self.machine.kernel
        return [Timing(0, k, repeats, repeats * each, each, each) for k in self.plan.kernels]


def chosen(plan: Plan) -> str:
    (line,) = (note for note in plan.notes if note.startswith("streams: auto"))
    assert line in str(plan)
    return line.removeprefix("streams: auto chose ")


def test_two_streams_that_are_faster_are_chosen_with_their_price() -> None:
    machine = Machine({1: 1e-3, 2: 0.8e-3})
    plan = machine.choose()
    price = plan.peak_bytes - machine.plan_for(1, {}).peak_bytes
    assert plan.streams == 2 and price > 0
    assert chosen(plan) == (
        f"2: faster by more than the noise, for {price:,} more bytes of work memory"
    )
    figures = plan.text(measured=True)
    assert "measured streams: 1: 1000 us, " in figures
    assert "2: 800 us (0.800 of 1 stream), " in figures and "noise 0.0% in " in figures
    assert "measured streams" not in str(plan)


def test_two_streams_that_are_hardly_faster_are_not() -> None:
    plan = Machine({1: 1e-3, 2: 0.992e-3}).choose()
    assert plan.streams == 1
    assert chosen(plan) == "1: 2 were not faster by more than the noise"


def test_what_the_noise_hides_is_not_chosen() -> None:
    assert Machine({1: 1e-3, 2: 0.95e-3}).choose("quiet").streams == 2
    plan = Machine({1: 50e-3, 2: 47e-3}, noise=1.5).choose("noisy")
    assert plan.streams == 1


@pytest.mark.parametrize("seed", range(40))
def test_the_choice_is_never_slower_than_one_stream_by_more_than_the_bound(seed: int) -> None:
    dice = random.Random(seed)
    times = {1: 1e-3, 2: 1e-3 * dice.uniform(0.9, 1.1)}
    noise = dice.choice([0, 0.02, 0.1, 0.5])
    machine = Machine(times, noise, dice=dice)
    plan = machine.choose(f"machine {seed}")
    assert times[plan.streams] <= times[1] * (1 + max(0.01, noise))


def test_nothing_is_measured_where_the_estimate_shows_no_gain() -> None:
    machine = Machine({1: 1e-3})
    graph = independent(chunks=2)  # each fills both workers
    plan = choose_plan(
        lambda n, measured: make_plan(*graph, device="cpu", streams=n, workers=2),
        machine.load, "one", None, machine.clock,
    )  # fmt: skip
    assert chosen(plan) == "1: more gain nothing by the estimate"
    assert not machine.states


def test_times_of_kernels_may_show_that_there_is_no_gain() -> None:
    machine = Machine({1: 1e-3}, kernel=0.1)
    assert chosen(machine.choose()) == (
        "1: 2 gain nothing by the times of kernels, 4 gain nothing by the times of kernels"
    )
    assert set(machine.played) == {1}


def test_plans_are_arranged_by_the_times_that_were_measured() -> None:
    machine = Machine({1: 1e-3, 2: 0.8e-3}, kernel=77.0)
    machine.choose()
    assert machine.planned[0] == (1, {})
    assert {n for n, _ in machine.planned[1:]} == {2, 4}
    assert all(set(times.values()) == {77.0} for _, times in machine.planned[1:])


def test_what_takes_more_memory_than_allowed_is_not_measured() -> None:
    machine = Machine({1: 1e-3, 2: 0.8e-3})
    most, one = machine.plan_for(2, {}).peak_bytes, machine.plan_for(1, {}).peak_bytes
    assert most > one
    plan = machine.choose(limit=most - 1)
    assert chosen(plan) == (
        f"1: 2 take {most} bytes of the {most - 1} allowed, 4 take {most} bytes of the {most - 1} allowed"  # noqa: E501
    )
    assert machine.choose(limit=most).streams == 2
    plan = machine.choose(limit=one - 1)
    assert chosen(plan) == "1: one takes more memory than is allowed"


def test_more_than_five_per_cent_of_memory_is_too_high_a_price() -> None:
    machine = Machine({1: 1e-3, 2: 0.5e-3}, wide=0)
    one, two = (machine.plan_for(n, {}).peak_bytes for n in (1, 2))
    price = f"{two / one - 1:.1%} more work memory"
    assert chosen(machine.choose()) == f"1: 2 take {price}, 4 take {price}"
    assert set(machine.played) == {1}


def test_a_device_that_is_not_here_is_not_measured() -> None:
    machine = Machine({1: 1e-3})
    assert chosen(machine.choose(None)) == "1: there is no such device here to be measured"
    assert not machine.states


def test_a_device_that_fails_gets_one_stream() -> None:
    machine = Machine({1: 1e-3})

    def load(plan: Plan, state: Mapping[str, StateBuffer]) -> Loaded:
        raise RunError("out of memory")

    plan = choose_plan(machine.plan_for, load, "one", None, machine.clock)
    assert chosen(plan) == "1: the device could not be measured"


def test_the_choice_is_remembered_for_the_machine_and_the_plan() -> None:
    first, again, other = (Machine({1: 1e-3, 2: 0.8e-3}) for _ in range(3))
    plan = first.choose("a")
    assert again.choose("a") == plan and again.choose("a").notes == plan.notes
    assert not again.played
    other.choose("b")
    assert other.played
    limited = Machine({1: 1e-3, 2: 0.8e-3})
    limited.choose("a", 1 << 30)
    assert limited.played


def test_a_damaged_memory_is_measured_again(tmp_path: Path) -> None:
    Machine({1: 1e-3, 2: 0.8e-3}).choose()
    (file,) = (tmp_path / "choices").iterdir()
    assert file.suffix == ".choice" and file.stat().st_mode & 0o777 == 0o600
    file.write_bytes(file.read_bytes()[:-1])
    machine = Machine({1: 1e-3, 2: 0.8e-3})
    assert machine.choose().streams == 2 and machine.played
    assert [entry.files for entry in cache.entries()] == [1]
    assert cache.clear() == []


@pytest.mark.parametrize("call", [1e-5, 1e-3, 2e-2, 5e-2, 0.1, 10.0])
def test_all_calls_take_at_most_a_second(call: float) -> None:
    machine = Machine({1: call, 2: call * 1.3, 4: call * 1.3})
    plan = machine.choose()
    if call <= 5e-2:
        assert machine.now <= SECONDS
    else:  # the first call tells, and a second one that it was not only the first
        assert machine.played == [1, 1]
        assert chosen(plan) == "1: a call takes too long to be measured within 1 s"


def test_calls_that_turn_out_too_long_are_given_up() -> None:
    machine = Machine({1: 0.05, 2: 0.9, 4: 0.9})
    assert chosen(machine.choose()) == "1: calls take too long to be measured within 1 s"


def test_streams_take_turns_forth_and_back() -> None:
    order: list[int] = []
    calls = {n: lambda n=n: order.append(n) for n in (1, 2, 4)}  # type: ignore[misc]
    ticks = iter(range(100_000))
    samples = compare(calls[1], {2: calls[2], 4: calls[4]}, 60, lambda: next(ticks))
    assert order[:8] == [1, 2, 4, 1, 1, 4, 2, 1]
    assert {len(s) for s in samples.values()} == {len(order) // 4}


def test_the_noise_is_what_two_halves_of_one_plan_differ_by() -> None:
    ones = [1.0] * 20
    assert decide({1: ones, 0: [1.04] * 20, 2: [0.99] * 20}) == (1, pytest.approx(0.04))
    assert decide({1: ones, 0: ones, 2: [0.99] * 20})[0] == 1
    assert decide({1: ones, 0: ones, 2: [0.98] * 20})[0] == 2


def test_the_fewest_streams_that_are_as_good_as_the_best_are_chosen() -> None:
    ones = [1.0] * 20
    assert decide({1: ones, 0: ones, 2: [0.8] * 20, 4: [0.8] * 20})[0] == 2
    assert decide({1: ones, 0: ones, 2: [0.8] * 20, 4: [0.7] * 20})[0] == 4
    assert decide({1: ones, 0: [1.02] * 20, 2: [0.8] * 20, 4: [0.79] * 20})[0] == 2


def test_a_machine_that_slows_down_on_the_way_does_not_matter() -> None:
    drift = [1.0 + n / 10 for n in range(20)]
    samples = {1: drift, 0: drift, 2: [0.8 * t for t in drift]}
    assert ratio(samples, 2) == pytest.approx(0.8)
    assert decide(samples) == (2, pytest.approx(0))
    assert median(samples[2]) > min(samples[1])


def test_state_and_inputs_are_scratch() -> None:
    machine = Machine({1: 1e-3, 2: 0.8e-3})
    state = Type((3,), "f32"), Type((), "i64"), Type((2,), "bf16")

    def plan_for(streams: int, measured: Mapping[str, float]) -> Plan:
        plan = machine.plan_for(streams, measured)
        values = [Value(str(n), type) for n, type in enumerate(state)]
        return replace(plan, state=tuple(replace(plan.inputs[0], value=v) for v in values))

    choose_plan(plan_for, machine.load, "one", None, machine.clock)
    scratch = machine.states[0]
    assert tuple(scratch[name].type for name in "012") == state
    assert np.isfinite(scratch["0"].array).all() and scratch["0"].array.any()
    assert scratch["1"].array == 0


class Branches(nn.Module):
    def __init__(self) -> None:
        self.layers = [nn.Linear(96, 96) for _ in range(4)]

    def forward(self, x: Any) -> Any:
        return sum(graphc.tanh(layer(x)) for layer in self.layers)


def test_compiling_with_auto_leaves_the_state_alone_and_changes_no_bit() -> None:
    def loss(model: Branches, x: Any) -> Any:
        return graphc.mean(graphc.square(model(x)))

    x = np.linspace(-1, 1, 96, dtype=np.float32)[None]
    results = []
    for streams in (1, "auto", 2):
        graphc.seed(0)
        model = Branches()
        before = {n: v.copy() for n, v in model.state_dict().items()}
        options: dict[str, Any] = {"device": "cpu", "threads": 2, "streams": streams}
        step = graphc.compile(loss, model, graphc.spec((1, 96)), update=optim.SGD(0.1), **options)
        for name, value in model.state_dict().items():
            np.testing.assert_array_equal(value, before[name])
        assert ("streams: auto chose" in str(step.plan)) == (streams == "auto")
        step(x)
        results.append({n: v.tobytes() for n, v in model.state_dict().items()})
    assert results[0] == results[1] == results[2]


def test_auto_is_what_a_program_gets_that_says_nothing(
    clean_environment: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    clean_environment.setenv("GRAPHC_CACHE_DIR", str(tmp_path))
    program = graphc.compile(lambda x: x + 1, graphc.spec((4,)), device="cpu")
    assert chosen(program.plan) == "1: more gain nothing by the estimate"
