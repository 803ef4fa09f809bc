"""Products between two loops are computed step by step where layers then play at once, and have the
bits of the product of all steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import graphc
from graphc import nn, optim
from graphc.base.target import Target
from graphc.ir import Graph
from graphc.ir.interpret import evaluate
from graphc.kernels.lower import lower, lower_step
from graphc.ops.fused import KernelNode, kernels_in
from graphc.ops.loops.scan import Scan
from graphc.runtime.plan.plan import Launch, Loop, Plan
from graphc.runtime.planner.time_steps import StepwisePlanner, between_loops
from tests.tools import first_quick

CUDA = Target("cuda", lanes=1, arch="sm_90a")
Arrays = list[np.ndarray[Any, Any]]
Link = Callable[[graphc.Tensor, graphc.Tensor], graphc.Tensor]


def layers(link: Link, reverse: tuple[bool, bool] = (False, False)) -> Callable[..., Any]:
    """Two recurrent layers and what `link`, of the first one's stack and a weight, hands on."""

    def fn(x: Any, u: Any, w: Any) -> Any:
        def step(h: Any, e: Any) -> tuple[Any, Any]:
            new = graphc.tanh(e + h @ u)
            return new, new

        zero = graphc.zeros(x.shape[1:])
        _, first = graphc.scan(step, zero, x, reverse=reverse[0])
        last, second = graphc.scan(step, zero, link(first, w), reverse=reverse[1])
        return last, second

    return fn


def compiled(fn: Callable[..., Any], device: str = "cuda", rows: int = 64, **options: Any) -> Any:
    shapes = (6, rows, 32), (32, 32), (32, 32)
    return graphc.compile(fn, *map(graphc.spec, shapes), device=device, **options)


def product(first: Any, w: Any) -> Any:
    return first @ w


def stages(plan: Plan) -> list[int]:
    return [step.stages for step in plan.steps if isinstance(step, Loop)]


def found(fn: Callable[..., Any], **options: Any) -> list[str]:
    """The kernels of a program that could be taken step by step."""
    graph = compiled(fn, streams=1, **options).graph
    return [between.node.op.kernel for between in between_loops(graph)]


def test_a_product_between_layers_is_a_stage_of_their_wavefront() -> None:
    plan = compiled(layers(product), streams=4).plan
    (loop,) = (step for step in plan.steps if isinstance(step, Loop))
    assert (loop.stages, loop.count) == (3, 8)
    assert sorted(s.stage for s in loop.steps if isinstance(s, Launch)) == [0, 1, 2]
    assert plan.notes[-1] == "wavefront: scan.1 plays 3 loops of 6 iterations at once"
    plan.verify()


def test_the_product_stays_whole_with_fewer_streams_than_stages_or_if_disabled() -> None:
    one, two = (compiled(layers(product), streams=n).plan for n in (1, 2))
    off = compiled(layers(product), streams=4, disable=("by_step",)).plan
    assert [stages(plan) for plan in (one, two, off)] == [[1, 1]] * 3
    assert set(one.kernels) == set(two.kernels) == set(off.kernels)
    four = compiled(layers(product), streams=4).plan
    assert four.estimate.microseconds < 0.8 * off.estimate.microseconds


def test_layers_stay_apart_where_what_lies_between_takes_longer_step_by_step() -> None:
    def many(first: Any, w: Any) -> Any:
        for _ in range(8):
            first = graphc.relu(first @ w)
        return first

    assert len(found(layers(many))) == 8
    assert stages(compiled(layers(many), streams=3).plan) == [1, 1]


