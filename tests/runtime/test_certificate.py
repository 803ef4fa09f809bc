"""What a plan's certificate counts, and what may follow what."""

from __future__ import annotations

import pytest

from graphc.base.errors import PlanError
from graphc.ir import Graph, Type, Value
from graphc.runtime.plan.plan import Binding, Wait
from graphc.runtime.planner.planner import make_plan
from graphc.runtime.proof.verify import verify, verify_sequence
from tests.runtime.random_graphs import (
    training_graph,
)
from tests.support.verify import (
    FIRST,
    FORK,
    IN,
    JOIN,
    LAST,
    STATE,
    B,
    handmade,
    launch,
    plan_of,
)


def test_certificate_counts_what_was_verified() -> None:
    plan = handmade(*FORK, FIRST, launch("side", [STATE], [B], 1), LAST, *JOIN)
    certificate = verify(plan)
    assert (certificate.launches, certificate.copies) == (3, 0)
    assert (certificate.streams, certificate.price_bytes) == (2, 128)
    assert (certificate.events, certificate.waits, certificate.needed) == (2, 2, 2)
    assert certificate.accesses == 6
    # In each run `last` finds the writer of a; in the second `first` and `side` find the writers
    # and the reader of the first, but io differs and nothing has written s.
    assert certificate.pairs == 5
    assert str(certificate) == (
        "verified p: 3 launches, 0 copies, 2 events, 2 waits, 2 of them needed; 5 pairs over 6 "
        "accesses are ordered; peak 128 bytes, lower bound 0 bytes, 128 for each further stream; "
        f"{certificate.digest}"
    )


def test_wait_that_orders_nothing_more_is_placed_and_not_needed() -> None:
    side = launch("side", [IN], [B], 1)
    plan = handmade(*FORK, FIRST, Wait(1, 0), side, LAST, *JOIN)
    certificate = verify(plan)
    assert (certificate.events, certificate.waits, certificate.needed) == (2, 3, 2)


def test_digest_differs_for_another_plan_alone() -> None:
    first, same, other = plan_of(0, 2), plan_of(0, 2), plan_of(1, 2)
    assert verify(first).digest == verify(same).digest != verify(other).digest


def test_programs_that_share_state_may_follow_each_other() -> None:
    graph, kernels = training_graph(4)
    train = make_plan(graph, kernels, device="cpu", streams=3)
    nodes = graph.nodes[:4]
    infer_graph = Graph("infer", graph.inputs, graph.state, nodes, (nodes[-1].output,))
    infer = make_plan(infer_graph, kernels, device="cpu", streams=2)
    certificate = verify_sequence(train, infer)
    assert certificate.plan == "training, then infer"
    assert certificate.launches == 17 + 4
    assert verify_sequence(infer, train).accesses == certificate.accesses


def test_programs_cannot_share_state_of_different_types() -> None:
    other = Binding(Value("s", Type((4, 4))), STATE)
    with pytest.raises(PlanError) as error:
        verify_sequence(handmade(FIRST, LAST), handmade(FIRST, LAST, state=(other,), name="q"))
    assert str(error.value) == (
        "plan q: the state %s is f32[4,4], another plan knows it as f32[16]"
    )
