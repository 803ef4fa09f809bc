"""The CPU device: arrays in and out, state in place, NaN checks, forks, interrupts, threads."""

from __future__ import annotations

import gc
import os
import signal
import threading
import warnings

import numpy as np
import pytest

from graphc.base.errors import RunError
from graphc.ir import Graph, Type, Value, Where
from graphc.ir.state import StateBuffer, wrote
from graphc.ops.fused import Fused, KernelNode
from graphc.runtime.cpu import addresses
from graphc.runtime.cpu.executable import load
from graphc.runtime.plan.plan import Copy, Plan, Range, Record, Wait
from tests.runtime.handmade import binding, kernel, launch, plan

N = 1000
VECTOR = Type((N,), "f32")

SCALE = kernel(
    "scale",
    "for (int i = 0; i < 1000; i++) ((float*)arguments[1])[i] = 2 * ((float*)arguments[0])[i];",
)
COUNT = kernel(
    "count_up", "for (int i = 0; i < 1000; i++) ((float*)arguments[0])[i] += 1;", phases=(1,)
)
LOG = kernel(
    "logarithm",
    "for (int i = 0; i < 1000; i++) ((float*)arguments[1])[i] ="
    " __builtin_logf(((float*)arguments[0])[i]);",
    phases=(1,),
)


def scale_plan() -> Plan:
    x, y = binding("io", "x", 0, VECTOR), binding("io", "y", N * 4, VECTOR)
    return plan([launch(SCALE, [x.place], [y.place])], [SCALE], inputs=[x], outputs=[y])


def count_plan(name: str = "n") -> Plan:
    n = binding("state", name, 0, VECTOR)
    y = binding("io", "y", 0, VECTOR)
    steps = [launch(COUNT, (), [n.place]), Copy(0, n.place, y.place)]
    return plan(steps, [COUNT], state=[n], outputs=[y])


def test_outputs_are_fresh_arrays():
    executable = load(scale_plan(), {}, 1)
    x = np.arange(N, dtype=np.float32)
    (first,) = executable.run([x])
    (second,) = executable.run([x + 1])
    np.testing.assert_array_equal(first, 2 * x)
    np.testing.assert_array_equal(second, 2 * x + 2)
    assert not np.shares_memory(first, addresses.ARENA.memory)


def test_inputs_are_read_where_they_lie():
    address = kernel("address", "*(void**)arguments[1] = arguments[0];")
    x, y = binding("io", "x", 0, VECTOR), binding("io", "y", N * 4, Type((1,), "i64"))
    made = plan([launch(address, [x.place], [y.place])], [address], inputs=[x], outputs=[y])
    array = np.zeros(N + 1, np.float32)[1:]
    assert load(made, {}, 1).run([array])[0].item() == array.ctypes.data


def test_state_is_updated_in_place_and_marked():
    buffer = StateBuffer(np.zeros(N, np.float32))
    address, version = buffer.array.ctypes.data, buffer.version
    load(count_plan(), {"n": buffer}, 1).run([])
    np.testing.assert_array_equal(buffer.array, np.ones(N, np.float32))
    assert (buffer.array.ctypes.data, buffer.version) == (address, version + 1)


def test_state_that_is_only_read_is_not_marked():
    n, y = binding("state", "n", 0, VECTOR), binding("io", "y", 0, VECTOR)
    made = plan([Copy(0, n.place, y.place)], [], state=[n], outputs=[y])
    buffer = StateBuffer(np.full(N, 3, np.float32))
    version = buffer.version
    assert load(made, {"n": buffer}, 1).run([])[0][0] == 3
    assert buffer.version == version


class Elsewhere:
    """A device's copy of a state buffer."""

    def read_into(self, array: np.ndarray) -> None:
        array[...] = 41


def test_newer_state_of_another_device_is_fetched_first():
    buffer = StateBuffer(np.zeros(N, np.float32))
    buffer.copies["other"] = Elsewhere()
    wrote([buffer], "other")
    assert load(count_plan(), {"n": buffer}, 1).run([])[0][0] == 42
    assert buffer.current == "host"


def test_two_programs_share_state():
    buffer = StateBuffer(np.zeros(N, np.float32))
    first, second = (load(count_plan(name), {name: buffer}, 1) for name in ("n", "m"))
    assert [first.run([])[0][0], second.run([])[0][0], first.run([])[0][0]] == [1, 2, 3]


def test_an_empty_value_does_not_hide_its_neighbour():
    empty, y = binding("io", "empty", 0, Type((0,), "f32")), binding("io", "y", 0, VECTOR)
    n = binding("state", "n", 0, VECTOR)
    for outputs in ([empty, y], [y, empty]):
        made = plan([Copy(0, n.place, y.place)], [], state=[n], outputs=outputs)
        results = load(made, {"n": StateBuffer(np.ones(N, np.float32))}, 1).run([])
        assert sorted(r.sum() for r in results) == [0, N]


