"""Loops on the CPU: addresses advance, iterations follow each other, calls look inside."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from graphc.base.errors import RunError
from graphc.ir import Graph, Node, Type, Value
from graphc.ir.state import StateBuffer
from graphc.ops.fused import Fused, KernelNode
from graphc.ops.loops.scan import Scan
from graphc.runtime.cpu.executable import CpuExecutable, load
from graphc.runtime.cpu.player import resolve
from graphc.runtime.plan.plan import Copy, Launch, Loop, Move, Plan, Range, Record, Step, Wait
from tests.runtime.handmade import binding, kernel

COUNT = 6
STREAM = [1, 2, 4]

ADD = kernel(
    "add",
    """
    const float *a = (float*)arguments[0], *b = (float*)arguments[1];
    for (int i = 0; i < 16; i++) ((float*)arguments[2])[i] = a[i] + 2 * b[i];
    """,
)
WIDE = kernel(
    "wide",
    """
    const float *a = (float*)arguments[0];
    for (int i = 4 * chunk; i < 4 * chunk + 4; i++) ((float*)arguments[1])[i] = a[i] + 1;
    """,
    phases=(4,),
)
ROOT = kernel(
    "root",
    "for (int i = 0; i < 16; i++) ((float*)arguments[1])[i] ="
    " __builtin_sqrtf(((float*)arguments[0])[i]);",
)
X, Y = Range("io", 0, 64 * COUNT, "x"), Range("io", 64 * COUNT, 128 * COUNT, "y")
INPUT = binding("io", "x", 0, Type((COUNT, 16)))
OUTPUT = binding("io", "y", 64 * COUNT, Type((COUNT, 16)))
H = binding("state", "h", 0, Type((16,)))


def launch(name: str, reads: list[Range], writes: list[Range], stream: int = 0) -> Launch:
    return Launch(stream, name, (*reads, *writes), tuple(reads), tuple(writes))


def row(whole: Range, name: str, *moves: Move) -> Range:
    return Range(whole.segment, whole.start, whole.start + 64, name, moves)


DOWN = Move(64, COUNT)
CARRY = Range("state", 0, 64, "h")
STEPS = (
    launch("add", [CARRY, row(X, "x_t", DOWN)], [CARRY]),
    launch("wide", [CARRY], [row(Y, "y_t", DOWN)]),
)


def plan(*steps: Step, streams: int = 1) -> Plan:
    return Plan(
        name="p",
        device="cpu",
        streams=streams,
        steps=steps,
        kernels={k.name: k for k in (ADD, WIDE, ROOT)},
        state=(H,),
        inputs=(INPUT,),
        outputs=(OUTPUT,),
        peak_bytes=256,
        lower_bound_bytes=0,
    )


def looped(*steps: Step, count: int = COUNT, stream: int = 0) -> Loop:
    return Loop(stream, "l", count, steps, (), (CARRY, Y))


def run_of(made: Plan, threads: int, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    buffers = {"h": StateBuffer(np.ones(16, np.float32))}
    executable = load(made, buffers, threads)
    for _ in range(3):
        buffers["h"].assign(np.ones(16, np.float32))
        (y,) = executable.run([x])
    return y, buffers["h"].numpy()


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_addresses_advance_and_iterations_follow_each_other(threads: int) -> None:
    x = np.random.default_rng(0).standard_normal((COUNT, 16)).astype(np.float32)
    y, h = run_of(plan(looped(*STEPS)), threads, x)
    carries = [np.ones(16, np.float32)]
    for element in x:
        carries.append(carries[-1] + 2 * element)
    np.testing.assert_array_equal(y, np.stack(carries[1:]) + 1)
    np.testing.assert_array_equal(h, carries[-1])


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_two_buffers_take_turns_and_a_loop_runs_in_a_loop(threads: int) -> None:
    old, new = Range("work", 0, 64, "old"), Range("work", 64, 128, "new")
    pair = (row(old, "old", Move(0, 1), Move(64, 2)), row(new, "new", Move(0, 1), Move(-64, 2)))
    inner = looped(launch("wide", [pair[0]], [pair[1]]), count=3)
    made = plan(
        looped(
            Copy(0, row(X, "x_t", DOWN), row(old, "old")),
            inner,
            Copy(0, Range("work", 64, 128, "new"), row(Y, "y_t", DOWN)),
        )
    )
    x = np.arange(COUNT * 16, dtype=np.float32).reshape(COUNT, 16)
    y, _ = run_of(made, threads, x)
    np.testing.assert_array_equal(y, x + 3)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_streams_of_a_loop_run_beside_those_around_it(threads: int) -> None:
    own = Range("work", 0, 64, "a")
    body = (
        launch("add", [CARRY, row(X, "x_t", DOWN)], [CARRY]),
        Record(0, 7),
        launch("wide", [row(X, "x_t", DOWN)], [own], 1),
        Wait(1, 7),
        launch("add", [CARRY, own], [row(Y, "y_t", DOWN)], 1),
    )
    aside = Range("work", 128, 192, "aside")
    made = plan(
        Record(0, 0),
        Wait(1, 0),
        looped(*body),
        launch("wide", [X], [aside], 1),
        Record(1, 1),
        Wait(0, 1),
        streams=2,
    )
    x = np.random.default_rng(1).standard_normal((COUNT, 16)).astype(np.float32)
    y, _ = run_of(made, threads, x)
    h = 1 + np.cumsum(2 * x, 0, dtype=np.float32)
    np.testing.assert_allclose(y, h + 2 * (x + 1), rtol=1e-5, atol=1e-5)


def test_tasks_are_as_many_for_any_number_of_iterations() -> None:
    for count in (1, 2, 1000):
        tasks = resolve(plan(looped(*STEPS, count=count)))
        assert [(t.count, t.tasks, t.inside) for t in tasks] == [(count, 2, -1), *[(0, 0, 0)] * 2]
    assert resolve(plan(looped(*STEPS, count=0))) == []
    assert resolve(plan(looped())) == []


def test_loops_within_loops_have_slots_of_their_own() -> None:
    inner = looped(launch("wide", [CARRY], [Y]), launch("wide", [CARRY], [X], 1))
    body = (inner, launch("wide", [CARRY], [Y], 1))
    tasks = resolve(plan(looped(*body), looped(*body)))
    slots = [t.slot for t in tasks]
    assert slots == [0, 0, 0, 2, 1] * 2


def test_profile_adds_up_the_iterations_and_leaves_the_state() -> None:
    executable = load(plan(looped(*STEPS)), {"h": (h := StateBuffer(np.ones(16, "f4")))}, 2)
    rows = executable.profile([np.ones((COUNT, 16), np.float32)], repeats=5)
    assert [(t.name, t.calls) for t in rows] == [("add", 30), ("wide", 30)]
    assert all(0 < t.least <= t.microseconds / 30 <= t.most for t in rows)
    np.testing.assert_array_equal(h.array, 1)


def test_timeline_shows_a_loop_around_its_steps() -> None:
    executable = load(plan(looped(*STEPS)), {"h": StateBuffer(np.ones(16, "f4"))}, 2)
    line = executable.timeline([np.ones((COUNT, 16), np.float32)])
    assert [step for step, *_ in line] == [0, 1, 2]
    (_, start, stop), *inside = line
    assert start == 0
    assert all(start <= begin <= end <= stop for _, begin, end in inside)


def test_first_nan_names_the_iteration_and_the_state_is_as_before() -> None:
    steps = (*STEPS, launch("root", [row(X, "x_t", DOWN)], [Range("work", 0, 64, "r")]))
    made = plan(looped(*steps))
    executable = CpuExecutable(
        made, {"h": (h := StateBuffer(np.ones(16, "f4")))}, 1, functions(made), graph_of("r")
    )
    x = np.ones((COUNT, 16), np.float32)
    x[3, 5] = -1
    with pytest.raises(RunError) as error:
        executable.run_checked([x])
    assert str(error.value) == (
        "NaN in %r : f32[16], written by root (iteration 3); the state is unchanged"
    )
    np.testing.assert_array_equal(h.array, 1)
    x[3, 5] = 1
    (y,) = executable.run_checked([x])
    np.testing.assert_array_equal(y, 2 + 2 * np.arange(1, 7)[:, None] + np.zeros((6, 16)))


def functions(made: Plan) -> dict[str, int]:
    """The addresses of the plan's kernels."""
    executable = load(made, {"h": StateBuffer(np.ones(16, "f4"))}, 1)
    return {n: ctypes.c_void_p(a).value or 0 for n, a in executable.functions.items()}


def graph_of(name: str) -> Graph:
    """A graph in whose loop a kernel makes a value of this name."""
    x, r = Value("x_t", Type((16,))), Value(name, Type((16,)))
    op = Fused("root", Graph("root", (x,), (), (), (x,)))
    body = Graph("body", (x,), (), (KernelNode(op, (x,), (r,)),), (r,))
    whole, stack = Value("x", Type((COUNT, 16))), Value("rs", Type((COUNT, 16)))
    scan = Node(Scan(body, COUNT, 0, 1), (whole,), (stack,))
    return Graph("p", (whole,), (), (scan,), (stack,))
