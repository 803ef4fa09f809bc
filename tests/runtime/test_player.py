"""The native player: tasks run after what they wait for, at once where they may."""

from __future__ import annotations

import os
import random
import re
import subprocess

import numpy as np
import pytest

from graphc.base.errors import PlanError, RunError
from graphc.ir import Type
from graphc.ir.state import StateBuffer
from graphc.runtime.compilers.shipped import PLAYER_SOURCE
from graphc.runtime.cpu import player
from graphc.runtime.cpu.executable import CpuExecutable, load
from graphc.runtime.cpu.player import COPY_CHUNK, resolve
from graphc.runtime.plan.plan import Copy, Launch, Plan, Range, Record, Step, Wait
from tests.runtime.handmade import binding, kernel, launch, plan
from tests.tools import ROOT, need_command

CHUNKS = 5
EXTENT = 80
BYTES = EXTENT * 4

# Not commutative and not idempotent: any other order gives other numbers. Some chunks dawdle.
MIX = kernel(
    "mix",
    """
    const unsigned *a = (unsigned*)arguments[0], *b = (unsigned*)arguments[1];
    unsigned* out = (unsigned*)arguments[2];
    unsigned state = chunk * 2654435761u + a[chunk] + b[0];
    for (unsigned i = state % 7 * 300; i > 0; i--) asm volatile("");
    if (phase == 0)
        for (int i = chunk * 16; i < chunk * 16 + 16; i++) out[i] = a[i] * 3u + b[i] + 1u;
    else
        for (int i = 0; i < 80; i++) out[i] = out[i] * 5u + i;
    """,
    phases=(CHUNKS, 1),
)


