"""Nests whose indices are data, and their schedules: what they compute, their text, and what the
proof refuses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import graphc
from graphc.base.errors import GraphError
from graphc.ir import Node, Type
from graphc.kernels.loops.index_nest import IndexNest, index_nest
from graphc.kernels.loops.interpret import interpret
from graphc.kernels.loops.language import Nest, Unless
from graphc.kernels.loops.places import (
    accumulated,
    in_lanes,
    inward,
    looked_up,
    shared_out,
    together,
)
from graphc.kernels.loops.text import form_of, nest_text, parse_nest
from graphc.kernels.loops.verify import verify_nest
from graphc.ops.base import Array
from graphc.ops.fused import KernelNode
from graphc.ops.indexing import TakeGrad
from graphc.ops.scatter import Scatter
from graphc.trace import emit
from tests.kernels.harness import single, traced
from tests.loops.nests import case

Schedule = Callable[[IndexNest], Nest]


def gather(extent: int, *shape: int, axis: int = 0, count: int = 1, dtype: str = "f32") -> Node:
    """The gradient of a gather along `axis`, by `count` axes of indices."""
    indices = Type(shape[axis : axis + count], "i32")
    return single(TakeGrad(axis, extent), (indices, Type(shape, dtype)), "gather")


def scatter(
    combine: str, x: tuple[int, ...], count: int, axis: int = 0, dtype: str = "f32"
) -> Node:
    shape = (*x[:axis], count, *x[axis + 1 :])
    kinds = Type(x, dtype), Type(shape, "i64"), Type(shape, dtype)
    return single(Scatter(axis, combine), kinds, "scatter")


def rows(x: Any, i: Any, y: Any) -> Any:
    """Rows of which each has one index, read through views."""
    places = graphc.broadcast_to(graphc.reshape(i, (7, 1)), (7, 5))
    return emit(Scatter(0, "replace"), x, places, graphc.permute_dims(y, (1, 0)))


NODES = {
    "rows of a table": gather(9, 11, 6),
    "elements of a vector": gather(5, 12),
    "one index": gather(4, 3, 6, axis=1, count=0),
    "one row": gather(1, 8, 3),
    "no index": gather(3, 0, 4),
    "axes before and behind": gather(4, 2, 3, 2, 5, axis=1, count=2),
    "whole numbers": gather(4, 10, 3, dtype="i64"),
    "sums": scatter("sum", (5, 3), 8),
    "products": scatter("prod", (2, 5), 7, axis=1),
    "largest": scatter("max", (3, 4, 5), 6, axis=1),
    "smallest": scatter("min", (4,), 9, dtype="i32"),
    "last of equal": scatter("replace", (3, 4, 2), 5, axis=1, dtype="bool"),
    "one source": scatter("sum", (6, 4), 1),
    "views": traced("views", rows, (Type((9, 5), "f32"), Type((7,), "i64"), Type((5, 7), "f32"))),
}


def chunks_of_rows(part: IndexNest) -> Nest:
    a, (j,), _, b = part.letters
    return shared_out(together(inward(part.nest, b), a, "serial"), j)


def chunks_of_strips(part: IndexNest, strip: int = 4) -> Nest:
    a, _, _, b = part.letters
    return together(inward(part.nest, b), (*a, *b), "chunk", strip)


def threads(part: IndexNest) -> Nest:
    a, _, _, b = part.letters
    return together(part.nest, (*a, *b), "thread")


def warps_in_turn(part: IndexNest, width: int = 4) -> Nest:
    a, (j,), (*i,), b = part.letters
    nest = together(part.nest, (*a, *b), "warp")
    for axis in (j, *i[-1:]):
        nest = in_lanes(nest, axis, width)
    return nest


def warps_that_vote(part: IndexNest, width: int = 4) -> Nest:
    a, j, i, b = part.letters
    nest = in_lanes(together(part.nest, (*a, *j, *b), "warp"), b[-1], width)
    return looked_up(accumulated(nest, part.output), i, "serial", width, 1)


def segments(part: IndexNest, run: int = 1) -> Nest:
    a, j, i, b = part.letters
    nest = together(part.nest, (*a, *j, *b), "thread")
    nest = in_lanes(nest, b[-1], run) if run > 1 else nest
    return looked_up(accumulated(nest, part.output), i, "sorted", 8)


ANY: dict[str, Schedule] = {
    "plain": lambda part: part.nest,
    "inward": lambda part: inward(part.nest, part.letters[3]),
    "strips": chunks_of_strips,
    "threads": threads,
    "warps in turn": warps_in_turn,
}
SUMS: dict[str, Schedule] = {
    **ANY,
    "rows": chunks_of_rows,
    "votes": warps_that_vote,
    "segments": segments,
    "runs of segments": lambda part: segments(part, 2),
}


def is_sum(node: Node) -> bool:
    assert isinstance(node, KernelNode)
    return any(isinstance(n.op, TakeGrad) for n in node.body.nodes)


def part_of(node: Node) -> IndexNest:
    assert isinstance(node, KernelNode)
    return index_nest(node, TakeGrad if is_sum(node) else Scatter)


def schedules(node: Node) -> dict[str, Schedule]:
    """A turn is for an index that each lane has, so that a gather's comes with loops of its own."""
    return {s: f for s, f in SUMS.items() if s != "warps in turn"} if is_sum(node) else ANY


