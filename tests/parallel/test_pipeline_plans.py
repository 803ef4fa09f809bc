"""The plans of a pipeline's stages: order, memory, messages and cuts."""

from __future__ import annotations

import gc
import itertools
import re
import weakref
from typing import Any

import numpy as np
import pytest

import graphc
from graphc import nn, optim
from graphc.base.errors import RunError
from graphc.ir import Graph, Node, Type, Value, Where
from graphc.ops import Add, Exp, Matmul
from graphc.parallel.order import FORWARD, passes
from graphc.passes.fuse.partition import Partition
from graphc.passes.order_turns import order_turns
from graphc.program.stage_cuts import Flow, balanced, cost
from graphc.runtime.plan.plan import Launch
from graphc.text import parse
from tests.parallel.pipelines import CASES, SEQUENCES, batch, gpt_loss, loss_of
from tests.parallel.test_pipeline_messages import stage
from tests.parallel.threads import at_once, groups

SIZES = [(0, 2, 4), (1, 2, 4), (0, 3, 8), (1, 3, 8), (2, 3, 8), (0, 4, 2), (2, 4, 1)]
"""Stage, stages, micro-batches."""


def compiled(case: str, rank: int, ranks: int, batches: int) -> Any:
    """The program of one stage, which is not run."""
    make, rule, options = CASES[case]
    specs = [graphc.spec(a.shape, a.dtype.name) for a in batch(case)]
    loss = gpt_loss if case in SEQUENCES else loss_of
    parallel = stage(batches, rank=rank, ranks=ranks)
    return graphc.compile(loss, make(), *specs, update=rule(), parallel=parallel, **options)


def launches(plan: Any) -> list[Launch]:
    return [step for step in plan.steps if isinstance(step, Launch)]


@pytest.mark.parametrize(
    ("case", "rank", "ranks", "batches"),
    [*(("adam", *size) for size in SIZES), ("lenet", 0, 2, 4), ("gpt", 1, 3, 4)],
)
def test_kernels_run_in_the_order_of_passes(case: str, rank: int, ranks: int, batches: int) -> None:
    plan = compiled(case, rank, ranks, batches).plan
    kernels = [step for step in launches(plan) if plan.kernels[step.kernel].message is None]
    turns = [step.where.turn for step in kernels if step.where.turn]
    assert turns == sorted(turns)
    order = passes(rank, ranks, batches)
    for step in kernels:
        if step.where.turn:
            assert step.where.batch == order[step.where.turn - 1][1] + 1
    assert {m for _, m in order} == {step.where.batch - 1 for step in kernels if step.where.turn}


@pytest.mark.parametrize(("rank", "ranks", "batches"), SIZES[1:4])
def test_the_plan_says_what_its_stage_does(rank: int, ranks: int, batches: int) -> None:
    text = str(compiled("adam", rank, ranks, batches).plan)
    words = " ".join(f"{d[0].upper()}{m}" for d, m in passes(rank, ranks, batches))
    assert re.search(f"^pipeline: stage {rank} of {ranks} begins with .*% of the work$", text, re.M)
    most = min(ranks - rank, batches)
    assert f"pipeline: {words}, at most {most} of {batches} micro-batches in memory" in text


def test_memory_does_not_grow_with_the_number_of_micro_batches() -> None:
    """The samples of one stay as they are; the first stage of three holds at most three."""

    def peak(rank: int, batches: int) -> int:
        model = nn.Sequential(*(m for _ in range(6) for m in (nn.Linear(64, 64), nn.Tanh())))
        spec = graphc.spec((32 * batches, 64))
        program = graphc.compile(
            lambda model, x: graphc.mean(model(x) ** 2),
            model,
            spec,
            update=optim.SGD(lr=0.1),
            parallel=stage(batches, rank=rank, ranks=3),
        )
        return program.plan.peak_bytes

    activation = 32 * 64 * 4
    assert peak(0, 16) <= peak(0, 4) + activation
    assert peak(2, 16) <= peak(2, 4) + activation
    assert peak(2, 16) < peak(0, 16), "the last stage holds one micro-batch, the first three"


def test_a_stage_has_its_own_parameters_and_moments() -> None:
    programs = [compiled("adam", rank, 3, 2) for rank in range(3)]
    names = [{n for n in program.bound if n.endswith(("weight", "bias"))} for program in programs]
    whole = {n for own in names for n in own}
    assert len(whole) == sum(map(len, names)), "none is on two stages"
    assert len(whole) == 3 * len(CASES["adam"][0]().state_dict())
    sizes = [sum(b.array.nbytes for b in program.bound.values()) for program in programs]
    assert max(sizes) < 0.6 * sum(sizes)


def test_a_tied_parameter_is_on_one_stage_and_sent_to_the_last() -> None:
    plans = [compiled("tied", rank, 3, 2).plan for rank in range(3)]
    assert "embedding.weight" in {b.value.name for b in plans[0].state}
    for plan in plans[1:]:
        assert not any(b.value.name.endswith("embedding.weight") for b in plan.state)
    weights = 11 * 16
    sent = [k.message for k in plans[0].kernels.values() if k.message and k.message.kind == "send"]
    assert sum(message.counts == (weights,) for message in sent) == 1, "once a step"
    back = [k.message for k in plans[1].kernels.values() if k.message and k.message.kind == "send"]
    assert sum(m.counts == (weights,) and m.peer == 0 for m in back) == 2, "its gradients"


def test_messages_are_in_the_order_of_their_tokens() -> None:
    plan = compiled("gpt", 1, 3, 4).plan
    messages = [s for s in launches(plan) if plan.kernels[s.kernel].message]
    assert {step.stream for step in messages} == {plan.streams - 1}
    made = None
    for step in messages:
        token = step.reads[0].value
        assert made is None or token == made
        made = step.writes[0].value


