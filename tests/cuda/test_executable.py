"""Plans on the CUDA device, which is simulated here: results, state, memory, errors."""

from __future__ import annotations

import gc
import re
import threading
from typing import Any

import numpy as np
import pytest

import graphc
from graphc import nn, optim
from graphc.ir.state import StateBuffer
from graphc.program import Program
from graphc.runtime.cuda import CudaExecutable, Device, slot, staging
from graphc.runtime.plan.plan import Plan
from graphc.runtime.sim import Simulator
from tests.small_models import MODELS, loss_fn
from tests.support.executable import batch, trainer
from tests.tools import need_command


@pytest.fixture(autouse=True)
def compiler() -> None:
    need_command("g++", "clang++")


def on_device(plan: Plan, state: dict[str, StateBuffer], **settings: Any) -> CudaExecutable:
    """The plan on a simulated device of its own."""
    replay = settings.pop("replay", True)
    name = f"sim {settings}"
    device = Device(Simulator(**settings), name, declares=True)
    return CudaExecutable(plan, state, device, replay=replay)


def buffers(program: Program) -> dict[str, StateBuffer]:
    """State of its own for a program's plan, with the same contents."""
    return {name: StateBuffer(buffer.numpy()) for name, buffer in program._state.items()}


def test_parameters_do_not_depend_on_streams_replay_or_the_order_of_the_device():
    x, y = batch("mlp")
    expected = None
    for streams in (1, 2, 3, 4, 8):
        program = trainer("mlp", streams=streams)
        for policy in ("random", "lazy", "eager"):
            state = buffers(program)
            settings = {"seed": streams, "policy": policy, "replay": policy != "lazy"}
            executable = on_device(program.plan, state, **settings)
            losses = [executable.run([x, y])[0] for _ in range(3)]
            found = [*losses, *(buffer.numpy() for buffer in state.values())]
            expected = expected or found
            for a, b in zip(found, expected, strict=True):
                np.testing.assert_array_equal(a, b)


def test_a_call_without_outputs_that_are_read_does_not_wait():
    program = trainer("mlp")
    executable = on_device(program.plan, buffers(program))
    log = executable.device.driver.log
    executable.run(batch("mlp"))
    before = len(log)
    results = [executable.submit(batch("mlp")) for _ in range(2)]
    assert len(log) == before, "nothing has run"
    assert results[0].read()[0] > results[1].read()[0]
    assert len(log) > before


def test_results_that_nobody_has_read_are_not_overwritten():
    program = graphc.compile(lambda x: x + 1.0, graphc.spec((3,)), device="sim")
    executable = program._executable
    given = [np.full(3, i, np.float32) for i in range(5)]
    results = [executable.submit([x]) for x in given]
    for x, result in zip(given, results, strict=True):
        np.testing.assert_array_equal(result.read()[0], x + 1)
        np.testing.assert_array_equal(result.read()[0], x + 1)


def test_programs_share_the_parameters_on_the_device():
    x, y = batch("mlp")
    model = MODELS["mlp"][0]()
    train = trainer("mlp", model=model)
    infer = graphc.compile(model, graphc.spec(x.shape), device="sim")
    before = infer(x)
    train(x, y)
    expected = graphc.compile(model, graphc.spec(x.shape), device="reference")(x)
    assert not np.allclose(before, expected, atol=1e-4)
    np.testing.assert_allclose(infer(x), expected, atol=1e-5)


def test_a_model_may_train_on_one_device_after_another():
    x, y = batch("mlp")
    model, alone = MODELS["mlp"][0](), trainer("mlp", "reference")
    rule = optim.Adam(lr=0.01)
    specs = graphc.spec(x.shape), graphc.spec(y.shape, "int32")
    graphc.seed(0)
    model = MODELS["mlp"][0]()
    programs = [
        graphc.compile(loss_fn, model, *specs, update=rule, device=device)
        for device in ("sim", "cpu", "reference")
    ]
    for number in range(9):
        loss = float(programs[number % 3](x, y))
        assert loss == pytest.approx(float(alone(x, y)), rel=2e-5)


def test_loaded_state_and_a_new_rate_reach_the_device():
    x, y = batch("mlp")
    graphc.seed(0)
    model = MODELS["mlp"][0]()
    train = trainer("mlp", model=model)
    before = {name: array.copy() for name, array in model.state_dict().items()}
    first = float(train(x, y))
    train.lr = 0.0
    model.load_state_dict(before)
    losses = [float(train(x, y)) for _ in range(2)]
    assert losses == [first, first]