@pytest.mark.parametrize("link", [
    lambda first, w: first @ w + w[0],
    lambda first, w: graphc.relu(first @ w) * 2,
    lambda first, w: (first @ w) @ w,
    lambda first, w: first @ w + first,
    lambda first, w: graphc.relu(first[..., 8:24]) @ w[8:24],
])  # fmt: skip
def test_rows_that_need_only_themselves_are_taken_step_by_step(link: Link) -> None:
    program = compiled(layers(link), streams=1)
    graph = program.graph
    steps = StepwisePlanner(
        graph, {n.outputs[0].name: lower(n, CUDA) for n in _kernels(graph)}, CUDA
    )
    assert steps.steps
    loops = steps.with_loops(steps.steps)
    assert len([n for n in loops.nodes if isinstance(n.op, Scan)]) == 2 + len(steps.steps)
    rng = np.random.default_rng(0)
    # Small ones: a library rounds products of a step and those of all steps differently on some
    # processors, and the loops behind them must not amplify that.
    arrays = [rng.normal(0, 0.2, v.type.shape).astype(np.float32) for v in graph.inputs]
    results, expected = evaluate(loops, arrays)[0], evaluate(graph, arrays)[0]
    for a, b in zip(results, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("link", [
    lambda first, w: graphc.flip(first, axis=0) @ w,
    lambda first, w: graphc.cumulative_sum(first, axis=0) @ w,
    lambda first, w: first @ w - graphc.mean(first, axis=0),
    lambda first, w: graphc.roll(first, 1, axis=0) @ w,
    lambda first, w: graphc.pad(graphc.relu(first[1:]), ((0, 1), (0, 0), (0, 0))) @ w,
])  # fmt: skip
def test_rows_that_need_others_stay_together(link: Link) -> None:
    assert found(layers(link)) == []


@pytest.mark.parametrize("streams", [2, 4])
def test_one_direction_of_two_is_read_from_what_both_have_stacked(streams: int) -> None:
    """Training in tf32 slices the gradient of what both stacked, and rounds it, in one kernel."""

    class Stacked(nn.Module):
        def __init__(self) -> None:
            self.both = nn.GRU(8, 12, bidirectional=True)
            self.one = nn.GRU(24, 12)

        def forward(self, x: Any) -> Any:
            return graphc.mean(self.one(self.both(x)[0])[0] ** 2)

    options: dict[str, Any] = {"update": optim.SGD(lr=0.1), "precision": "tf32"}
    spec = graphc.spec((4, 3, 8))
    program = graphc.compile(Stacked(), spec, device="cuda", streams=streams, **options)
    program.plan.verify()


def test_loops_in_other_directions_have_nothing_between_them() -> None:
    assert found(layers(product)) != []
    assert found(layers(product, (True, True))) != []
    assert found(layers(product, (True, False))) == []


def _kernels(graph: Graph) -> list[KernelNode]:
    bodies = [n.op.body for n in graph.nodes if isinstance(n.op, Scan)]
    return [n for g in (graph, *bodies) for n in kernels_in(g)]


@pytest.mark.parametrize("order", ["", "another"])
def test_a_kernel_of_a_step_must_add_in_the_order_of_the_whole(order: str) -> None:
    graph = compiled(layers(product), streams=1).graph
    steps = StepwisePlanner(
        graph, {n.outputs[0].name: lower(n, CUDA) for n in _kernels(graph)}, CUDA
    )
    ((output, step),) = steps.steps.items()
    whole = steps.kernels[output.name]
    assert (
        step.kernel.summation_order == whole.summation_order
        and whole.summation_order.startswith("registers, k ascending")
    )
    assert lower_step(step.node, replace(whole, summation_order=order), CUDA) is None
    assert lower_step(step.node, whole, Target("cpu")) is None


def test_sums_in_parts_have_no_order_that_a_step_could_keep() -> None:
    def fn(x: Any, w: Any) -> Any:
        return x @ w

    program = graphc.compile(fn, graphc.spec((16, 65536)), graphc.spec((65536, 16)), device="cuda")
    (kernel,) = program.plan.kernels.values()
    assert "k in" in kernel.choice and kernel.summation_order == ""


def test_the_kernel_of_a_step_says_what_it_is() -> None:
    program = compiled(layers(product), streams=4)
    (name,) = (name for name in program.plan.kernels if name.endswith("_step"))
    text = str(program.explain(name))
    assert "the rows of one step of 6: all at once would keep two loops one after the other" in text
    assert list(program.stages)[-1] == "by_step"


@pytest.mark.parametrize("case", first_quick(2, [
    (1, "float32"), (3, "tf32"), (0, "float32"), (2, "float32x3"), (8, "bfloat16"),
]))  # fmt: skip
def test_training_has_the_same_bits_for_every_number_of_streams(case: tuple[int, str]) -> None:
    """Shapes of one row, of rows that fill no tile, and of several tiles; the simulator computes
    what the plan of `cuda` would."""
    seed, precision = case
    rng = np.random.default_rng(seed)
    hidden, features, batch, time = (int(n) for n in rng.integers((3, 1, 1, 6), (24, 9, 40, 9)))
    cell = (graphc.nn.LSTM, graphc.nn.GRU)[seed % 2]
    x = rng.standard_normal((time, batch, features)).astype(np.float32)
    results, played, alone = [], set[int](), set[int]()
    for streams in (1, 2, 3, 4):
        model = cell(features, hidden, 2 + seed % 2)
        values = np.random.default_rng(seed)
        state = {k: values.uniform(-0.5, 0.5, v.shape) for k, v in model.state_dict().items()}
        model.load_state_dict({k: v.astype(np.float32) for k, v in state.items()})
        rule = graphc.optim.SGD(lr=0.1)
        options: dict[str, Any] = {"device": "sim", "precision": precision, "streams": streams}
        step = graphc.compile(loss, model, x, update=rule, **options)
        assert step.plan is not None
        played |= {*stages(step.plan)}
        forward = graphc.compile(predict, model, x, **options)
        assert forward.plan is not None
        alone |= {*stages(forward.plan)}
        made = [*(step(x) for _ in range(2)), forward(x), *model.state_dict().values()]
        results.append([np.asarray(array).tobytes() for array in made])
    assert max(played) > 2 and max(alone) > 2, "no wavefront was compared"
    assert all(result == results[0] for result in results)


def predict(model: Any, x: Any) -> Any:
    return model(x)[0][-1]


def loss(model: Any, x: Any) -> Any:
    return graphc.mean(model(x)[0] ** 2)
