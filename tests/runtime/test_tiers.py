"""Programs that begin with prebuilt kernels, which compiled ones replace between calls."""

from __future__ import annotations

import random
import re
import threading
import time
from pathlib import Path

import pytest

from graphc.base.errors import CompileError
from graphc.runtime.compilers.background_builds import BUILDS
from graphc.runtime.plan.plan import Plan
from graphc.runtime.tuning import stream_autotuner
from tests.runtime.compiling import calling, calls
from tests.support.tiers import STAND_INS, StandIns, outcome, program, stand_ins, steps, stocked
from tests.tools import need_command

__all__ = ["stand_ins", "stocked"]


FAILS = """
[ "$1" = --version ] && exec {gxx} "$@"
echo "x.cpp:1: error: broken" >&2
exit 1
"""
"""A compiler that compiles nothing."""


def failing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calling(tmp_path, monkeypatch, FAILS.format(gxx=need_command("g++", "clang++")))


def tier_note(plan: Plan | None) -> str:
    assert plan is not None
    (note,) = [note for note in plan.notes if note.startswith("tiers: ")]
    assert note in str(plan)
    return note


def compiled_kernels(tmp_path: Path) -> int:
    return sum("-" not in path.name for path in (tmp_path / "cache" / "cpu").glob("*.so"))


@pytest.mark.parametrize("model", STAND_INS)
def test_compiled_kernels_replace_prebuilt_ones_and_the_bits_stay(
    stand_ins: StandIns, model: str
) -> None:
    begun, arguments = program(model)
    count = len(begun.plan.kernels)
    assert not begun.ready
    assert (
        tier_note(begun.plan)
        == f"tiers: {count} of {count} kernels run prebuilt until they are compiled"
    )
    before = stand_ins.played
    losses = [begun(*arguments) for _ in range(2)]
    assert stand_ins.played > before
    begun.wait()
    assert begun.ready
    before = stand_ins.played
    losses += [begun(*arguments) for _ in range(2)]
    assert stand_ins.played == before
    compiled, arguments = program(model, wait=True)
    assert compiled.ready and not [n for n in compiled.plan.notes if n.startswith("tiers")]
    assert steps(compiled, arguments, 4) == outcome(begun, losses)
    assert stand_ins.played == before


