"""Random whole networks compute in graphc what they compute in PyTorch: see `tests/networks`."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from tests.networks.draw import draw
from tests.networks.network import KINDS, Head, Network, Step
from tests.networks.shrink import shrink
from tests.networks.truth import truth
from tests.networks.workers import Worker
from tests.networks.write import write
from tests.tools import need_command, need_module

SAMPLE = 60
MANY = 2000
SECONDS = 300.0
"""A network takes a few seconds, most of them the compiler's; what takes so long hangs."""

CONVOLUTION = Network(0, ((2, 3, 5, 5),), (Step("conv", (0,)),), (Head("square", 1),))


@pytest.fixture(scope="session")
def worker() -> Iterator[Worker]:
    need_module("torch")
    need_command("g++", "clang++")
    worker = Worker()
    yield worker
    worker.close()


def assert_agrees(worker: Worker, seed: int, devices: tuple[str, ...]) -> None:
    network = draw(seed)
    outcome = worker.check(network, devices, SECONDS)
    hint = f"python -m tests.networks {seed} --devices {','.join(devices)!r} --shrink"
    assert not outcome.failure, f"{outcome.failure}: {hint}\n{outcome.text}\n{write(network)}"


@pytest.mark.parametrize("seed", range(SAMPLE))
def test_a_random_network_computes_what_it_does_in_pytorch(seed: int, worker: Worker) -> None:
    device = "planned sim" if seed % 2 else "planned"
    assert_agrees(worker, seed, ({0: "cpu", 10: "large sim"}.get(seed % 20, device),))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(SAMPLE, SAMPLE + MANY))
def test_many_random_networks_compute_what_they_do_in_pytorch(seed: int, worker: Worker) -> None:
    played = {0: "sim", 4: "large sim"}.get(seed % 8, "planned sim")
    assert_agrees(worker, seed, (played, "cpu"))


def test_the_sample_has_most_kinds_of_steps_and_every_way_to_run_one() -> None:
    need_module("torch")
    networks = [draw(seed) for seed in range(SAMPLE)]
    drawn = {step.kind for network in networks for step in network.steps}
    assert len(drawn & set(KINDS)) > 0.8 * len(KINDS)
    assert {network.mode for network in networks} == {"forward", "gradient", "train"}
    assert {network.dtype for network in networks} == {"float32", "bfloat16"}
    assert any(step.shares is not None for network in networks for step in network.steps)
    assert any(network.frozen for network in networks)
    assert any(len(network.heads) > 2 for network in networks)


def test_a_worker_reports_a_network_that_takes_too_long_and_goes_on(worker: Worker) -> None:
    outcome = worker.check(CONVOLUTION, ("planned",), 0.001)
    assert outcome.failure == "hang" and "most recent call first" in outcome.text
    assert worker.check(CONVOLUTION, ("reference",), SECONDS).failure == ""


def test_a_worker_reports_an_error_by_its_place(worker: Worker) -> None:
    outcome = worker.check(CONVOLUTION, ("abacus",), SECONDS)
    assert outcome.failure.startswith("GraphError in ") and "abacus" in outcome.text


def test_a_result_that_is_off_or_missing_is_told() -> None:
    need_module("torch")
    expected = truth(write(CONVOLUTION))
    found = dict(expected.results)
    assert expected.differences(found) == []
    name = "d loss / d conv1.bias"
    found[name] = found[name] * (1 + 1e-4)
    del found["loss"]
    missing, off = expected.differences(found)
    assert missing == "loss is missing" and off.startswith(f"{name} of at most ")
    found[name] = np.full_like(found[name], np.nan)
    assert any(f"{name} of at most" in line for line in expected.differences(found))


def test_a_network_is_shrunk_to_the_step_that_fails() -> None:
    need_module("torch")
    network = next(n for n in map(draw, range(99)) if any(s.kind == "conv" for s in n.steps[2:]))

    def fails(simpler: Network) -> bool:
        return any(step.kind == "conv" for step in simpler.steps)

    found = shrink(network, fails)
    assert [(step.kind, sum(step.choices)) for step in found.steps] == [("conv", 0)]
    assert len(found.heads) == 1 and found.mode == "forward"
