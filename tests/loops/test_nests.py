"""Plain nests and their schedules: what they compute, their text, and what the proof refuses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from graphc.base.errors import GraphError
from graphc.kernels.loops.alike import canonical
from graphc.kernels.loops.interpret import interpret
from graphc.kernels.loops.language import Alloc, Barrier, Loop, Memory, Nest
from graphc.kernels.loops.rewrites import bind, hoist, in_runs, loads_ahead, split_last, staged
from graphc.kernels.loops.text import nest_text, parse_nest
from graphc.kernels.loops.verify import verify_nest
from graphc.kernels.program.access import AffineAccess, Domain
from graphc.kernels.program.body.statement import Address, Load, Register, Store
from tests.loops.nests import FUNCTIONS, assert_equal, case, loops

Schedule = Callable[[Nest], Nest]

SCHEDULES: dict[str, Schedule] = {
    "plain": lambda nest: nest,
    "chunks": lambda nest: split_last(hoist(bind(nest, "chunk"))),
    "threads": lambda nest: hoist(bind(nest, "thread")),
    "loads ahead": lambda nest: loads_ahead(hoist(bind(nest, "thread")), 4),
    "runs": lambda nest: in_runs(hoist(bind(nest, "thread")), 4),
    "runs with a rest": lambda nest: in_runs(hoist(bind(nest, "thread")), 3),
}


def scheduled(name: str) -> dict[str, Schedule]:
    """The schedules of a function: a single element is no run."""
    runs = () if name == "one element" else ("runs", "runs with a rest")
    return {s: f for s, f in SCHEDULES.items() if s in runs or not s.startswith("runs")}


PAIRS = [(name, schedule) for name in FUNCTIONS for schedule in scheduled(name)]


@pytest.mark.parametrize(("name", "schedule"), PAIRS)
def test_schedules_compute_what_the_reference_does(name: str, schedule: str):
    made = case(name)
    for nest in made.nests:
        verify_nest(SCHEDULES[schedule](nest))
    assert_equal(made.run(SCHEDULES[schedule]), made.expected())


@pytest.mark.parametrize("width", [4, 16])
@pytest.mark.parametrize("lane", [0, -1])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_registers_of_several_lanes_compute_the_same(name: str, lane: int, width: int):
    made = case(name, width, lane)
    for nest in made.nests:
        verify_nest(SCHEDULES["chunks"](nest))
    assert_equal(made.run(SCHEDULES["chunks"]), made.expected())


@pytest.mark.parametrize(("name", "schedule"), PAIRS)
def test_text_is_parsed_back(name: str, schedule: str):
    for nest in case(name).nests:
        made = SCHEDULES[schedule](nest)
        assert parse_nest(nest_text(made)) == made
        assert hash(parse_nest(nest_text(made))) == hash(made)


def test_text_that_is_no_nest_is_refused():
    text = nest_text(case("scale and shift").nests[0])
    for wrong in ("", "graph g", text.replace("load", "lod"), text + "\nend", text + "\n    x"):
        with pytest.raises(GraphError, match="nest text"):
            parse_nest(wrong)


def image() -> Nest:
    """Images of 2 channels and 3 x 5 pixels, stored with their channels last."""
    domain, size = Domain((4, 2, 3, 5)), 4 * 2 * 3 * 5
    memory = Memory("x", "f32", size), Memory("y", "f32", size, written=True)
    load = Load((Register("x_", "f32"),), (Address("x", AffineAccess(0, (30, 15, 5, 1))),))
    store = Store((), (Address("y", AffineAccess(0, (30, 1, 10, 2))), "x_"))
    return Nest(domain, memory, (Loop((0, 1, 2, 3), "serial", (load, store)),))


def test_a_staged_store_computes_the_same():
    shared, place = Alloc("waiting", "f32", 2 * 16), AffineAccess(0, (0, 16, 5, 1))
    made = staged(in_runs(bind(image(), "thread"), 4), "y", shared, place, (2, 3, 1))
    verify_nest(made)
    assert [loop.kind for loop in loops(made)] == ["block", "thread", "lane", "thread"]
    (block,) = made.body
    assert isinstance(block, Loop)
    without = replace(block, body=tuple(s for s in block.body if not isinstance(s, Barrier)))
    with pytest.raises(GraphError, match="a barrier before waiting is read"):
        verify_nest(replace(made, body=(without,)))
    results = []
    for nest in (image(), made):
        memory = {"x": np.arange(120, dtype=np.float32), "y": np.zeros(120, np.float32)}
        interpret(nest, memory)
        results.append(memory["y"])
    np.testing.assert_array_equal(*results)
    assert parse_nest(nest_text(made)) == made


def test_nests_are_alike_whatever_their_names_and_lengths():
    one = case("booleans").nests[0]
    memory = tuple(replace(m, size=7, name=f"{m.name}_") for m in one.memory)
    longer = replace(one, domain=Domain((7,)), memory=memory)
    names = {m.name: f"{m.name}_" for m in one.memory}
    (loop,) = one.body
    assert isinstance(loop, Loop)
    renamed = tuple(s.renamed(names) for s in one.statements)
    longer = replace(longer, body=(replace(loop, body=renamed),))
    assert canonical(one) == canonical(longer)
    assert canonical(one) != canonical(bind(one, "thread"))
    assert canonical(case("pad").nests[0]) != canonical(case("flip").nests[0])


def replaced(nest: Nest, old: AffineAccess, new: AffineAccess) -> Nest:
    """The nest with another access of what it stores."""
    (loop,) = nest.body
    assert isinstance(loop, Loop)
    body = tuple(
        replace(s, arguments=(replace(s.arguments[0], access=new), *s.arguments[1:]))
        if isinstance(s, Store) and isinstance(s.arguments[0], Address) and s.accesses == (old,)
        else s
        for s in loop.body
    )
    assert body != loop.body, f"nothing is stored at {old}"
    return replace(nest, body=(replace(loop, body=body),))


PLACE = AffineAccess(0, (30, 1, 10, 2))
WRONG = {
    "beyond the end": (AffineAccess(1, (30, 1, 10, 2)), "0 to 119, not 1 to 120"),
    "before the start": (AffineAccess(-1, (30, 1, 10, 2)), "not -1 to 118"),
    "one element for all channels": (AffineAccess(0, (30, 0, 10, 2)), "several iterations"),
    "rows that overlap": (AffineAccess(0, (30, 1, 8, 2)), "several iterations"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_stores_that_meet_or_leave_their_memory_are_refused(wrong: str):
    verify_nest(image())
    access, message = WRONG[wrong]
    with pytest.raises(GraphError, match=message):
        verify_nest(replaced(image(), PLACE, access))


def test_two_stores_to_one_element_are_refused():
    nest = image()
    (loop,) = nest.body
    assert isinstance(loop, Loop)
    *others, store = loop.body
    again = replace(store, arguments=(Address("y", replace(PLACE, offset=0)), "x_"))
    with pytest.raises(GraphError, match="two stores meet"):
        verify_nest(replace(nest, body=(replace(loop, body=(*others, store, again)),)))


def test_registers_memory_and_barriers_are_checked():
    nest = image()
    (loop,) = nest.body
    assert isinstance(loop, Loop)
    load, store = loop.body
    wrong = {
        "registers that are known": (store, load),
        "registers that are new": (load, load, store),
        "a barrier that all reach": (Barrier(), load, store),
        "a new name": (Alloc("x", "f32", 4), load, store),
    }
    for message, body in wrong.items():
        with pytest.raises(GraphError, match=message):
            verify_nest(replace(nest, body=(replace(loop, body=body, kind="thread"),)))
    with pytest.raises(GraphError, match="a loop over axes"):
        verify_nest(replace(nest, body=(replace(loop, axes=(1, 2, 3)),)))
    with pytest.raises(GraphError, match="as written"):
        memory = tuple(replace(m, written=False) for m in nest.memory)
        verify_nest(replace(nest, memory=memory))
    with pytest.raises(GraphError, match="the memory x"):
        verify_nest(replace(nest, memory=nest.memory[1:]))