def test_without_compiling_all_calls_are_prebuilt(
    stand_ins: StandIns, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRAPHC_TIER", "0")
    failing(tmp_path, monkeypatch)
    begun, arguments = program("mlp")
    count = len(begun.plan.kernels)
    assert (
        begun.ready and tier_note(begun.plan) == f"tiers: {count} of {count} kernels run prebuilt"
    )
    begun.wait()
    before = stand_ins.played
    first = begun(*arguments)
    assert first.shape == () and stand_ins.played > before
    assert calls(tmp_path) == 0 == compiled_kernels(tmp_path)


def test_a_kernel_without_a_prebuilt_function_is_compiled_first(
    stand_ins: StandIns, tmp_path: Path
) -> None:
    stand_ins.patch.setattr(BUILDS, "order", lambda *order: None)
    stand_ins.lacking({"contract"})
    begun, arguments = program("mlp")
    contractions = [n for n, k in begun.plan.kernels.items() if k.template == "contract"]
    prebuilt = len(begun.plan.kernels) - len(contractions)
    assert re.fullmatch(
        rf"tiers: {prebuilt} of {len(begun.plan.kernels)} kernels run prebuilt until they are "
        r"compiled; compiled before the first call, as no prebuilt function computes them: "
        rf"\w+, \w+, \w+, \w+ and {len(contractions) - 4} more",
        tier_note(begun.plan),
    )
    assert compiled_kernels(tmp_path) == len(contractions)
    expected = steps(*program("mlp", wait=True), 2)
    assert steps(begun, arguments, 2) == expected


@pytest.mark.parametrize("model", STAND_INS)
def test_a_run_that_swaps_at_any_moment_equals_one_that_never_does(
    stand_ins: StandIns, model: str
) -> None:
    stand_ins.patch.setattr(BUILDS, "order", lambda *order: None)
    never, arguments = program(model)
    expected = steps(never, arguments, 60)
    swapping, arguments = program(model)
    compiled, _ = program(model, wait=True)
    executable = swapping._executable
    kernels = list(executable.functions)
    both = {n: (executable.functions[n], compiled._executable.functions[n]) for n in kernels}
    assert all(first != second for first, second in both.values())
    chance, ended, swaps = random.Random(0), threading.Event(), []

    def swap() -> None:
        while not ended.is_set() or len(swaps) < 200:
            name = chance.choice(kernels)
            executable._finished.append((name, chance.choice(both[name])))
            swaps.append(name)
            time.sleep(chance.random() * 1e-3)

    thread = threading.Thread(target=swap)
    thread.start()
    losses = []
    while len(losses) < 60:
        if len(swaps) >= 200 * len(losses) / 60:
            losses.append(swapping(*arguments))
    ended.set()
    thread.join()
    assert len(swaps) >= 200
    assert outcome(swapping, losses) == expected


def test_two_threads_may_call_while_kernels_are_swapped(stand_ins: StandIns) -> None:
    expected = steps(*program("mlp", wait=True), 40)
    stand_ins.forget()
    begun, arguments = program("mlp")
    losses: list[object] = []
    threads = [
        threading.Thread(target=lambda: [losses.append(begun(*arguments)) for _ in range(15)])
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    begun.wait()
    for thread in threads:
        thread.join()
    losses += [begun(*arguments) for _ in range(10)]
    # Each step sees what the one before it has left, whoever called it.
    assert sorted(outcome(begun, losses)) == sorted(expected)


def test_programs_share_kernels_that_are_built_once(stand_ins: StandIns, tmp_path: Path) -> None:
    first, arguments = program("mlp")
    second, _ = program("mlp")
    first.wait()
    second.wait()
    built = compiled_kernels(tmp_path)
    steps(first, arguments, 1)
    assert built == len(set(first._executable.functions.values()))
    assert steps(second, arguments, 1) and compiled_kernels(tmp_path) == built
    assert second._executable.functions == first._executable.functions


def test_a_program_that_is_dropped_lets_others_go_first(stand_ins: StandIns) -> None:
    stand_ins.patch.setattr(BUILDS, "_start", lambda: None)
    dropped, _ = program("mlp")
    kept, _ = program("recurrent")
    del dropped
    unit = BUILDS._next_unit()
    assert unit and all(order.kernel.kernel in kept.plan.kernels.values() for order in unit)


def test_profiles_and_measurements_wait_for_compiled_kernels(stand_ins: StandIns) -> None:
    begun, arguments = program("mlp")
    begun.profile(*arguments, repeats=2)
    assert begun.ready
    before = stand_ins.played
    begun(*arguments)
    assert stand_ins.played == before


def test_a_kernel_that_does_not_compile_stays_prebuilt(
    stand_ins: StandIns,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    expected = steps(*program("mlp", wait=True), 2)
    stand_ins.forget()
    failing(tmp_path, monkeypatch)
    begun, arguments = program("mlp")
    with pytest.raises(
        CompileError, match=r"^kernel \w+ .*does not compile: x.cpp:1: error: broken\n"
    ):
        begun.wait()
    assert not begun.ready
    assert steps(begun, arguments, 2) == expected
    said = capsys.readouterr().err
    assert said.count("graphc: ") == 1
    assert re.match(r"graphc: loss_fn goes on with prebuilt kernels: kernel \w+ ", said)


def test_compilers_that_were_ended_build_no_more(stand_ins: StandIns) -> None:
    begun, arguments = program("mlp")
    BUILDS.end()
    with pytest.raises(CompileError, match=r"^loss_fn: the compilers were ended$"):
        begun.wait()
    assert not begun.ready
    steps(begun, arguments, 1)


def test_the_number_of_streams_is_measured_when_kernels_are_compiled(
    stand_ins: StandIns, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRAPHC_PLAN_CACHE", "1")
    monkeypatch.setattr(stream_autotuner, "_may_gain", lambda less, more: True)
    later = (
        "streams: auto chose 1: the times of prebuilt kernels say nothing; it measures when all "
        "are compiled"
    )
    begun, _ = program("mlp", streams="auto")
    again, _ = program("mlp", streams="auto")
    for each in (begun, again):
        assert later in each.plan.notes
        each.wait()
    measured, _ = program("mlp", streams="auto")
    assert measured.ready and later not in measured.plan.notes
    assert [note for note in measured.plan.notes if note.startswith("streams: auto chose")]