@pytest.mark.parametrize(("cores", "shared"), [(1, 1 << 20), (4, 512), (16, 64)])
def test_arrays_larger_than_the_staging_memory_pass_through_it(monkeypatch, cores, shared):
    monkeypatch.setattr(staging, "HALF_BYTES", 1024)
    monkeypatch.setattr(staging, "SHARED", shared)
    monkeypatch.setattr(staging, "usable_cores", lambda: cores)
    monkeypatch.setattr(slot, "SMALL", 0)
    program = graphc.compile(
        lambda x, y: (x + y, x * y), *[graphc.spec((40, 50))] * 2, device="sim"
    )
    executable = on_device(program.plan, {})
    x, y = np.random.default_rng(0).standard_normal((2, 40, 50)).astype(np.float32)
    for _ in range(3):
        total, product = executable.run([x, y])
        np.testing.assert_array_equal(total, x + y)
        np.testing.assert_array_equal(product, x * y)
    network = trainer("mlp")
    state = buffers(network)
    before = {name: buffer.numpy() for name, buffer in state.items()}
    trained = CudaExecutable(network.plan, state, executable.device)
    trained.run(batch("mlp"))
    assert not np.array_equal(state["l1.weight"].numpy(), before["l1.weight"])


def test_a_larger_program_moves_the_arena_of_those_before_it():
    small = graphc.compile(lambda x: graphc.exp(x), graphc.spec((8,)), device="sim")
    first = on_device(small.plan, {})
    x = np.linspace(-1, 1, 8, dtype=np.float32)
    expected = first.run([x])[0]
    address = first.device.arena.address
    large = graphc.compile(lambda x: graphc.exp(x), graphc.spec((9000,)), device="sim")
    second = CudaExecutable(large.plan, {}, first.device)
    assert first.device.arena.address != address
    for _ in range(2):
        np.testing.assert_array_equal(first.run([x])[0], expected)
    assert second.run([np.zeros(9000, np.float32)])[0].sum() == 9000


def test_a_graph_is_brought_up_to_date_where_the_arena_has_moved():
    device = Device(Simulator(), "sim moved", declares=True)
    program = trainer("mlp", streams=2)
    executable = CudaExecutable(program.plan, buffers(program), device)
    losses = [float(executable.run(batch("mlp"))[0]) for _ in range(2)]
    captured = executable._kept.captured
    large = graphc.compile(lambda x: graphc.exp(x), graphc.spec((90_000,)), device="sim")
    CudaExecutable(large.plan, {}, device)
    losses += [float(executable.run(batch("mlp"))[0]) for _ in range(2)]
    assert executable._kept.captured is captured
    train = trainer("mlp", streams=2)
    assert losses == [float(train(*batch("mlp"))) for _ in range(4)]


def test_memory_that_is_too_small_is_known_when_compiling():
    program = graphc.compile(
        lambda x: graphc.exp(x) @ graphc.permute_dims(x, (1, 0)),
        graphc.spec((100, 90)),
        device="sim",
    )
    with pytest.raises(graphc.RunError) as error:
        on_device(program.plan, {}, memory=50_000)
    assert re.fullmatch(
        r"out of memory on sim {'memory': 50000}: function takes 0\.04 MB of work memory, 0\.08 MB "
        r"for inputs and outputs and 0\.00 MB for state; of 0\.05 MB are 0\.05 MB free\. Nothing "
        r"has run, the state is unchanged\. The largest buffers: %matmul 0\.04 MB, %exp 0\.04 MB "
        r"\(test_executable\.py:\d+\), %x 0\.04 MB",
        str(error.value),
    )


def test_a_program_of_empty_arrays_runs():
    program = graphc.compile(lambda x: (x + 1.0, graphc.sum(x)), graphc.spec((0, 4)), device="sim")
    for _ in range(2):
        empty, total = program(np.zeros((0, 4), np.float32))
        assert empty.shape == (0, 4)
        assert total == 0