PAIRS = [(name, schedule) for name, node in NODES.items() for schedule in schedules(node)]


def arrays_for(node: Node, part: IndexNest, seed: int = 0) -> list[Array]:
    """Indices of which some are out of range, others equal; small numbers, whose sums differ by
    their order."""
    random, arrays = np.random.default_rng(seed), []
    extent = part.sizes[1]
    for value in node.inputs:
        shape, kind = value.type.shape, value.type.numpy_dtype
        place = value.type.rank < 2 or value.type.dtype == "i64"
        drawn = random.integers(-2, extent + 2, shape) if place else random.normal(size=shape)
        arrays.append(drawn.astype(kind))
    return arrays


def result(part: IndexNest, nest: Nest, node: Node, arrays: list[Array]) -> Array:
    """What the nest leaves in the output's memory."""
    inputs = zip(node.inputs, arrays, strict=True)
    memory = {part.pointers[v]: a.ravel().copy() for v, a in inputs}
    kind = part.node.output.type
    memory[part.output] = np.full(kind.size, 77, kind.numpy_dtype)
    interpret(nest, memory)
    return memory[part.output].reshape(kind.shape)


@pytest.mark.parametrize(("name", "schedule"), PAIRS)
def test_schedules_compute_what_the_reference_does(name: str, schedule: str):
    node = NODES[name]
    part = part_of(node)
    nest = schedules(node)[schedule](part)
    verify_nest(nest)
    arrays = arrays_for(node, part)
    (want,) = node.op.reference(*arrays)
    np.testing.assert_array_equal(result(part, nest, node, arrays), want)


@pytest.mark.parametrize(("name", "schedule"), PAIRS)
def test_text_is_parsed_back(name: str, schedule: str):
    nest = schedules(NODES[name])[schedule](part_of(NODES[name]))
    assert parse_nest(nest_text(nest)) == nest
    assert hash(parse_nest(nest_text(nest))) == hash(nest)


@pytest.mark.parametrize("seed", range(30))
def test_random_nests_compute_what_the_reference_does(seed: int):
    random = np.random.default_rng(seed)
    before, after = (tuple(random.integers(1, 5, random.integers(3))) for _ in range(2))
    extent, count = (int(n) for n in random.integers(1, 9, 2))
    axis, whole = len(before), tuple(int(n) for n in (*before, count, *after))
    if seed % 2:
        node = gather(extent, *whole, axis=axis)
    else:
        combine = random.choice(["replace", "sum", "prod", "max", "min"])
        node = scatter(str(combine), (*whole[:axis], extent, *whole[axis + 1 :]), count, axis)
    part, width = part_of(node), int(random.integers(2, 6))
    ways: list[Schedule] = [*schedules(node).values(), lambda p: chunks_of_strips(p, width)]
    if is_sum(node):
        ways += [lambda p: warps_that_vote(p, width), lambda p: segments(p, width)]
    arrays = arrays_for(node, part, seed)
    (want,) = node.op.reference(*arrays)
    for way in ways:
        nest = way(part)
        verify_nest(nest)
        assert parse_nest(nest_text(nest)) == nest
        np.testing.assert_array_equal(result(part, nest, node, arrays), want)


def test_what_lies_in_place_is_not_copied():
    part = part_of(NODES["sums"])
    (unless, _) = part.nest.body
    assert isinstance(unless, Unless) and (unless.source, unless.target) == ("x0_data", "y0_data")
    assert not any(isinstance(step, Unless) for step in part_of(NODES["rows of a table"]).nest.body)


def test_nests_are_alike_whatever_their_names():
    part = part_of(NODES["sums"])
    text = nest_text(threads(part)).replace("x1_", "places").replace("y0_data", "table")
    assert form_of(parse_nest(text)) == form_of(threads(part))
    assert form_of(part.nest) != form_of(threads(part))