def test_the_arena_grows_to_the_largest_program(monkeypatch):
    monkeypatch.setattr(addresses, "ARENA", addresses.HostArena())
    x, y = binding("io", "x", 0, VECTOR), binding("io", "y", N * 4, VECTOR)
    executables = []
    for start in (0, 1 << 20):
        place = Range("work", start, start + N * 4, "w")
        steps = [launch(SCALE, [x.place], [place]), launch(SCALE, [place], [y.place])]
        executables.append(load(plan(steps, [SCALE], inputs=[x], outputs=[y]), {}, 2))
    array = np.arange(N, dtype=np.float32)
    for executable in [*executables, *executables]:
        np.testing.assert_array_equal(executable.run([array])[0], 4 * array)
        assert addresses.ARENA.address % 64 == 0
    assert addresses.ARENA.memory.nbytes == (1 << 20) + N * 4


def test_an_arena_too_large_for_the_machine_is_an_error(monkeypatch):
    monkeypatch.setattr(addresses, "ARENA", addresses.HostArena())
    place = Range("work", 1 << 60, (1 << 60) + N * 4)
    x, y = binding("io", "x", 0, VECTOR), binding("io", "y", N * 4, VECTOR)
    steps = [launch(SCALE, [x.place], [place]), launch(SCALE, [place], [y.place])]
    executable = load(plan(steps, [SCALE], inputs=[x], outputs=[y]), {}, 1)
    with pytest.raises(RunError) as caught:
        executable.run([np.zeros(N, np.float32)])
    assert str(caught.value) == (
        f"out of memory: the work arena needs {(1 << 60) + N * 4} bytes; the state is unchanged"
    )


MODE = """
#include <xmmintrin.h>
extern "C" unsigned get_mode() { return _mm_getcsr(); }
extern "C" void set_mode(unsigned mode) { _mm_setcsr(mode); }
"""


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="MXCSR is a register of x86")
@pytest.mark.parametrize(("denormals", "mode"), [("flush", 0x9FC0), ("keep", 0x1F80)])
@pytest.mark.parametrize("threads", [1, 3])
def test_every_worker_computes_in_the_programs_mode_and_the_caller_keeps_its_own(
    threads, denormals, mode, monkeypatch
):
    monkeypatch.setenv("GRAPHC_DENORMALS", denormals)
    import ctypes

    from graphc.runtime.compilers.shared_objects import CppSource, build

    (library,) = build([CppSource("mode", MODE, "a test")], "")
    library.get_mode.restype = ctypes.c_uint
    modes = kernel(
        "modes",
        'for (long i = 0; i < 20000; i++) asm volatile("");'
        "((unsigned*)arguments[0])[chunk] = _mm_getcsr() & 0xffc0;",
        phases=(64,),
        top="#include <xmmintrin.h>",
    )
    y = binding("io", "modes", 0, Type((64,), "i32"))
    executable = load(plan([launch(modes, (), [y.place])], [modes], outputs=[y]), {}, threads)
    before = library.get_mode()
    library.set_mode(0x1FC0)
    try:
        (result,) = executable.run([])
        after = library.get_mode()
    finally:
        library.set_mode(before)
    assert set(result.tolist()) == {mode}
    assert after & 0xFFC0 == 0x1FC0


def log_plan() -> tuple[Plan, Graph]:
    """count_up(n), then log(x), then y = 2 * log(x); with the graph that has the types."""
    x, y = binding("io", "x", 0, VECTOR), binding("io", "y", N * 4, VECTOR)
    n = binding("state", "n", 0, VECTOR)
    log = Range("work", 0, N * 4, "log")
    steps = [
        launch(COUNT, (), [n.place]),
        launch(LOG, [x.place], [log], where=Where("head", ("model.py:12",))),
        launch(SCALE, [log], [y.place]),
    ]
    value = Value("log", VECTOR)
    body = Graph("logarithm", (x.value,), (), (), (value,))
    node = KernelNode(Fused("logarithm", body), (x.value,), (value,))
    graph = Graph("handmade", (x.value,), (n.value,), (node,), (y.value,))
    kernels = [COUNT, LOG, SCALE]
    return plan(steps, kernels, state=[n], inputs=[x], outputs=[y]), graph


def test_the_first_nan_is_found_and_the_state_is_as_before():
    made, graph = log_plan()
    buffer = StateBuffer(np.full(N, 7, np.float32))
    executable = load(made, {"n": buffer}, 2, graph)
    x = np.full(N, np.e, np.float32)
    np.testing.assert_allclose(executable.run_checked([x])[0], 2, rtol=1e-6)
    assert (buffer.array == 8).all()
    x[3] = -1
    version = buffer.version
    with pytest.raises(RunError) as caught:
        executable.run_checked([x])
    assert str(caught.value) == (
        "NaN in %log : f32[1000], written by logarithm, head model.py:12; the state is unchanged"
    )
    assert (buffer.array == 8).all() and buffer.version == version