def test_several_threads_may_call():
    program = graphc.compile(lambda x: x * 2.0 + 1.0, graphc.spec((100,)), device="sim")
    wrong: list[int] = []

    def call(number: int) -> None:
        x = np.full(100, number, np.float32)
        for _ in range(10):
            if not (program(x) == 2 * number + 1).all():
                wrong.append(number)

    threads = [threading.Thread(target=call, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_nan_is_named_and_the_state_is_what_it_was(monkeypatch):
    monkeypatch.setenv("GRAPHC_CHECK", "nan")
    train = trainer("mlp")
    x, y = batch("mlp")
    loss = float(train(x, y))
    before = train.state_dict()
    bad = x.copy()
    bad[3, 2] = np.nan
    with pytest.raises(graphc.RunError) as error:
        train(bad, y)
    assert str(error.value) == (
        "NaN in %x : f32[20,12], before the first kernel; the state is unchanged"
    )
    assert_same(train.state_dict(), before)
    assert float(train(x, y)) < loss


def test_the_kernel_that_makes_a_nan_is_named(monkeypatch):
    monkeypatch.setenv("GRAPHC_CHECK", "nan")
    layer = nn.Linear(3, 2)
    program = graphc.compile(lambda x: graphc.sqrt(layer(x)), graphc.spec((4, 3)), device="sim")
    with pytest.raises(graphc.RunError) as error:
        program(np.full((4, 3), -100, np.float32) * np.sign(layer.weight.numpy().sum()))
    assert re.fullmatch(
        r"NaN in %sqrt : f32\[4,2\], written by \w+, test_executable\.py:\d+; "
        r"the state is unchanged",
        str(error.value),
    )


def test_a_profile_names_each_launch_and_leaves_the_state(monkeypatch):
    train = trainer("mlp", streams=2)
    x, y = batch("mlp")
    train(x, y)
    before = train.state_dict()
    rows = train._executable.profile([x, y], repeats=2)
    assert [t.name for t in rows] == [
        getattr(s, "kernel", "copy") for s in train.plan.steps if hasattr(s, "where")
    ]
    assert all(t.calls == 2 and t.microseconds > 0 for t in rows)
    assert "l1_wgrad" in str(train.profile(x, y, repeats=1))
    assert_same(train.state_dict(), before)


def test_steps_one_behind_another_are_timed_and_leave_the_state(monkeypatch):
    """Each is a launch of the graph: nothing comes from the host or goes there in between."""
    train = trainer("mlp")
    executable: Any = train._executable
    before, played = train.state_dict(), []
    play = executable._play
    monkeypatch.setattr(executable, "_play", lambda: (played.append(1), play()))
    found = executable.replays(batch("mlp"), 3, rounds=2)
    assert len(found) == 2 and min(found) > 0
    assert len(played) == 1 + 2 * 3
    assert_same(train.state_dict(), before)


def test_a_timeline_respects_the_order_of_each_stream():
    train = trainer("mlp", streams=2)
    rows = train._executable.timeline(batch("mlp"))
    assert min(start for _, start, _ in rows) == 0
    ends: dict[int, float] = {}
    for index, start, stop in rows:
        stream = train.plan.steps[index].stream
        assert ends.get(stream, 0) <= start <= stop
        ends[stream] = stop
    assert set(ends) == {0, 1}


def test_what_a_program_held_is_freed_at_the_next_call():
    device = Device(Simulator(), "sim freed", declares=True)
    program = trainer("mlp")
    state = buffers(program)
    executable = CudaExecutable(program.plan, state, device)
    executable.run(batch("mlp"))
    used = device.driver.memory.used
    size = sum(buffer.array.nbytes for buffer in state.values())
    del executable, state
    gc.collect()
    assert device.driver.memory.used == used
    with device.entered():
        assert device.driver.memory.used == used - size


def test_the_device_checks_every_access_if_asked_to(monkeypatch):
    monkeypatch.setenv("GRAPHC_CHECK", "race")
    train = trainer("mlp", streams=2)
    assert train._executable.device.driver.check
    x, y = batch("mlp")
    assert float(train(x, y)) > float(train(x, y))


def assert_same(found: dict[str, Any], expected: dict[str, Any]) -> None:
    assert found.keys() == expected.keys()
    for key, array in found.items():
        np.testing.assert_array_equal(array, expected[key], err_msg=key)


def test_kernels_that_differ_in_names_alone_are_compiled_once(monkeypatch):
    compiled = []
    one, several = Simulator.compile, Simulator.compile_all

    def counting(self: Simulator, text: str, name: str, where: str = "") -> bytes:
        compiled.append(name)
        return one(self, text, name, where)

    def counting_all(self: Simulator, kernels: Any) -> list[bytes]:
        compiled.extend(name for _, name, _ in kernels)
        return several(self, kernels)

    monkeypatch.setattr(Simulator, "compile", counting)
    monkeypatch.setattr(Simulator, "compile_all", counting_all)
    layers = nn.Sequential(*[nn.Linear(12, 12) for _ in range(4)])
    x = np.ones((5, 12), np.float32)
    program = graphc.compile(layers, graphc.spec((5, 12)), device="sim")
    assert len(compiled) == 1 and len(program.kernels) == 4
    expected = graphc.compile(layers, graphc.spec((5, 12)), device="reference")(x)
    np.testing.assert_allclose(program(x), expected, rtol=1e-5, atol=1e-6)
    checked = on_device(program.plan, buffers(program), check=True)
    assert sorted(compiled[1:]) == sorted(program.kernels)
    np.testing.assert_array_equal(checked.run([x])[0], program(x))


def test_launches_that_begin_early_compute_the_same_bits(monkeypatch):
    expected = trainer("mlp", streams=2)
    losses = [float(expected(*batch("mlp"))) for _ in range(3)]
    begun: list[str] = []
    early = Simulator.early

    def counting(self: Simulator, buffer: bytes, name: str) -> Any:
        begun.append(name)
        return early(self, buffer, name)

    monkeypatch.setattr(Simulator, "early", counting)
    monkeypatch.setenv("GRAPHC_EARLY_LAUNCH", "1")
    train = trainer("mlp", streams=2)
    assert [float(train(*batch("mlp"))) for _ in range(3)] == losses
    assert_same(train.state_dict(), expected.state_dict())
    assert len(begun) > 5
