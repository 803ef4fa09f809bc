"""What plans say of loops: their steps, their memory, their text."""

from __future__ import annotations

import pytest

from graphc.base.errors import PlanError
from graphc.ir import Graph
from graphc.runtime.plan.plan import Copy, all_steps
from graphc.runtime.planner.planner import make_plan
from tests.support.loops import BYTES, SIZE, Recipe, value


@pytest.mark.parametrize("reverse", [False, True])
def test_loop_without_iterations_is_no_step(reverse: bool) -> None:
    recipe = Recipe(0, reverse)
    old, element = value("old"), value("element")
    cell = recipe.kernel("cell", [old, element])
    last, stack = recipe.scan(
        [cell], carries=[(old, cell.output, recipe.h)], xs=[(element, recipe.x)], ys=[cell.output]
    )
    plan = recipe.plan([last, stack])
    assert [type(step) for step in plan.steps] == [Copy]


def test_plan_has_the_same_steps_for_any_number_of_iterations() -> None:
    def steps(length: int) -> list[tuple[type, str]]:
        recipe = Recipe(length)
        old, element = value("old"), value("element")
        cell = recipe.kernel("cell", [old, element])
        last, stack = recipe.scan(
            [cell], carries=[(old, cell.output, recipe.h)], xs=[(element, recipe.x)],
            ys=[cell.output],
        )  # fmt: skip
        plan = recipe.plan([last, stack])
        return [(type(s), getattr(s, "kernel", "")) for s in all_steps(plan.steps)]

    assert steps(3) == steps(100)


def test_memory_of_an_iteration_is_packed_once_and_counted() -> None:
    recipe = Recipe()
    element = value("element")
    a = recipe.kernel("a", [element], 10 * SIZE)
    b = recipe.kernel("b", [a.output], 10 * SIZE)
    c = recipe.kernel("c", [b.output])
    (stack,) = recipe.scan([a, b, c], xs=[(element, recipe.x)], ys=[c.output])
    plan = recipe.plan([stack])
    assert plan.peak_bytes == plan.lower_bound_bytes == 20 * BYTES


def test_kernels_of_bodies_are_missed_by_name() -> None:
    recipe = Recipe()
    element = value("element")
    cell = recipe.kernel("cell", [element])
    (stack,) = recipe.scan([cell], xs=[(element, recipe.x)], ys=[cell.output])
    recipe.kernels.clear()
    graph = Graph("g", (recipe.x,), (), tuple(recipe.nodes), (stack,))
    with pytest.raises(PlanError) as error:
        make_plan(graph, recipe.kernels, device="cpu")
    assert str(error.value) == "plan body: no kernel for  %cell"


def test_steps_of_a_loop_are_printed_within_it() -> None:
    recipe = Recipe(3)
    old, element = value("old"), value("element")
    cell = recipe.kernel("cell", [old, element])
    last, stack = recipe.scan(
        [cell], carries=[(old, cell.output, recipe.h)], xs=[(element, recipe.x)], ys=[cell.output]
    )
    reader = recipe.kernel("reader", [last, stack])
    recipe.nodes.append(reader)
    plan = recipe.plan([reader.output])
    lines = plan.text().splitlines()
    assert lines[0] == "plan g  cpu  1 stream  2 launches  0 events  1 loop"
    assert lines[2:] == [
        "  0  s0  copy    h          reads h=io+192..256  writes h=work+0..64",
        "  1  s0  loop    last_cell  times 3  reads h=work+0..64 x=io+0..192  "
        "writes old.slots=work+0..256 last_cell=work+192..256 stack_cell=work+64..256",
        "  2    s0  launch  cell     reads old=work+0..64~+64%3 element=io+0..64~+64%3  "
        "writes cell=work+64..128~+64%3",
        "  3  s0  launch  reader     reads last_cell=work+192..256 stack_cell=work+64..256  "
        "writes reader=io+256..320",
    ]
