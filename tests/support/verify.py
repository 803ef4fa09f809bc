"""Helpers of test_verify.py and of tests beside it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from graphc.ir import Type, Value
from graphc.runtime.plan.plan import Binding, Launch, Plan, Range, Record, Step, Wait
from graphc.runtime.planner.planner import make_plan
from tests.runtime.random_graphs import (
    add_updates,
    opaque_kernel,
    random_graph,
)


def plan_of(seed: int, streams: int, count: int = 24) -> Plan:
    return make_plan(*add_updates(*random_graph(seed, count)), device="cpu", streams=streams)


X = Value("x", Type((16,)))


S = Value("s", Type((16,)))


A, B, C = (Range("work", 64 * n, 64 * n + 64, "abc"[n]) for n in range(3))


IN, OUT, STATE = Range("io", 0, 64, "x"), Range("io", 64, 128, "y"), Range("state", 0, 64, "s")


def launch(name: str, reads: list[Range], writes: list[Range], stream: int = 0) -> Launch:
    return Launch(stream, name, (*reads, *writes), tuple(reads), tuple(writes))


def handmade(*steps: Step, streams: int = 2, **changes: Any) -> Plan:
    """A plan that reads x and s and whose output y lies at OUT."""
    names = [s.kernel for s in steps if isinstance(s, Launch)]
    ends = [r.stop for s in steps if isinstance(s, Launch) for r in s.arguments
            if r.segment == "work"]  # fmt: skip
    plan = Plan(
        name="p",
        device="cpu",
        streams=streams,
        steps=steps,
        kernels={name: opaque_kernel(name) for name in names},
        state=(Binding(S, STATE),),
        inputs=(Binding(X, IN),),
        outputs=(Binding(Value("y", Type((16,))), OUT),),
        peak_bytes=max(ends, default=0),
        lower_bound_bytes=0,
    )
    return replace(plan, **changes)


FORK = (Record(0, 0), Wait(1, 0))


JOIN = (Record(1, 1), Wait(0, 1))


FIRST = launch("first", [IN], [A])


LAST = launch("last", [A], [OUT])