GATHER = """\
nest (3, 4, 5, 6)
memory p : i32[5]
memory x : f32[90]
memory y : f32[72] written
for i0, i1, i3 serial
  zero : f32 = fn <>(f32:0.0) cost 0
  store y[24*i0 + 6*i1 + 1*i3], zero
for i0, i2, i3 serial
  j : i32 = load p[1*i2]
  at i1 = j serial
    a : f32 = load x[30*i0 + 6*i2 + 1*i3]
    b : f32 = load y[24*i0 + 6*i1 + 1*i3]
    c : f32 = op add (b, a) cost 1
    store y[24*i0 + 6*i1 + 1*i3], c
"""
COPY = """\
nest (4, 6)
memory x : f32[24]
memory y : f32[24] written
unless x is y
  for i0, i1 serial
    a : f32 = load x[6*i0 + 1*i1]
    store y[6*i0 + 1*i1], a
"""
WARP = """\
nest (4, 6)
memory x : f32[24]
memory y : f32[24] written
for i0, i1 by 32 warp
  for i1 by 32 lane
    alloc s : f32[1]
    a : f32 = load x[6*i0 + 1*i1]
    store s[0], a
    b : f32 = load s[0]
    store y[6*i0 + 1*i1], b
"""
WRONG = {
    "an index that nobody knows": (
        GATHER,
        "at i1 = j s",
        "at i1 = k s",
        "registers that are known",
    ),
    "of threads": (GATHER, "at i1 = j serial", "at i1 = j thread", "serial or of a chunk"),
    "beyond the axis": (GATHER, "72", "71", "0 to 70, not 0 to 71, in y"),
    "indices to workers": (
        GATHER,
        "for i0, i2, i3 serial",
        "for i0, i2, i3 thread",
        "several iterations store",
    ),
    "rows that meet": (GATHER, "24*i0 + 6*i1 +", "24*i0 + 1*i1 +", "several iterations store"),
    "one of two loops": (GATHER, "i1, i3 serial", "i1, i3 thread", "two stores meet"),
    "another element": (GATHER, "load y[24*i0", "load y[6*i2", "y to be loaded only where"),
    "a chunk in a chunk": (
        GATHER.replace("for i0, i2, i3 serial", "for i0, i2, i3 chunk"),
        "at i1 = j serial",
        "at i1 = j chunk",
        "serial loops around a chunk",
    ),
    "nothing sorted": (
        GATHER,
        "for i0, i2, i3 serial",
        "for i0, i2, i3 sorted",
        "of a loop around",
    ),
    "no copy": (COPY, "store y[6*i0", "store y[5*i0", "a copy"),
    "a copy of another": (COPY, "unless x is y", "unless y is x", "a copy"),
    "all threads of a warp": (
        WARP.replace(" by 32 warp", " warp").replace("  for i1 by 32 lane\n", ""),
        "    ",
        "  ",
        "memory of a worker or lane",
    ),
    "a store of a whole warp": (
        COPY.replace("unless x is y\n", ""),
        "  for i0, i1 serial\n    a : f32 = load x[6*i0 + 1*i1]\n    store",
        "for i0, i1 warp\n  a : f32 = load x[6*i0 + 1*i1]\n  store",
        "lanes of a warp around a store",
    ),
    "memory that is not stored": (
        WARP,
        "    store s[0], a\n    b : f32 = load s[0]\n",
        "    b : f32 = load s[0]\n    store s[0], a\n",
        "a store to s",
    ),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_wrong_nests_are_refused(wrong: str):
    text, old, new, message = WRONG[wrong]
    assert old in text
    for right in (GATHER, COPY, WARP):
        verify_nest(parse_nest(right))
    with pytest.raises(GraphError, match=message):
        verify_nest(parse_nest(text.replace(old, new)))


def test_places_that_are_taken_stay_within_the_table():
    nest = case("take").nests[0]
    verify_nest(nest)
    short = tuple(replace(m, size=47) if m.size == 48 else m for m in nest.memory)
    with pytest.raises(GraphError, match="0 to 46, not 0 to 47"):
        verify_nest(replace(nest, memory=short))


def test_text_that_is_no_nest_is_refused():
    pairs = {
        "at i1 = j serial": ("at i9 = j serial", "at i1 = j", "at i1 j serial", "at i1 = j sereal"),
        "unless x is y": ("unless x", "unless x = y"),
    }
    for old, all_wrong in pairs.items():
        for wrong in all_wrong:
            with pytest.raises(GraphError, match="nest text"):
                parse_nest((GATHER if old in GATHER else COPY).replace(old, wrong))
