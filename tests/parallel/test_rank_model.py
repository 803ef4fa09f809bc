"""The model of many ranks plays plans as they are."""

from __future__ import annotations

from typing import Any

import pytest

import graphc
from benchmarks.rank_model import Imagined, Network, message_bytes, predicted
from graphc import nn, optim
from graphc.runtime.plan.plan import Launch

FREE = Network("free", 0.0, 0.0, 1e30)


@pytest.fixture(scope="module")
def plan() -> Any:
    """The plan of three layers, each of whose gradients is a bucket."""
    return planned()


def planned(sharded: bool = False) -> Any:
    class Small(Imagined):
        def bucket_bytes(self) -> int:
            return 1

    parallel = Small()
    parallel.shard_optimizer_state = sharded
    model = nn.Sequential(*(nn.Linear(8, 8, bias=False) for _ in range(3)))
    return graphc.compile(
        lambda m, x: graphc.mean(m(x) ** 2),
        model,
        graphc.spec((4, 8)),
        update=optim.SGD(lr=0.1),
        parallel=parallel,
    ).plan


def seconds(plan: Any) -> dict[int, float]:
    return {n: 1.0 for n, step in enumerate(plan.steps) if isinstance(step, Launch)}


def kernels(plan: Any) -> int:
    return sum(message_bytes(plan, n) is None for n in seconds(plan))


def test_without_a_network_a_step_takes_what_its_kernels_take(plan: Any) -> None:
    assert predicted(plan, seconds(plan), 2, FREE) == kernels(plan)
    slow = Network("slow", 1e9, 1e9, 1.0)
    assert predicted(plan, seconds(plan), 1, slow) == kernels(plan)


def test_messages_of_the_backward_pass_are_hidden_and_the_last_is_not(plan: Any) -> None:
    latency = Network("latency", 0.25, 0.0, 1e30)  # half a second per message
    found = predicted(plan, seconds(plan), 2, latency)
    assert kernels(plan) <= found <= kernels(plan) + 1.0


def test_a_slow_network_takes_the_time_of_all_messages(plan: Any) -> None:
    sent = [size for n in seconds(plan) if (size := message_bytes(plan, n)) is not None]
    assert len(sent) == 4  # three gradients and the loss
    slow = Network("slow", 0.0, 0.0, 1.0)
    assert predicted(plan, seconds(plan), 2, slow) >= sum(sent)


def test_the_time_of_a_sum_grows_with_the_ranks() -> None:
    network = Network("some", 1e-5, 1e-6, 1e9)
    times = [network.sum_seconds(1 << 20, n) for n in (1, 2, 3, 100, 4096)]
    assert times[0] == 0.0
    assert times == sorted(times)
    assert times[1] == pytest.approx(2 * (1e-5 + 1e-6 + (1 << 19) / 1e9))


def test_sums_and_slices_of_sharded_state_take_as_long_as_sums(plan: Any) -> None:
    sharded, network = planned(sharded=True), Network("some", 100.0, 1.0, 1.0)
    none = [dict.fromkeys(range(len(p.steps)), 0.0) for p in (plan, sharded)]
    times = [predicted(p, s, 2, network) for p, s in zip((plan, sharded), none, strict=True)]
    assert times[0] == times[1]
