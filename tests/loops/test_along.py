"""Nests along an axis: running results and sorts as values, under the schedules of both devices."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from graphc import functions as f
from graphc.base.errors import GraphError
from graphc.base.target import Target
from graphc.ir import Node, Type, Value
from graphc.kernels.cpu.prefix import prefix as cpu
from graphc.kernels.cpu.prefix import sort as cpu_sort
from graphc.kernels.cuda.prefix import prefix as cuda
from graphc.kernels.cuda.prefix import sort as cuda_sort
from graphc.kernels.loops.along import along_loops
from graphc.kernels.loops.interpret import interpret
from graphc.kernels.loops.language import Loop, Nest
from graphc.kernels.loops.plain import plain_nest
from graphc.kernels.loops.rewrites import along_last, bind, hoist, in_order
from graphc.kernels.loops.text import nest_text, parse_nest
from graphc.kernels.loops.verify import verify_nest
from graphc.kernels.lower import lower
from graphc.kernels.program.access import Domain
from graphc.kernels.program.axis import AxisNest, make_axis_nest, only_node
from graphc.kernels.program.body.along import Along
from graphc.ops import Cummax, Cumprod, Cumsum, Logcumsumexp, Sort
from graphc.ops.base import Array, Op
from graphc.ops.fused import KernelNode
from tests.kernels import cuda_harness
from tests.kernels.harness import build, single, traced
from tests.sim.playing import Played, simulator

OPS: tuple[tuple[Op, Type], ...] = (
    (Cumsum(1), Type((3, 37), "f32")),
    (Cumsum(0, True), Type((37, 3), "f64")),
    (Cumprod(1), Type((2, 5, 3), "i32")),
    (Cummax(1, True), Type((3, 37), "f32")),
    (Cummax(0), Type((21, 5), "i8")),
    (Logcumsumexp(1), Type((4, 19), "f32")),
    (Cumsum(1), Type((3, 1), "f32")),
    (Cumsum(0), Type((9,), "f32")),
    (Cumsum(1), Type((0, 4), "f32")),
    (Sort(1, 37), Type((3, 37), "f32")),
    (Sort(0, 4, True), Type((9, 5), "i32")),
    (Sort(1, 0), Type((3, 5), "f32")),
)
SCHEDULES: dict[str, tuple[Callable[[AxisNest], Nest], int]] = {
    "plain": (plain_nest, 1),
    "hoisted": (lambda space: hoist(plain_nest(space)), 1),
    "chunks": (cpu.schedule, 8),
    "strips": (lambda space: cpu.schedule(space, 4), 8),
    "pieces": (lambda space: cpu.schedule(space, 1, 3), 4),
    "threads": (cuda.schedule, 1),
    "warps": (lambda space: cuda.schedule(space, 32), 1),
    "blocks of pieces": (lambda space: cuda.schedule(space, 256, 2), 1),
}
ORDERS = {
    "chunks": (cpu_sort.schedule, 8),
    "blocks": (cuda_sort.schedule, 1),
    **{name: SCHEDULES[name] for name in ("plain", "hoisted")},
}


def space_of(node: Node, lane: int | None = None, width: int = 1) -> AxisNest:
    """The nest of a fused node of one running result or sort, with `width` lanes of axis `lane`."""
    assert isinstance(node, KernelNode)
    inner, _ = only_node(node, Op)  # type: ignore[type-abstract]
    return make_axis_nest(node, inner, Domain(inner.inputs[0].type.shape, lane, width))


def spaces(op: Op, type: Type, width: int) -> list[AxisNest]:
    """The nests of an op with each axis in the lanes, or with none for a width of 1."""
    node = single(op, [type], "along")
    lanes = range(type.rank) if width > 1 else (None,)
    return [space_of(node, lane, width) for lane in lanes]


def drawn(type: Type) -> Array:
    random = np.random.default_rng(0)
    x = random.uniform(0.5, 1.5, type.shape)
    return (x if type.dtype[0] == "f" else random.integers(-3, 3, type.shape)).astype(
        type.numpy_dtype
    )


def run(nest: Nest, space: AxisNest, x: Array) -> list[Array]:
    """The outputs of a nest that reads `x`, flat."""
    memory = {name: np.zeros(v.type.size, v.type.numpy_dtype) for name, v in space.used.items()}
    (given,) = (name for name, v in space.used.items() if v not in space.outputs)
    memory[given] = x.ravel().copy()
    verify_nest(nest)
    interpret(nest, memory)
    return [memory[space.pointers[v]] for v in space.outputs]


def scheduled(op: Op) -> dict[str, tuple[Callable[[AxisNest], Nest], int]]:
    return ORDERS if isinstance(op, Sort) else SCHEDULES


PAIRS = [(i, name) for i, (op, _) in enumerate(OPS) for name in scheduled(op)]


@pytest.mark.parametrize(("which", "schedule"), PAIRS)
def test_schedules_compute_what_the_reference_does(which: int, schedule: str):
    op, type = OPS[which]
    make, width = scheduled(op)[schedule]
    x = drawn(type)
    for space in spaces(op, type, width):
        nest = make(space)
        for found, expected in zip(run(nest, space, x), op.reference(x), strict=True):
            np.testing.assert_allclose(found, expected.ravel(), rtol=1e-5)
        assert parse_nest(nest_text(nest)) == nest
        assert hash(parse_nest(nest_text(nest))) == hash(nest)


VIEWS: dict[str, tuple[Callable[..., Any], Type]] = {
    "backwards": (lambda x: f.cumsum(f.flip(x, 1) * 2, 1), Type((3, 17))),
    "padded": (lambda x: f.cumsum(f.pad(x, ((0, 0), (2, 1))), 1), Type((3, 17))),
    "place alone": (lambda x: f.cummax(x, 0)[1], Type((8, 3))),
}


@pytest.mark.parametrize("name", VIEWS)
def test_what_is_read_is_part_of_the_nest(name: str):
    function, type = VIEWS[name]
    node = traced("viewed", function, [type])
    assert isinstance(node, KernelNode)
    inner = next(n for n in node.body.nodes if n.op.own_template)
    space = make_axis_nest(node, inner, Domain(inner.inputs[0].type.shape))
    x = drawn(type)
    for made in (plain_nest(space), cuda.schedule(space, 32)):
        (found,) = run(made, space, x)
        (expected,) = node.op.reference(x)
        np.testing.assert_allclose(found, expected.ravel(), rtol=1e-5)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("shape", [(3, 997), (997, 40), (9001, 40), (60001,)])
def test_a_cpu_joins_in_the_order_that_the_nest_states(shape: tuple[int, ...], reverse: bool):
    """Bit for bit: the registers of one row, rows in the lanes, and pieces of an axis."""
    axis = int(np.argmax(shape))
    (built,) = build([single(Cumsum(axis, reverse), [Type(shape)], "sums")], Target("cpu", 16))
    space = space_of(built.node, len(shape) - 1, 16)
    pieces = Cumsum(axis).pieces(shape)
    assert (pieces > 1) == (shape[0] > 9000)
    x = np.random.default_rng(0).uniform(0.5, 1.5, shape).astype(np.float32)
    (found,) = run(cpu.schedule(space, pieces=pieces), space, x)
    np.testing.assert_array_equal(built.run([x])[0].ravel(), found)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("shape", [(3, 201), (2, 20001), (700, 5)])
def test_a_gpu_joins_in_the_order_that_the_nest_states(shape: tuple[int, int], reverse: bool):
    node = cuda_harness.single(Cumsum(1, reverse), [Value("x", Type(shape))], "sums")
    (pieces,) = {launch.grid[1] for launch in lower(node, Target("sim", 1, "sm_90a")).launches}
    assert (pieces > 1) == (shape == (2, 20001))
    space = space_of(node)
    x = np.random.default_rng(0).uniform(0.5, 1.5, shape).astype(np.float32)
    along = 1 if shape[1] < 32 else 256 if pieces > 1 else 32
    (found,) = run(cuda.schedule(space, along, pieces), space, x)
    (played,) = Played(simulator(), [node]).run(node, [x])
    np.testing.assert_array_equal(played.ravel(), found)


def test_the_loop_over_the_axis_is_the_inner_one():
    (space,) = spaces(Cumsum(0), Type((5, 70)), 1)
    loops = along_loops(cuda.schedule(space, 32, 2))
    rows, along = loops.rows, loops.along
    assert (rows.axes, rows.kind, rows.each) == ((1,), "block", 8)
    (inner,) = rows.body
    assert isinstance(inner, Loop) and (inner.axes, inner.kind) == ((0,), "thread")
    assert inner.body == (*loops.before.statements, along, *loops.after.statements)
    assert (along.by, along.pieces) == (32, 2)


def test_nests_that_cannot_be_are_refused():
    (space,) = spaces(Sort(1, 2), Type((3, 5)), 1)
    nest = along_last(plain_nest(space))
    rows, along = along_loops(nest).rows, along_loops(nest).along
    before, after = along_loops(nest).before.statements, along_loops(nest).after.statements
    wrong = {
        "a loop over its axis": replace(rows, body=(*before, along, *after)),
        "of no blocks or lanes": along_loops(along_last(plain_nest(space), "block")).rows,
        "registers that are known": replace(rows, body=(Loop((1,), "serial", (along, *before)),)),
    }
    for message, loop in wrong.items():
        with pytest.raises(GraphError, match=message):
            verify_nest(replace(nest, body=(loop,)))
    with pytest.raises(GraphError, match="an order of running results alone"):
        verify_nest(in_order(nest, 4))
    (space,) = spaces(Cumsum(1), Type((3, 5)), 1)
    with pytest.raises(GraphError, match="runs and pieces of at least 1"):
        verify_nest(in_order(along_last(plain_nest(space)), 0))


def test_stores_after_a_sort_are_bounded_by_its_count():
    (space,) = spaces(Sort(1, 2), Type((3, 5)), 1)
    nest = bind(plain_nest(space), "thread")
    verify_nest(nest)
    (loop,) = nest.body
    assert isinstance(loop, Loop)
    more = tuple(
        replace(s, op=replace(s.op, count=3)) if isinstance(s, Along) else s for s in loop.body
    )
    with pytest.raises(GraphError, match="0 to 5, not 0 to 6"):
        verify_nest(replace(nest, body=(replace(loop, body=more),)))