def test_nan_in_arguments_is_found_before_the_first_kernel():
    made, graph = log_plan()
    buffer = StateBuffer(np.full(N, 7, np.float32))
    executable = load(made, {"n": buffer}, 1, graph)
    with pytest.raises(RunError) as caught:
        executable.run_checked([np.full(N, np.nan, np.float32)])
    assert str(caught.value) == (
        "NaN in %x : f32[1000], before the first kernel; the state is unchanged"
    )
    buffer.array[5] = np.nan
    with pytest.raises(RunError) as caught:
        executable.run_checked([np.ones(N, np.float32)])
    assert str(caught.value) == (
        "NaN in %n : f32[1000], before the first kernel; the state is unchanged"
    )
    assert np.isnan(buffer.array[5]) and (buffer.array[6:] == 7).all()


def test_profile_measures_each_launch_and_leaves_the_state():
    slow = kernel("slow", 'for (long i = 0; i < 3000000; i++) asm volatile("");')
    n, y = binding("state", "n", 0, VECTOR), binding("io", "y", 0, VECTOR)
    steps = [
        Record(0, 0),
        Wait(1, 0),
        launch(COUNT, (), [n.place]),
        launch(slow, (), (), stream=1),
        Record(1, 1),
        Wait(0, 1),
        Copy(0, n.place, y.place),
    ]
    buffer = StateBuffer(np.zeros(N, np.float32))
    made = plan(steps, [COUNT, slow], state=[n], outputs=[y])
    executable = load(made, {"n": buffer}, 2)
    rows = executable.profile([], repeats=5)
    assert [(t.step, t.name, t.calls) for t in rows] == [
        *((2, "count_up", 5), (3, "slow", 5), (6, "copy", 5)),
    ]
    assert all(0 < t.least <= t.microseconds / 5 <= t.most for t in rows)
    assert rows[1].microseconds > rows[0].microseconds
    whole = executable.calls([], repeats=3)
    assert len(whole) == 3
    assert min(whole) >= rows[1].least / 10  # which others slowed, or a slower clock
    assert (buffer.array == 0).all()
    line = executable.timeline([])
    assert [step for step, _, _ in line] == [2, 3, 6]
    assert all(0 <= start <= stop for _, start, stop in line)
    assert line[2][1] >= max(line[0][2], line[1][2])
    assert (buffer.array == 0).all()


CHUNKED = kernel(
    "chunked",
    "for (int i = chunk * 10; i < chunk * 10 + 10; i++) ((float*)arguments[0])[i] += 1;",
    phases=(100,),
)


def chunked_plan() -> Plan:
    n = binding("state", "n", 0, VECTOR)
    return plan([launch(CHUNKED, (), [n.place])] * 3, [CHUNKED], state=[n])


def test_two_python_threads_may_call_at_once():
    buffer = StateBuffer(np.zeros(N, np.float32))
    executables = [load(chunked_plan(), {"n": buffer}, threads) for threads in (2, 3)]
    callers = [
        threading.Thread(target=lambda e=e: [e.run([]) for _ in range(400)]) for e in executables
    ]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert (buffer.array == 2 * 400 * 3).all()


def test_a_forked_child_has_workers_of_its_own():
    made = chunked_plan()
    buffer = StateBuffer(np.zeros(N, np.float32))
    executable = load(made, {"n": buffer}, 2)
    executable.run([])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        for _ in range(50):
            executable.run([])
        other = StateBuffer(np.zeros(N, np.float32))
        load(made, {"n": other}, 3).run([])
        gc.collect()
        os._exit(0 if (buffer.array == 153).all() and (other.array == 3).all() else 1)
    for _ in range(50):
        executable.run([])
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert (buffer.array == 153).all()


def test_a_fork_waits_for_the_call_in_progress():
    linger = kernel(
        "linger",
        "volatile float* n = (float*)arguments[0]; n[0] = n[0] + 1;"
        'for (long i = 0; i < 30000000; i++) asm volatile(""); n[1] = n[1] + 1;',
    )
    n = binding("state", "n", 0, VECTOR)
    buffer = StateBuffer(np.zeros(N, np.float32))
    executable = load(plan([launch(linger, (), [n.place])], [linger], state=[n]), {"n": buffer}, 1)
    caller = threading.Thread(target=lambda: [executable.run([]) for _ in range(3)])
    caller.start()
    while buffer.array[0] == 0:
        pass
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        os._exit(0 if buffer.array[0] == buffer.array[1] else 1)
    caller.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.fixture
def interruptible():
    """Python's own handler: a shell lets what it starts in the background ignore interrupts."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_takes_effect_after_the_step():
    interrupted = kernel(
        "interrupted",
        "raise(SIGINT); for (int i = 0; i < 1000; i++) ((float*)arguments[0])[i] += 1;",
        top="#include <signal.h>",
    )
    n = binding("state", "n", 0, VECTOR)
    buffer = StateBuffer(np.zeros(N, np.float32))
    made = plan([launch(interrupted, (), [n.place])], [interrupted], state=[n])
    executable = load(made, {"n": buffer}, 2)
    version = buffer.version
    for step in (1, 2):
        with pytest.raises(KeyboardInterrupt):
            executable.run([])
        assert (buffer.array == step).all() and buffer.version == version + step
