"""Loops in plans: they compute what the graph means, and copy nothing that need not be."""

from __future__ import annotations

import random

import pytest

from graphc.ir import verify as verify_graph
from graphc.runtime.plan.plan import Copy, Loop, Plan, Range, all_steps
from graphc.runtime.planner.planner import make_plan
from tests.runtime.brute_force import graph_meaning, is_ordered, plan_meaning
from tests.runtime.random_loops import random_loops
from tests.support.loops import BYTES, Recipe, value

STREAMS = (1, 2, 4)


@pytest.mark.parametrize("streams", STREAMS)
@pytest.mark.parametrize("seed", range(24))
def test_plan_with_loops_computes_what_the_graph_means_in_any_allowed_order(
    seed: int, streams: int
) -> None:
    graph, kernels = random_loops(seed)
    verify_graph(graph)
    plan = make_plan(graph, kernels, device="cpu", streams=streams)
    plan.verify()
    assert is_ordered(plan)
    dice = random.Random(seed)
    for _ in range(2):
        assert plan_meaning(plan, dice) == graph_meaning(graph, kernels)


def copies(plan: Plan) -> list[Copy]:
    return [step for step in all_steps(plan.steps) if isinstance(step, Copy)]


def loop_of(plan: Plan) -> Loop:
    return next(step for step in plan.steps if isinstance(step, Loop))


def places(plan: Plan) -> dict[str, Range]:
    """Where each value that a step reads or writes lies in the first iteration."""
    found: dict[str, Range] = {}
    for step in all_steps(plan.steps):
        for place in (*getattr(step, "reads", ()), *getattr(step, "writes", ())):
            found.setdefault(place.value, place)
    return found


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("length", [1, 2, 5])
def test_carry_that_is_stacked_before_and_after_lies_in_one_stack_and_nothing_is_copied(
    length: int, reverse: bool
) -> None:
    recipe = Recipe(length, reverse)
    (initial,) = recipe.produced("initial")
    old, element = value("old"), value("element")
    cell = recipe.kernel("cell", [old, element])
    new = cell.output
    _, after, before = recipe.scan(
        [cell], carries=[(old, new, initial)], xs=[(element, recipe.x)], ys=[new, old]
    )
    last = recipe.nodes[-1].outputs[0]
    reader = recipe.kernel("reader", [last, after, before])
    recipe.nodes.append(reader)
    plan = recipe.plan([reader.output])
    assert not copies(plan)
    at = places(plan)
    shift = -BYTES if reverse else BYTES
    assert at["stack_cell"].start - at["stack_old"].start == shift
    first, final = (length - 1, 0) if reverse else (0, length - 1)
    assert at["last_cell"].start == at["stack_cell"].start + final * BYTES
    assert at["initial"].start == at["stack_old"].start + first * BYTES


@pytest.mark.parametrize(("device", "extra"), [("cpu", 0), ("cuda", 1)])
def test_on_a_gpu_both_stacks_of_a_carry_of_five_elements_are_aligned(
    device: str, extra: int
) -> None:
    old, x = value("old", 5), value("x", 4, 5)
    recipe = Recipe()
    recipe.x, recipe.h = x, value("h", 5)
    element = value("element", 5)
    cell = recipe.kernel("cell", [old, element], 5)
    _, after, before = recipe.scan(
        [cell], carries=[(old, cell.output, recipe.h)], xs=[(element, x)], ys=[cell.output, old]
    )
    reader = recipe.kernel("reader", [after, before])
    recipe.nodes.append(reader)
    plan = recipe.plan([reader.output], device=device)
    assert sum(isinstance(step, Copy) for step in loop_of(plan).steps) == extra
    at = places(plan)
    assert at["stack_cell"].start % 64 == 0
    assert (at["stack_old"].start % 64 == 0) == (device == "cuda")


def test_accumulator_stays_in_place_and_its_producer_writes_it_there() -> None:
    recipe = Recipe()
    (zeros,) = recipe.produced("zeros")
    old, element = value("old"), value("element")
    add = recipe.kernel("add", [old, element], inplace=((0, 0),))
    (last,) = recipe.scan([add], carries=[(old, add.output, zeros)], xs=[(element, recipe.x)])
    reader = recipe.kernel("reader", [last])
    recipe.nodes.append(reader)
    plan = recipe.plan([reader.output])
    at = places(plan)
    assert not copies(plan)
    assert at["zeros"] == at["old"] == at["add"] == at["last_add"]
    assert not at["old"].moves


def test_carry_that_its_kernel_cannot_overwrite_takes_turns_in_two_buffers() -> None:
    recipe = Recipe()
    (zeros,) = recipe.produced("zeros")
    old, element = value("old"), value("element")
    cell = recipe.kernel("cell", [old, element])
    (last,) = recipe.scan([cell], carries=[(old, cell.output, zeros)], xs=[(element, recipe.x)])
    reader = recipe.kernel("reader", [last])
    recipe.nodes.append(reader)
    plan = recipe.plan([reader.output])
    at = places(plan)
    assert not copies(plan)
    assert [m.period for m in at["old"].moves] == [m.period for m in at["cell"].moves] == [2]
    assert plan.peak_bytes == plan.lower_bound_bytes == 2 * BYTES


def test_reader_of_the_old_carry_comes_before_the_kernel_that_overwrites_it() -> None:
    recipe = Recipe()
    old = value("old")
    add = recipe.kernel("add", [old], inplace=((0, 0),))
    late = recipe.kernel("late", [old])
    (_, stack) = recipe.scan([add, late], carries=[(old, add.output, recipe.h)], ys=[late.output])
    plan = recipe.plan([recipe.nodes[-1].outputs[0], stack])
    names = [getattr(step, "kernel", "") for step in loop_of(plan).steps]
    assert names == ["late", "add"]


