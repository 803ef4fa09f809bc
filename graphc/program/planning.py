"""From an optimized graph to a verified plan of its kernels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any

from graphc.base import config
from graphc.base.target import Target
from graphc.ir import Graph
from graphc.ir.failures import stage
from graphc.ops.loops.scan import bodies

if TYPE_CHECKING:  # nothing of it is needed before something is compiled
    from graphc.kernels.program.kernel import GridLaunch, Kernel
    from graphc.runtime.plan.plan import Plan


def make_plan_of(graph: Graph, target: Target, streams: int, decided: Iterable[str] = ()) -> Plan:
    """Return the verified plan of a graph after all passes; `decided` is added to its notes."""
    return planned(graph, lowered(graph, target), target, streams, decided)


def lowered(
    graph: Graph, target: Target, known: Mapping[str, Kernel] | None = None
) -> dict[str, Kernel]:
    """The kernels by the first output of their nodes; some are `known`."""
    from graphc.kernels.lower import lower

    kernels: dict[str, Kernel] = {}
    alike: dict[object, Kernel] = {}
    for each in (graph, *bodies(graph)):
        along: GridLaunch | None = None
        # Contractions first: the other kernels of a loop go along with what blocks of one own.
        for node in sorted(each.nodes, key=lambda n: getattr(n.op, "template", "") != "contract"):
            name = node.outputs[0].name
            if known and name in known and known[name].name == getattr(node.op, "kernel", name):
                kernels[name] = known[name]
            elif node.op.name not in ("reshape", "scan"):
                with stage("lower", node):
                    kernels[name] = lower(node, target, each is not graph, along, alike)
            else:
                continue
            if each is not graph:
                along = along or next((x for x in kernels[name].launches if x.owned), None)
    return kernels


def planned(
    graph: Graph,
    kernels: Mapping[str, Kernel],
    target: Target,
    streams: int,
    decided: Iterable[str],
    workers: int | None = None,
    measured: Mapping[str, float] | None = None,
    search: bool = False,
    slack_bytes: int = 0,
) -> Plan:
    """The verified plan for so many `workers`, by the `measured` times of kernels."""
    from graphc.runtime.planner.planner import make_plan

    notes = (*decided, *(f"{k.name}: {k.note}" for k in kernels.values() if k.note))
    options: dict[str, Any] = {"streams": streams, "workers": workers, "measured": measured}
    options |= {"search": search, "slack_bytes": slack_bytes}
    with stage("plan"):
        plan = make_plan(graph, kernels, device=target.device, notes=notes, **options)
        if target.joins_launches and target.kind.rates.barrier:
            from graphc.runtime.planner.joined.join_launches import joined

            plan = joined(plan)
    with stage("verify"):
        plan.verify()
    return plan


def within(
    graph: Graph,
    kernels: Mapping[str, Kernel],
    target: Target,
    settings: config.Config,
    notes: Iterable[str],
    limit: int | None,
) -> tuple[Graph, Plan]:
    """Return a graph and plan within `limit` bytes, or as lean as the time allows.

    Groups are split and kernels run again; the plan has as many streams as asked for, if the limit
    allows it.
    """
    from graphc.kernels.lower import lower_members
    from graphc.passes.fuse.grouped_gemm import groups_in, split_products
    from graphc.passes.fuse.split_updates import split_updates
    from graphc.runtime.memory_budget import MemoryBudget, leanest
    from graphc.runtime.planner.concurrency import DeviceModel

    asked = 1 if settings.streams == "auto" else int(settings.streams)

    def plan_of(graph: Graph, kernels: Mapping[str, Kernel]) -> Plan:
        for streams in range(asked, 0, -1):
            plan = planned(graph, kernels, target, streams, notes, settings.threads)
            if limit is None or plan.peak_bytes <= limit:
                break
        return plan

    machine = DeviceModel(target.device, settings.threads)

    def leaner(graph: Graph, known: Mapping[str, Kernel], *notes: str) -> MemoryBudget:
        return MemoryBudget(graph, lowered(graph, target, known), machine, plan_of, notes)

    with stage("lean"):
        graph = split_updates(graph)
        leaners = [leaner(graph, kernels)]
        if groups := groups_in(graph):
            apart = reduce(or_, map(lower_members, groups))
            notes_of_parts = [
                f"memory: {g.op.kernel} apart: its kernels wait for none of each other"
                for g in groups
            ]
            leaners.append(leaner(split_products(graph), {**kernels, **apart}, *notes_of_parts))
        found = leanest(leaners, limit)
        return found.graph, found.plan
