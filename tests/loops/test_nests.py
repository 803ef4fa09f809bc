"""Plain nests and their schedules: what they compute, their text, and what the proof refuses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from graphc.base.errors import GraphError
from graphc.kernels.loops import text as text_of
from graphc.kernels.loops.interpret import interpret
from graphc.kernels.loops.language import Alloc, Barrier, Loop, Memory, Nest
from graphc.kernels.loops.rewrites import bind, hoist, in_runs, loads_ahead, split_last, staged
from graphc.kernels.loops.text import form_of, nest_text, parse_nest
from graphc.kernels.loops.verify import verify_nest
from graphc.kernels.program.access import AffineAccess, Domain
from graphc.kernels.program.body.statement import (
    Address,
    Call,
    Compute,
    Load,
    NamedFunction,
    Register,
    Store,
)
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


def test_the_example_of_the_text_is_text():
    example = (text_of.__doc__ or "").split("\n\n")[1]
    lines = [line.removeprefix("    ") for line in example.splitlines()]
    verify_nest(parse_nest("\n".join(lines)))
    assert nest_text(parse_nest("\n".join(lines))).splitlines() == lines


def test_text_that_is_no_nest_is_refused():
    text = nest_text(case("scale and shift").nests[0])
    pairs = {
        "load": "lod",
        "i0, i1": "i0, i7",
        "serial": "sereal",
        "8*i0 + ": "i0 + ",
        "relu_ : f32": "relu_ : f99",
        "op relu": "op relu x=1",
        "1*i1], relu_": "1*i1], relu_ !!",
        "f32:0.8": "f32:0..8",
        "[8]": "[8",
    }
    assert all(old in text for old in pairs)
    changed = [text.replace(old, new) for old, new in pairs.items()]
    for wrong in ("", "graph g", text + "\nend", text + "\n    x", *changed):
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
    assert [loop.kind for loop in loops(made.body)] == ["block", "thread", "lane", "thread"]
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
    text = nest_text(one)
    for memory in one.memory:
        text = text.replace(memory.name, f"{memory.name}_")
    longer = parse_nest(text)
    longer = replace(
        longer, domain=Domain((7,)), memory=tuple(replace(m, size=7) for m in longer.memory)
    )
    assert form_of(one) == form_of(longer)
    assert form_of(one) != form_of(bind(one, "thread"))
    assert form_of(case("pad").nests[0]) != form_of(case("flip").nests[0])


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


def line(step: int, *offsets: int) -> Nest:
    """Eight elements, each stored at several places that are `step` apart."""
    register, size = Register("x_", "f32"), 8 * step + max(offsets)
    memory = Memory("x", "f32", 8), Memory("y", "f32", size, written=True)
    load = Load((register,), (Address("x", AffineAccess(0, (1,))),))
    places = (Address("y", AffineAccess(offset, (step,))) for offset in offsets)
    stores = (Store((), (place, "x_")) for place in places)
    return Nest(Domain((8,)), memory, (Loop((0,), "serial", (load, *stores)),))


def test_two_stores_to_one_element_are_refused():
    for offsets in ((0, 1), (1, 0), (0, 17)):
        verify_nest(line(2, *offsets))
    for offsets in ((0, 0), (0, 2), (2, 0), (0, 14), (3, 1)):
        with pytest.raises(GraphError, match="two stores meet"):
            verify_nest(line(2, *offsets))


def test_registers_of_lanes_are_bounded_whole():
    """Six elements of a value with sixteen lanes: a whole register is stored."""
    load = Load((Register("x_", "f32"),), (Address("x", AffineAccess(0, (1,), 1)),))
    store = Store((), (Address("y", AffineAccess(0, (1,), 1)), "x_"), lanes=True)
    memory = Memory("x", "f32", 6), Memory("y", "f32", 16, written=True)
    nest = Nest(Domain((6,), 0, 16), memory, (Loop((0,), "chunk", (load, store)),))
    verify_nest(nest)
    short = (memory[0], replace(memory[1], size=6))
    with pytest.raises(GraphError, match="0 to 5, not 0 to 15"):
        verify_nest(replace(nest, memory=short))


def test_lanes_of_another_axis_have_strides_of_their_own():
    """A matrix of 4 rows and 32 columns with columns in the lanes, stored transposed: lanes are 4
    elements apart, registers 64."""
    load = Load((Register("x_", "f32"),), (Address("x", AffineAccess(0, (32, 1), 1)),))
    store = Store((), (Address("y", AffineAccess(0, (1, 4), 4)), "x_"))
    memory = Memory("x", "f32", 128), Memory("y", "f32", 128, written=True)
    nest = Nest(Domain((4, 32), 1, 16), memory, (Loop((0, 1), "chunk", (load, store)),))
    verify_nest(nest)
    wrong = replace(store, arguments=(Address("y", AffineAccess(0, (1, 4), 1)), "x_"))
    with pytest.raises(GraphError, match="several iterations"):
        verify_nest(replace(nest, body=(Loop((0, 1), "chunk", (load, wrong)),)))


def test_a_load_of_what_other_iterations_store_is_refused():
    (loop,) = line(1, 0).body
    assert isinstance(loop, Loop)
    _, store = loop.body
    memory = (Memory("y", "f32", 9, written=True),)
    for offset, known in ((0, True), (1, False)):
        load = Load((Register("x_", "f32"),), (Address("y", AffineAccess(offset, (1,))),))
        nest = Nest(Domain((8,)), memory, (replace(loop, kind="thread", body=(load, store)),))
        if known:
            verify_nest(nest)
            continue
        with pytest.raises(GraphError, match="only where it is stored"):
            verify_nest(nest)


def staged_line(*steps: str) -> Nest:
    """Threads of a block that load, store and wait as the letters say: memory `s` is shared."""
    place = AffineAccess(0, (0, 1))
    made = {
        "store": Store((), (Address("s", place), "x_")),
        "load": Load((Register("v_", "f32"),), (Address("s", place),)),
    }
    known = Load((Register("x_", "f32"),), (Address("x", AffineAccess(0, (8, 1))),))
    body = tuple(
        Barrier() if step == "wait" else Loop((1,), "thread", (known, made[step])) for step in steps
    )
    block = Loop((0,), "block", (Alloc("s", "f32", 8), *body))
    return Nest(Domain((3, 8)), (Memory("x", "f32", 24),), (block,))


def test_uses_of_shared_memory_are_parted_by_barriers():
    verify_nest(staged_line("store", "wait", "load"))
    verify_nest(staged_line("store", "wait", "load", "wait", "store", "wait", "load"))
    for steps in (("store", "load"), ("store", "wait", "load", "store")):
        with pytest.raises(GraphError, match="a barrier before s is read"):
            verify_nest(staged_line(*steps))
    with pytest.raises(GraphError, match="a store to s"):
        verify_nest(staged_line("load", "wait", "store"))
    with pytest.raises(GraphError, match="two stores meet"):
        verify_nest(staged_line("store", "store", "wait", "load"))


def test_loops_that_are_not_well_formed_are_refused():
    nest = image()
    (loop,) = nest.body
    assert isinstance(loop, Loop)
    load, store = loop.body
    lanes = Loop((3,), "lane", (load, store), 4)
    wrong = {
        "runs that loops of lanes go through": replace(loop, step=4),
        "a loop of lanes in a loop of such runs": replace(loop, body=(lanes,), step=2),
        "one of serial, sorted, chunk": replace(loop, kind="other"),  # type: ignore[arg-type]
        "iterations above 0": replace(loop, each=0),
        "loads ahead": replace(loop, ahead=2),
        "axes without a loop": replace(loop, body=(Loop((3,), "serial", (load, store)),)),
        "shared memory of a block": replace(loop, body=(Alloc("s", "f32", 4), load, store)),
    }
    for message, step in wrong.items():
        with pytest.raises(GraphError, match=message):
            verify_nest(replace(nest, body=(step,)))
    with pytest.raises(GraphError, match="a loop around a store"):
        verify_nest(replace(nest, body=(load, store)))


def test_messages_say_what_was_expected():
    (loop,) = image().body
    assert isinstance(loop, Loop)
    load, _ = loop.body
    said = []
    pool = Call((Register("p_", "f32"),), (Address("x"),), "unknown", ())
    other = Compute((Register("p_", "f32"),), ("x_",), NamedFunction("other"))
    nests = [replace(image(), body=(replace(loop, body=(load, s)),)) for s in (pool, other)]
    memory = {"x": np.zeros(120, np.float32)}
    text = nest_text(case("scale and shift").nests[0])
    tries: list[Callable[[], object]] = [
        *(lambda nest=nest: interpret(nest, memory) for nest in nests),  # type: ignore[misc]
        lambda: parse_nest("graph g"),
        lambda: parse_nest(text.replace("op relu", "op none")),
        lambda: verify_nest(line(2, 0, 0)),
        lambda: verify_nest(replaced(image(), PLACE, AffineAccess(0, (30, 0, 10, 2)))),
        lambda: verify_nest(replace(image(), body=(load, load))),
    ]
    for attempt in tries:
        with pytest.raises(GraphError) as error:
            attempt()
        said.append(str(error.value))
    assert said[0] == "unknown has no meaning in NumPy as part of a nest"
    assert said[1] == "other has no meaning in NumPy as part of a nest"
    assert said[2] == "nest text: not understood: 'graph g'"
    assert said[3].startswith("nest text: expected a formula, got")
    assert said[4].startswith("y: two stores meet, at")
    assert said[5].startswith("y: several iterations store one element, at")
    assert said[6].startswith("nest: expected")


def test_registers_memory_and_barriers_are_checked():
    nest = image()
    (loop,) = nest.body
    assert isinstance(loop, Loop)
    load, store = loop.body
    wrong = {
        "registers that are known": (store, load),
        "registers that are new": (load, load, store),
        "a barrier that all reach": (Barrier(), load, store),
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
