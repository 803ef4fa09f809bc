"""The order of a pipeline's stages: every pass once, few activations, and no deadlock."""

from __future__ import annotations

import itertools

import pytest

from graphc.parallel.order import BACKWARD, FORWARD, Pass, alive, passes, steps

SIZES = list(itertools.product((1, 2, 3, 4, 5, 8), (1, 2, 3, 4, 8, 16)))


@pytest.mark.parametrize(("stages", "batches"), SIZES)
def test_every_pass_is_computed_once_and_few_are_alive(stages: int, batches: int) -> None:
    for stage in range(stages):
        order = passes(stage, stages, batches)
        assert sorted(order) == sorted(itertools.product((FORWARD, BACKWARD), range(batches)))
        live, most = set[int](), 0
        for direction, batch in order:
            if direction == FORWARD:
                live.add(batch)
            else:
                live.remove(batch)  # its forward pass came before
            most = max(most, len(live))
        assert most == alive(stage, stages, batches) <= stages - stage


@pytest.mark.parametrize("trains", [True, False])
@pytest.mark.parametrize(("stages", "batches"), SIZES)
def test_no_stage_waits_forever_though_each_send_waits_for_its_receiver(
    stages: int, batches: int, trains: bool
) -> None:
    assert played([[*steps(s, stages, batches, trains)] for s in range(stages)])


def test_sending_before_receiving_would_wait_forever() -> None:
    orders = [[*steps(s, 3, 4)] for s in range(3)]
    for order in orders:
        for n in range(len(order) - 1):
            if order[n].action == "receive" and order[n + 1].action == "send":
                order[n : n + 2] = order[n + 1], order[n]
    assert not played(orders)


def played(orders: list[list[Pass]]) -> bool:
    """Whether all stages reach their ends, where both ends of a message wait for each other."""
    at = [0] * len(orders)

    def current(stage: int) -> Pass | None:
        known = 0 <= stage < len(orders) and at[stage] < len(orders[stage])
        return orders[stage][at[stage]] if known else None

    moved = True
    while moved:
        moved = False
        for stage in range(len(orders)):
            step = current(stage)
            if step is None:
                continue
            if step.action == "compute":
                at[stage] += 1
                moved = True
            elif step.action == "send":
                peer = stage + (1 if step.direction == FORWARD else -1)
                if current(peer) == Pass("receive", step.direction, step.batch):
                    at[stage] += 1
                    at[peer] += 1
                    moved = True
    return all(at[s] == len(order) for s, order in enumerate(orders))