def test_stack_lies_over_the_scanned_value_that_ends_with_the_loop() -> None:
    recipe = Recipe()
    sums = recipe.whole("sums")
    old, element = value("old"), value("element")
    gates = recipe.kernel("gates", [element, old], inplace=((0, 0),))
    cell = recipe.kernel("cell", [gates.output, old])
    _, stack = recipe.scan(
        [gates, cell],
        carries=[(old, cell.output, recipe.h)],
        xs=[(element, sums)],
        ys=[gates.output],
    )
    reader = recipe.kernel("reader", [stack])
    recipe.nodes.append(reader)
    at = places(recipe.plan([reader.output]))
    assert at["sums"] == at["stack_gates"]


def test_stack_lies_over_the_stack_of_a_loop_before_it() -> None:
    recipe = Recipe()
    sums = recipe.whole("sums")
    element = value("element")
    gates = recipe.kernel("gates", [element], inplace=((0, 0),))
    (forward,) = recipe.scan([gates], xs=[(element, sums)], ys=[gates.output])
    recipe.reverse = True
    saved = value("saved")
    grads = recipe.kernel("grads", [saved], inplace=((0, 0),))
    (backward,) = recipe.scan([grads], xs=[(saved, forward)], ys=[grads.output])
    reader = recipe.kernel("reader", [backward])
    recipe.nodes.append(reader)
    plan = recipe.plan([reader.output])
    at = places(plan)
    assert at["sums"] == at["stack_gates"] == at["stack_grads"]
    assert plan.peak_bytes == recipe.length * BYTES


def test_stack_does_not_lie_over_a_scanned_value_that_is_read_again() -> None:
    recipe = Recipe()
    sums = recipe.whole("sums")
    element = value("element")
    gates = recipe.kernel("gates", [element], inplace=((0, 0),))
    (stack,) = recipe.scan([gates], xs=[(element, sums)], ys=[gates.output])
    reader = recipe.kernel("reader", [stack, sums])
    recipe.nodes.append(reader)
    at = places(recipe.plan([reader.output]))
    assert not at["sums"].overlaps(at["stack_gates"])


def test_stack_does_not_lie_over_a_carry_that_is_read_again() -> None:
    """The first loop's last value is the end of its stack."""
    recipe = Recipe()
    old, element, saved = value("old"), value("element"), value("saved")
    cell = recipe.kernel("cell", [old, element])
    last, stack = recipe.scan(
        [cell],
        carries=[(old, cell.output, recipe.h)],
        xs=[(element, recipe.x)],
        ys=[cell.output],
    )
    grads = recipe.kernel("grads", [saved], inplace=((0, 0),))
    (other,) = recipe.scan([grads], xs=[(saved, stack)], ys=[grads.output])
    reader = recipe.kernel("reader", [other, last])
    recipe.nodes.append(reader)
    at = places(recipe.plan([reader.output]))
    assert at["last_cell"].overlaps(at["stack_cell"])
    assert not at["stack_grads"].overlaps(at["stack_cell"])


def test_stack_does_not_lie_over_an_input_of_the_call() -> None:
    recipe = Recipe()
    element = value("element")
    gates = recipe.kernel("gates", [element], inplace=((0, 0),))
    (stack,) = recipe.scan([gates], xs=[(element, recipe.x)], ys=[gates.output])
    reader = recipe.kernel("reader", [stack])
    recipe.nodes.append(reader)
    assert places(recipe.plan([reader.output]))["stack_gates"].segment == "work"


def test_swapped_carries_are_copied_within_the_loop() -> None:
    recipe = Recipe(5)
    a, b = value("a"), value("b")
    last = recipe.scan([], carries=[(a, b, recipe.h), (b, a, recipe.s)])
    plan = recipe.plan(last)
    assert sum(isinstance(step, Copy) for step in loop_of(plan).steps) == 2


def test_carry_that_does_not_change_is_a_constant() -> None:
    recipe = Recipe()
    old, element = value("old"), value("element")
    cell = recipe.kernel("cell", [old, element])
    last, stack = recipe.scan(
        [cell], carries=[(old, old, recipe.h)], xs=[(element, recipe.x)], ys=[cell.output]
    )
    plan = recipe.plan([last, stack])
    assert [(c.source.value, c.target.segment) for c in copies(plan)] == [("h", "io")]
    assert not loop_of(plan).carries


def test_stack_of_a_scanned_value_is_that_value() -> None:
    recipe = Recipe()
    element = value("element")
    cell = recipe.kernel("cell", [element])
    stack, again = recipe.scan([cell], xs=[(element, recipe.x)], ys=[cell.output, element])
    reader = recipe.kernel("reader", [stack, again])
    recipe.nodes.append(reader)
    plan = recipe.plan([reader.output])
    assert not copies(plan)


def test_state_is_carried_in_place() -> None:
    recipe = Recipe()
    old, element = value("old"), value("element")
    add = recipe.kernel("add", [old, element], inplace=((0, 0),))
    (last,) = recipe.scan([add], carries=[(old, add.output, recipe.s)], xs=[(element, recipe.x)])
    plan = recipe.plan([], [(recipe.s, last)])
    assert not copies(plan)
    assert {r.segment for r in loop_of(plan).writes} == {"state"}
    assert plan.peak_bytes == 0


def test_stack_that_is_an_output_is_written_in_place() -> None:
    recipe = Recipe()
    element = value("element")
    cell = recipe.kernel("cell", [element])
    (stack,) = recipe.scan([cell], xs=[(element, recipe.x)], ys=[cell.output])
    plan = recipe.plan([stack])
    assert not copies(plan)
    assert [r.segment for r in loop_of(plan).writes] == ["io"]
