"""A ceiling for work memory: fewer streams, a tighter packing, then a refusal that says why."""

from __future__ import annotations

from dataclasses import replace

import pytest

from graphc.base.errors import RunError
from graphc.ir import Where
from graphc.runtime.memory_limit import plan_within
from graphc.runtime.plan.lives import at_peak
from graphc.runtime.plan.plan import Launch, Plan
from graphc.runtime.planner.planner import make_plan
from tests.runtime.random_graphs import training_graph


def plan_for(streams: int, search: bool = False) -> Plan:
    """A step in which dgrad and wgrad take long, so that more streams hold more."""
    graph, kernels = training_graph(6, batch=16_000, wide=3, wgrad_flops=10**9)
    return make_plan(graph, kernels, device="cpu", streams=streams, search=search)


def test_plan_below_the_ceiling_stays_as_it_is() -> None:
    plan = plan_for(4)
    assert plan_within(None, plan, plan_for) is plan
    assert plan_within(plan.peak_bytes, plan, plan_for) is plan


def test_plan_above_the_ceiling_gets_fewer_streams_and_says_so() -> None:
    plan, one = plan_for(4), plan_for(1)
    assert one.peak_bytes < plan.peak_bytes
    limit = one.peak_bytes
    found = plan_within(limit, plan, plan_for)
    assert found.streams < 4 and found.peak_bytes <= limit
    assert found.notes[-1] == (
        f"memory: {found.streams} of 4 streams, {found.peak_bytes} bytes; "
        f"4 would take {plan.peak_bytes}, {limit} are allowed"
    )


def test_search_is_made_where_it_could_do() -> None:
    tight = plan_for(1)
    loose = replace(tight, peak_bytes=tight.peak_bytes + 64)
    asked = []

    def packed(streams: int, search: bool) -> Plan:
        asked.append((streams, search))
        return tight if search else loose

    assert plan_within(tight.peak_bytes, loose, packed).peak_bytes == tight.peak_bytes
    assert asked == [(1, True)]
    with pytest.raises(RunError):
        plan_within(tight.lower_bound_bytes - 64, loose, packed)
    assert asked == [(1, True)]


def test_refusal_lists_what_lives_at_the_peak() -> None:
    graph, kernels = training_graph(2, batch=1600)
    plan = make_plan(graph, kernels, device="cpu")
    steps = tuple(
        replace(s, where=Where("", ("net.py:7",))) if isinstance(s, Launch) else s
        for s in plan.steps
    )
    with pytest.raises(RunError) as error:
        plan_within(1000, replace(plan, steps=steps), plan_for)
    assert str(error.value) == (
        f"training: the plan takes {plan.peak_bytes} bytes of work memory, memory= or "
        "GRAPHC_MEMORY_LIMIT allows 1000; nothing has run, state is unchanged\n"
        "  at its peak, step 3 (d_relu1), it holds:\n"
        "          6400 bytes  conv0_forward  # net.py:7\n"
        "          6400 bytes  conv1_forward  # net.py:7\n"
        "          6400 bytes  loss.1  # net.py:7\n"
        "          6400 bytes  d_relu1  # net.py:7"
    )


def test_many_small_buffers_are_summed_up() -> None:
    graph, kernels = training_graph(14, batch=1600)
    plan = make_plan(graph, kernels, device="cpu")
    _, held = at_peak(plan)
    assert len(held) > 10
    rest = sum(life.nbytes for life in held[10:])
    with pytest.raises(RunError) as error:
        plan_within(1000, plan, plan_for)
    assert str(error.value).endswith(f"\n  {rest:12} bytes  in {len(held) - 10} smaller ones")
    assert sum(life.nbytes for life in held) <= plan.peak_bytes