def test_cuts_balance_the_work_and_send_little() -> None:
    """Equal layers, of which some are narrow: stages begin with these."""
    builder = graphc.trace(
        lambda a, b, c, d, x: x @ a @ b @ c @ d,
        *(graphc.spec(shape) for shape in ((64, 64), (64, 8), (8, 512), (512, 8), (32, 64))),
    )
    *weights, x = builder.inputs
    flow = Flow.of(builder.nodes, [x], weights)
    (cut,) = balanced(flow, 2)
    costs = [cost(node) for node in flow.moving]
    assert max(sum(costs[:cut]), sum(costs[cut:])) <= 1.1 * min(
        max(sum(costs[:n]), sum(costs[n:])) for n in range(1, 4)
    )
    assert flow.crossing(cut)
    assert flow.sent()[cut] == sum(v.type.nbytes for v in flow.crossing(cut))


@pytest.mark.parametrize("seed", range(8))
def test_cuts_are_as_good_as_the_best_of_all(seed: int) -> None:
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 40, 8).tolist()
    x, weights, nodes = Value("x", Type((7, sizes[0]), "f32")), [], []
    value = x
    for n, (rows, columns) in enumerate(itertools.pairwise(sizes)):
        weights.append(Value(f"w{n}", Type((rows, columns), "f32")))
        made = Value(f"v{n}", Type((7, columns), "f32"))
        nodes.append(Node(Matmul(), (value, weights[-1]), (made,), Where(f"layer{n}")))
        value = made
    flow = Flow.of(nodes, [x], weights)
    costs = [cost(node) for node in flow.moving]

    def most(cuts: list[int]) -> int:
        ends = [0, *cuts, len(costs)]
        return max(sum(costs[a:b]) for a, b in itertools.pairwise(ends))

    every = [[a, b] for a in range(1, 7) for b in range(a + 1, 7)]
    least = min(map(most, every))
    near = [cuts for cuts in every if most(cuts) <= 1.1 * least]
    cheapest = min(sum(flow.sent()[n] for n in cuts) for cuts in near)
    found = balanced(flow, 3)
    assert most(found) <= 1.1 * least + 1
    assert sum(flow.sent()[n] for n in found) <= cheapest


def graph_of_turns() -> Graph:
    """Two micro-batches whose nodes are mixed up."""
    kind = Type((4,), "f32")
    x, a, b, c, d = (Value(name, kind) for name in "xabcd")
    nodes = (
        Node(Exp(), (x,), (a,), Where(turn=2, batch=2)),
        Node(Exp(), (x,), (b,), Where(turn=1, batch=1)),
        Node(Exp(), (b,), (c,), Where(turn=3, batch=1)),
        Node(Add(), (a, c), (d,), Where()),
    )
    return Graph("turns", (x,), (), nodes, (d,))


def test_turns_are_in_order() -> None:
    ordered = order_turns(graph_of_turns(), None)  # type: ignore[arg-type]
    assert [node.output.name for node in ordered.nodes] == ["b", "a", "c", "d"]


def test_no_kernel_has_nodes_of_two_micro_batches() -> None:
    graph = graph_of_turns()
    partition = Partition(graph)
    a, b, c, d = (partition.of(node) for node in graph.nodes)
    assert not partition.can_merge(a, b) and not partition.independent(a, b)
    assert partition.can_merge(b, c)
    assert partition.can_merge(c, d)
    partition.merge(c, d)
    assert not partition.can_merge(a, partition.of(graph.nodes[3]))


def test_turns_survive_the_text_of_a_graph() -> None:
    graph = graph_of_turns()
    assert parse(str(graph)) == graph
    assert "# @3.1" in str(graph)


def test_a_forward_program_sends_forwards_alone() -> None:
    make, _, _ = CASES["adam"]
    x, _ = batch("adam")
    parallel = stage(4, rank=1, ranks=3)
    program = graphc.compile(make(), graphc.spec(x.shape), parallel=parallel)
    kinds = [k.message for k in program.plan.kernels.values() if k.message is not None]
    assert {(m.kind, m.peer) for m in kinds} == {("receive", 0), ("send", 2), ("share", 2)}
    assert FORWARD not in program.plan.notes


def test_compiling_frees_the_parameters_of_other_stages() -> None:
    with groups(2) as found:

        def call(rank: int) -> tuple[list[bool], str]:
            graphc.seed(0)
            model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64))
            arrays = [weakref.ref(layer.weight.state.array) for layer in (model[0], model[2])]
            parallel = stage(2, rank=rank)
            parallel.group = found[rank]
            graphc.compile(
                lambda model, x: graphc.mean(model(x) ** 2),
                model,
                graphc.spec((4, 64)),
                update=optim.SGD(lr=0.1),
                parallel=parallel,
            )
            gc.collect()
            with pytest.raises(RunError) as error:
                model.state_dict()
            return [array() is not None for array in arrays], str(error.value)

        (first, said), (second, _) = at_once(2, call)
    assert first == [True, False]
    assert second == [False, True]
    assert said == (
        "2.weight: is on rank 1, which has this stage of the pipeline: state_dict of its program, "
        "which all ranks call together, returns all"
    )


@pytest.mark.parametrize("case", ["gpt", "lenet"])
def test_the_text_of_a_stage_is_the_whole_of_it(case: str) -> None:
    program = compiled(case, 1, 3, 2)
    for graph in (program.stages["trace"], program.graph):
        assert parse(str(graph)) == graph
        assert all(node.where.turn or not node.where.batch for node in graph.nodes)