def mixed(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return (a * np.uint32(3) + b + np.uint32(1)) * np.uint32(5) + np.arange(EXTENT, dtype=np.uint32)


def random_plan(seed: int, streams: int, launches: int = 40, buffers: int = 6) -> Plan:
    """Launches on random streams over a few work buffers, each ordered after all that it
    conflicts with, by an event where the two are on different streams."""
    rng = random.Random(seed)
    places = [Range("work", i * BYTES, (i + 1) * BYTES) for i in range(buffers)]
    fill = kernel(
        "fill",
        "for (int b = 0; b < 6; b++) for (int i = 0; i < 80; i++)"
        " ((unsigned*)arguments[b])[i] = b * 100 + i;",
    )
    steps: list[Step] = [launch(fill, (), places)]
    issued: list[Launch] = [steps[0]]  # type: ignore[list-item]
    events = 0
    for _ in range(launches):
        a, b, out = rng.choice(places), rng.choice(places), rng.choice(places)
        if out in (a, b):
            continue
        new = launch(MIX, (a, b), (out,), rng.randrange(streams))
        for old in issued:
            if old.stream != new.stream and conflict(old, new):
                at = next(i for i, step in enumerate(steps) if step is old) + 1
                steps.insert(at, Record(old.stream, events))
                steps.append(Wait(new.stream, events))
                events += 1
        steps.append(new)
        issued.append(new)
    for stream in range(1, streams):
        steps += [Record(stream, events), Wait(0, events)]
        events += 1
    total = Range("work", 0, buffers * BYTES)
    result = binding("io", "result", 0, Type((buffers, EXTENT), "i32"))
    steps.append(Copy(0, total, result.place))
    return plan(steps, [fill, MIX], outputs=[result])


def conflict(a: Launch, b: Launch) -> bool:
    def touch(writes: Launch, other: Launch) -> bool:
        return any(w.overlaps(o) for w in writes.writes for o in other.arguments)

    return touch(a, b) or touch(b, a)


def expected(made: Plan) -> np.ndarray:
    """The result of `made` by NumPy, in the order of its steps."""
    count = made.peak_bytes // BYTES
    rows = [np.arange(EXTENT, dtype=np.uint32) + np.uint32(i * 100) for i in range(count)]
    for step in made.steps:
        if isinstance(step, Launch) and step.kernel == "mix":
            a, b, out = (place.start // BYTES for place in step.arguments)
            rows[out] = mixed(rows[a], rows[b])
    return np.stack(rows).view(np.int32)


@pytest.mark.parametrize("streams", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("threads", [1, 2, 3, 5])
def test_results_have_the_same_bits_for_all_streams_and_threads(streams, threads):
    for seed in range(4):
        made = random_plan(seed, streams)
        executable = load(made, {}, threads)
        wanted = expected(made)
        for _ in range(60):
            (result,) = executable.run([])
            np.testing.assert_array_equal(result, wanted)


def test_each_phase_begins_after_the_one_before_it_has_ended():
    count = kernel(
        "count",
        """
        int* counts = (int*)arguments[0];
        if (phase > 0 && __atomic_load_n(&counts[phase - 1], __ATOMIC_SEQ_CST) != 7) counts[9] = 1;
        __atomic_fetch_add(&counts[phase], 1, __ATOMIC_SEQ_CST);
        """,
        phases=(7, 7, 7, 7),
    )
    clear = kernel("clear", "for (int i = 0; i < 10; i++) ((int*)arguments[0])[i] = 0;")
    out = binding("io", "counts", 0, Type((10,), "i32"))
    made = plan([launch(clear, (), [out.place]), launch(count, (), [out.place])], [clear, count])
    made = plan(made.steps, [clear, count], outputs=[out])
    executable = load(made, {}, 3)
    for _ in range(300):
        (counts,) = executable.run([])
        assert counts.tolist() == [7, 7, 7, 7, 0, 0, 0, 0, 0, 0]


MEET = """
int* flags = (int*)arguments[0];
__atomic_store_n(&flags[{mine}], 1, __ATOMIC_SEQ_CST);
for (long i = 0; i < 1000000000L; i++)
    if (__atomic_load_n(&flags[{other}], __ATOMIC_SEQ_CST)) {{ flags[{mine} + 2] = 1; return; }}
"""


def test_two_streams_run_at_once():
    left, right = (
        kernel("left", MEET.format(mine=0, other=1)),
        kernel("right", MEET.format(mine=1, other=0)),
    )
    flags = binding("state", "flags", 0, Type((4,), "i32"))
    steps = [
        Record(0, 0),
        Wait(1, 0),
        launch(left, (), [flags.place]),
        launch(right, (), [flags.place], stream=1),
        Record(1, 1),
        Wait(0, 1),
    ]
    buffer = StateBuffer(np.zeros(4, np.int32))
    executable = load(plan(steps, [left, right], state=[flags]), {"flags": buffer}, 2)
    for _ in range(20):
        buffer.assign(np.zeros(4, np.int32))
        executable.run([])
        assert buffer.array.tolist() == [1, 1, 1, 1]


def test_chunks_of_one_launch_run_at_once():
    meet = kernel(
        "meet",
        "const int other = 1 - chunk;" + MEET.format(mine="chunk", other="other"),
        phases=(2,),
    )
    flags = binding("state", "flags", 0, Type((4,), "i32"))
    buffer = StateBuffer(np.zeros(4, np.int32))
    executable = load(
        plan([launch(meet, (), [flags.place])], [meet], state=[flags]), {"flags": buffer}, 2
    )
    executable.run([])
    assert buffer.array.tolist() == [1, 1, 1, 1]


def test_an_event_carries_what_its_stream_waited_for():
    # Stream 1 does nothing between its wait and its record: stream 2 must still wait for stream 0.
    set_it = kernel(
        "set_it",
        'for (long i = 0; i < 300000; i++) asm volatile(""); *(int*)arguments[0] = 42;',
    )
    get_it = kernel("get_it", "*(int*)arguments[1] = *(int*)arguments[0];")
    place, out = Range("work", 0, 4), binding("io", "out", 0, Type((1,), "i32"))
    clear = kernel("zero", "*(int*)arguments[0] = 0;")
    steps = [
        launch(clear, (), [place]),
        launch(set_it, (), [place]),
        Record(0, 0),
        Wait(1, 0),
        Record(1, 1),
        Wait(2, 1),
        launch(get_it, [place], [out.place], stream=2),
        Record(2, 2),
        Wait(0, 2),
    ]
    made = plan(steps, [clear, set_it, get_it], outputs=[out])
    assert [task.predecessors for task in resolve(made)] == [(), (0,), (1,)]
    executable = load(made, {}, 2)
    for _ in range(50):
        assert executable.run([])[0].tolist() == [42]


def test_a_phase_without_chunks_is_passed_over():
    empty = kernel("empty", "*(int*)arguments[0] = 99;", phases=(0,))
    one = kernel("one", "*(int*)arguments[0] += 1;", phases=(0, 1, 0))
    state = binding("state", "n", 0, Type((1,), "i32"))
    buffer = StateBuffer(np.zeros(1, np.int32))
    steps = [launch(k, (), [state.place]) for k in (empty, one, empty)]
    made = plan(steps, [empty, one], state=[state])
    for threads in (1, 2):
        load(made, {"n": buffer}, threads).run([])
    assert buffer.array.tolist() == [2]
    load(plan([steps[0]], [empty], state=[state]), {"n": buffer}, 2).run([])
    assert buffer.array.tolist() == [2]


def test_a_copy_moves_all_its_bytes():
    n = 3 * COPY_CHUNK + 5
    x, y = (binding("io", v, s, Type((n,), "u8")) for v, s in (("x", 0), ("y", n)))
    executable = load(plan([Copy(0, x.place, y.place)], [], inputs=[x], outputs=[y]), {}, 2)
    values = np.random.default_rng(0).integers(0, 255, n, np.uint8)
    np.testing.assert_array_equal(executable.run([values])[0], values)


def test_the_order_of_the_steps_alone_when_that_is_asked():
    made = random_plan(3, streams=3)
    tasks = resolve(made, in_order=True)
    assert [t.predecessors for t in tasks] == [(i - 1,) if i else () for i in range(len(tasks))]


def test_a_wait_for_an_event_that_is_recorded_later_is_an_error():
    made = plan([Wait(1, 5), Record(0, 5)], [])
    with pytest.raises(PlanError) as caught:
        resolve(made)
    assert str(caught.value) == "step 0 waits for event 5, never recorded before"


def test_memory_that_runs_out_while_a_plan_is_packed_is_an_error(monkeypatch):
    class Full:
        """The player's library, which finds no memory for tasks."""

        def __getattr__(self, name: str) -> object:
            return (lambda *_: None) if name == "graphc_load" else getattr(library, name)

    library = player._library()
    monkeypatch.setattr(player, "_library", Full)
    made = random_plan(0, streams=1, launches=3)
    with pytest.raises(RunError) as caught:
        load(made, {}, 1)
    count = len(resolve(made))
    assert str(caught.value) == f"out of memory: the list of {count} tasks of {made.name}"


def test_freeing_players_while_workers_spin_is_safe():
    made = random_plan(1, streams=2, launches=4)
    wanted = expected(made)
    functions = load(made, {}, 2).functions
    for _ in range(300):
        (result,) = CpuExecutable(made, {}, 2, functions).run([])
        np.testing.assert_array_equal(result, wanted)


@pytest.mark.parametrize("ordered", [True, False])
def test_the_thread_sanitizer_sees_no_race_and_would_see_one(tmp_path, ordered):
    """Random programs on 2 to 4 threads; and again with the release of a ticket left out."""
    compiler = need_command("g++", "clang++")
    for header in PLAYER_SOURCE.parent.glob("*.h"):
        text = header.read_text()
        if not ordered and header.name == "program.h":
            assert "store(ticket, std::memory_order_release)" in text
            text = re.sub(r"(?<=store\(ticket, std::memory_order_)release", "relaxed", text)
        (tmp_path / header.name).write_text(text)
    driver = tmp_path / "race_driver"
    source = ROOT / "tests" / "runtime" / "race_driver.cpp"
    flags = ["-std=c++17", "-O1", "-g", "-fsanitize=thread", "-pthread", f"-I{tmp_path}"]
    built = run([compiler, *flags, str(source), "-o", str(driver)])
    if "tsan" in built.stderr:
        pytest.skip("the compiler has no thread sanitizer")
    assert built.returncode == 0, built.stderr
    done = run([str(driver)], TSAN_OPTIONS="atexit_sleep_ms=0:halt_on_error=1")
    if "unexpected memory mapping" in done.stderr:
        pytest.skip("the thread sanitizer does not fit this kernel's memory map")
    assert (done.returncode == 0) == ordered, done.stdout + done.stderr
    assert ("data race" in done.stderr) != ordered


def run(command: list[str], **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, capture_output=True, text=True, timeout=300, env={**os.environ, **environment}
    )
