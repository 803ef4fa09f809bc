"""How long kernels take beside each other, by the model."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from graphc.base.target import KINDS
from graphc.kernels.program.kernel import GridLaunch, Kernel
from graphc.runtime.planner.concurrency import (
    Demand,
    DeviceModel,
    OverlapSimulation,
    makespan,
    slowdown,
    spent,
)

FULL, HALF = Demand(100.0), Demand(100.0, 0.5)


def kernel(flops: int = 0, nbytes: int = 0, chunks: int = 1, **fields: object) -> Kernel:
    return Kernel("k", "pointwise", "", (chunks,), flops=flops, bytes=nbytes, **fields)  # type: ignore[arg-type]


def gpu_kernel(*grids: int, threads: int = 512, flops: int = 10**9) -> Kernel:
    launches = tuple(GridLaunch(f"k{n}", (g, 1, 1), (threads, 1, 1)) for n, g in enumerate(grids))
    return kernel(flops, launches=launches)


def test_two_kernels_that_each_fill_the_device_gain_nothing() -> None:
    assert slowdown([FULL, FULL]) == 2
    assert makespan([[], []], [0, 1], [FULL, FULL], 0.0) == 200
    assert makespan([[], [0]], [0, 0], [FULL, FULL], 0.0) == 200


def test_kernels_that_leave_room_to_each_other_take_as_long_as_alone() -> None:
    assert slowdown([HALF, HALF]) == 1
    assert makespan([[], []], [0, 1], [HALF, HALF], 0.0) == 100


def test_memory_is_shared_too() -> None:
    moving = Demand(100.0, 0.25, 0.75)
    assert slowdown([moving, moving]) == 1.5
    assert makespan([[], []], [0, 1], [moving, moving], 0.0) == 150


def test_a_kernel_runs_faster_when_the_other_has_ended() -> None:
    assert makespan([[], []], [0, 1], [FULL, Demand(50.0)], 0.0) == 150
    assert makespan([[], []], [0, 1], [Demand(100.0, 0.75), Demand(50.0, 0.75)], 0.0) == 125


def test_an_event_of_another_stream_takes_its_time() -> None:
    assert makespan([[], [0]], [0, 1], [FULL, FULL], 7.0) == 207


@pytest.mark.parametrize(
    ("chunks", "workers", "places", "parts"),
    [(1, 2, 0.5, 1), (2, 2, 1.0, 2), (3, 2, 0.75, 1.5), (8, 1, 1.0, 1), (6, 4, 0.75, 3)],
)
def test_chunks_fill_workers_but_for_the_last_round(
    chunks: int, workers: int, places: float, parts: float
) -> None:
    demand = DeviceModel("cpu", workers).kernel(kernel(10**8, chunks=chunks))
    assert demand.places == places
    rates = KINDS["cpu"].rates
    assert demand.microseconds == pytest.approx(rates.launch + 10**8 / rates.flops / parts)


@pytest.mark.parametrize(
    ("blocks", "threads", "places"),
    [(132, 512, 1.0), (66, 512, 0.5), (133, 512, 133 / 264), (132, 128, 0.25), (1320, 1024, 1.0)],
)
def test_blocks_fill_multiprocessors_but_for_the_last_round(
    blocks: int, threads: int, places: float
) -> None:
    demand = DeviceModel("cuda").kernel(gpu_kernel(blocks, threads=threads))
    assert demand.places == pytest.approx(places)
    rates = KINDS["cuda"].rates
    assert demand.microseconds == pytest.approx(rates.launch + 10**9 / rates.flops / places)


def test_each_launch_of_a_kernel_costs_one() -> None:
    one, two = (DeviceModel("cuda").kernel(gpu_kernel(*grids)) for grids in ((132,), (132, 1)))
    assert two.microseconds == pytest.approx(one.microseconds + KINDS["cuda"].rates.launch)


def test_two_cores_use_up_the_rate_of_memory() -> None:
    few, many = (
        DeviceModel("cpu", 8).kernel(kernel(nbytes=4 * 10**9, chunks=chunks)) for chunks in (1, 8)
    )
    rates = KINDS["cpu"].rates
    assert few.microseconds == pytest.approx(rates.launch + 4 * 10**9 / rates.bytes)
    assert many.microseconds == pytest.approx(rates.launch + 2 * 10**9 / rates.bytes)
    assert (few.places, few.memory) == pytest.approx((1 / 8, 0.5), rel=1e-3)
    assert (many.places, many.memory) == pytest.approx((1, 1), rel=1e-3)


def test_a_measured_time_takes_the_place_of_the_estimate() -> None:
    demand = DeviceModel("cpu", 2, {"k": 42.0}).kernel(kernel(10**8))
    assert (demand.microseconds, demand.places) == (42.0, 0.5)


@pytest.mark.parametrize("seed", range(20))
def test_time_is_that_of_many_small_steps(seed: int) -> None:
    dice = random.Random(seed)
    count, streams = 12, 3
    demands = [Demand(dice.uniform(1, 9), dice.random(), dice.random()) for _ in range(count)]
    stream = [dice.randrange(streams) for _ in range(count)]
    before = [sorted({dice.randrange(i) for _ in range(dice.randint(0, 2))} if i else ())
              for i in range(count)]  # fmt: skip
    for s in range(streams):
        for a, b in pairwise(i for i in range(count) if stream[i] == s):
            before[b] = sorted({*before[b], a})
    assert makespan(before, stream, demands, 0.5) == pytest.approx(
        stepped(before, stream, demands, 0.5), rel=0.01
    )


def stepped(
    before: list[list[int]], stream: list[int], demands: list[Demand], event: float
) -> float:
    now, step = 0.0, 4e-3
    left = [d.microseconds + event * any(stream[j] != stream[i] for j in before[i])
            for i, d in enumerate(demands)]  # fmt: skip
    while max(left) > 0:
        ended = [rest <= 0 for rest in left]
        ready = [all(ended[j] for j in earlier) for earlier in before]
        runs = [i for i in range(len(left)) if ready[i] and not ended[i]]
        slow = max(1, sum(demands[i].places for i in runs), sum(demands[i].memory for i in runs))
        for i in runs:
            left[i] -= step / slow
        now += step
    return now


@pytest.mark.parametrize("seed", range(10))
def test_time_spent_is_that_of_the_clock(seed: int) -> None:
    dice = random.Random(seed)
    demands = [Demand(dice.uniform(1, 9), dice.random(), dice.random()) for _ in range(5)]
    clock = OverlapSimulation(demands)
    for i in range(5):
        clock.start(i)
    shortest = min(d.microseconds for d in demands)
    clock.advance()
    assert spent([(d.microseconds, d) for d in demands], shortest) == pytest.approx(clock.now)
    while clock.left:
        clock.advance()
    assert spent([(d.microseconds, d) for d in demands]) == pytest.approx(clock.now)
