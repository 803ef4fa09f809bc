"""Exports for GPUs, on a driver whose GPU is the simulated one: they make the calls that Python's
player makes, and give its bits."""

from __future__ import annotations

import re
import struct
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import graphc
from benchmarks.exported_models import MODELS, STEPS
from graphc.export.cuda.lowering import entries_of
from graphc.export.cuda.memory import lay_out
from graphc.export.memory import CONSTANTS
from graphc.runtime.cuda.executable import CudaExecutable
from graphc.runtime.sim import driver as sim_driver
from graphc.runtime.sim import module as sim_module
from graphc.runtime.sim import objects as sim_objects
from tests.export.fake_gpu import all_equal, driver, kernels_for_the_simulator, selftest, step_of
from tests.random_programs import RandomProgram

__all__ = ["kernels_for_the_simulator"]
X = graphc.spec((4, 3))


QUICK = {("lstm", "cuda", 1), ("gpt", "sim", 3)}
CASES = [(n, d, s) for n in MODELS for d in ("sim", "cuda") for s in (1, 2, 3)]


@pytest.mark.parametrize(
    ("name", "device", "streams"),
    [pytest.param(*c, marks=() if c in QUICK else pytest.mark.slow) for c in CASES],
)
def test_ten_training_steps_have_the_bits_of_python(
    name: str, device: str, streams: int, tmp_path: Path
) -> None:
    """Of a program for a GPU as of one for the simulator: the first has joined launches."""
    driver()
    step, batches = step_of(name, device, streams)
    step.export(tmp_path / "made", "cuda", name=name, calls=STEPS, inputs=batches)
    lines = selftest(tmp_path / "made", name)
    assert all_equal(lines)
    record = (tmp_path / "made" / "record").read_text()
    assert len(re.findall("^stream_create", record, re.MULTILINE)) == streams
    assert ("cooperative" in record) == bool(step.plan.joined)


class Recorder:
    """What Python's player asks the simulated driver for in one call of a program."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, executable: CudaExecutable) -> None:
        self.lines: list[tuple[Any, ...]] = []
        self.executable = executable
        self._patch(monkeypatch, sim_module.Function, "_launch_kernel", self._launch)
        self._patch(monkeypatch, sim_objects.Stream, "wait_for_event", self._wait)
        self._patch(monkeypatch, sim_objects.Event, "record", self._record)
        self._patch(monkeypatch, sim_driver.Simulator, "memcpy_dtod_async", self._copy)
        self._patch(monkeypatch, sim_driver.Simulator, "begin_capture", self._begin)

    def _patch(self, monkeypatch: Any, kind: Any, name: str, note: Any) -> None:
        own = getattr(kind, name)

        def noted(this: Any, *arguments: Any, **named: Any) -> Any:
            note(this, *arguments)
            return own(this, *arguments, **named)

        monkeypatch.setattr(kind, name, noted)

    def stream(self, stream: Any) -> int:
        return self.executable.device.streams.index(stream)

    def place(self, address: int) -> tuple[str, int]:
        player = self.executable
        for binding, copy in zip(player.plan.state, player.copies, strict=True):
            if 0 <= address - copy.address < max(copy.nbytes, 1):
                return binding.value.name, address - copy.address
        return "arena", address - player.device.arena.address

    def _launch(
        self, function: Any, grid: Any, block: Any, packed: Any, shared: int, stream: Any
    ) -> None:
        words = struct.unpack(f"{len(packed) // 8}Q", bytes(packed))
        places = tuple(map(self.place, words))
        kind = "cooperative" if function.cooperative else "launch"
        shape = (*grid, *block, shared)
        self.lines.append((kind, self.stream(stream), function.name, shape, places))

    def _wait(self, stream: Any, event: Any) -> None:
        self.lines.append(("wait", self.stream(stream), id(event)))

    def _record(self, event: Any, stream: Any) -> None:
        self.lines.append(("record", self.stream(stream), id(event)))

    def _copy(self, _: Any, to: Any, source: Any, size: int, stream: Any) -> None:
        places = self.place(int(to)), self.place(int(source))
        self.lines.append(("copy", self.stream(stream), size, places))

    def _begin(self, _: Any, stream: Any) -> None:
        self.lines.append(("begin_capture", self.stream(stream)))


def in_c(record: Path, program: Any) -> Iterator[tuple[Any, ...]]:
    """The lines of a record as those of a Recorder."""
    (entry,) = entries_of({"step": program})
    memory = lay_out([entry])
    names: dict[tuple[int, int], str] = {}
    for binding, buffer in zip(entry.plan.state, entry.buffers, strict=True):
        kind, offset = memory.places[id(buffer), binding.value.type.layout]
        names[3 if kind == CONSTANTS else 2, offset] = binding.value.name

    def place(text: str) -> tuple[str, int]:
        block, offset = map(int, text.split("+"))
        if block == 1:
            return "arena", offset
        start = max(start for b, start in names if b == block and start <= offset)
        return names[block, start], offset - start

    for line in record.read_text().splitlines():
        words = line.split()
        if words[0] in ("launch", "cooperative"):
            numbers = tuple(map(int, (*words[4:7], *words[8:11], words[12])))
            places = tuple(map(place, words[14:]))
            yield words[0], int(words[1]) - 1, words[2], numbers, places
        elif words[0] in ("record", "wait"):
            yield words[0], int(words[1]) - 1, int(words[3])
        elif words[0] == "copy":
            places = tuple(map(place, words[2:4]))
            yield "copy", int(words[1]) - 1, int(words[5]), places
        elif words[0] == "begin_capture":
            yield "begin_capture", int(words[1]) - 1


def ordered(lines: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """The lines with each wait as one for the record that it means."""
    found: list[tuple[Any, ...]] = []
    recorded: dict[Any, int] = {}
    for line in lines:
        if line[0] == "record":
            recorded[line[2]] = len(found)
            line = line[:2]
        elif line[0] == "wait":
            line = *line[:2], recorded[line[2]]
        found.append(line)
    return found


@pytest.mark.parametrize(("name", "streams"), [("lenet", 2), ("lstm", 1), ("lstm", 3), ("gpt", 2)])
def test_the_player_makes_the_calls_of_python_in_its_order(
    name: str, streams: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    step, batches = step_of(name, "sim", streams)
    step.export(tmp_path / "made", "sm_90a", name=name, calls=1, inputs=batches[:1])
    assert all_equal(selftest(tmp_path / "made", name))
    made = list(in_c(tmp_path / "made" / "record", step))
    # The self-test made an executable play it; another one plays its first call again.
    again, _ = step_of(name, "sim", streams)
    executable = again.executable
    assert isinstance(executable, CudaExecutable)
    recorder = Recorder(monkeypatch, executable)
    again(*batches[0])
    # What marks the end of a call's outputs is no part of the plan.
    last = max(i for i, line in enumerate(recorder.lines) if line[0] != "record")
    known = {line[2] for line in recorder.lines if line[0] == "wait"}
    python = [
        line
        for line in recorder.lines[: last + 1 + (recorder.lines[last][0] == "record")]
        if line[0] != "record" or line[2] in known
    ]
    waited = {line[2] for line in made if line[0] == "wait"}
    made = [line for line in made if line[0] != "record" or line[2] in waited]
    assert ordered(made) == ordered(python)
    begin = [line[0] for line in made].index("begin_capture")
    assert made[:begin] == made[begin + 1 :]
    assert Counter(line[0] for line in made)["launch"] > 20


@pytest.mark.parametrize("first", [20, pytest.param(40, marks=pytest.mark.slow)])
def test_random_programs(first: int, tmp_path: Path) -> None:
    programs = {}
    for seed in range(first, first + 6):
        made = RandomProgram(seed)
        programs[f"seed{seed}"] = graphc.compile(
            made, *made.specs, device=("sim", "cuda")[seed % 2], streams=1 + seed % 3
        )
    graphc.export(programs, tmp_path / "made", "cuda", name="random_programs", calls=2)
    assert all_equal(selftest(tmp_path / "made", "random_programs"))


def test_loops_branches_and_narrow_floats(tmp_path: Path) -> None:
    """A GPU computes all iterations and drops what is not taken, as in Python."""

    def function(x: Any) -> Any:
        y = graphc.while_loop(lambda c: graphc.sum(c) < 9, lambda c: graphc.tanh(c) + 1, x, 5)
        z = graphc.cond(graphc.sum(x) > 0, lambda v: v * 2, lambda v: v - 1, x)
        half, wide = x.astype("float16"), x.astype("float64")
        return {"y": y, "z": z, "half": half * half, "bf": x.astype("bfloat16"), "wide": wide + 1}

    program = graphc.compile(function, X, device="sim")
    program.export(tmp_path / "made", "cuda", name="net", calls=3, denormals="keep")
    lines = selftest(tmp_path / "made", "net")
    assert all_equal(lines)


@pytest.mark.parametrize(
    ("function", "shape"),
    [(lambda x: x, (2,)), (lambda x: graphc.exp(x), (3, 0)), (lambda x: graphc.ones((4,)), (2,))],
)
def test_programs_with_nothing_to_launch(function: Any, shape: Any, tmp_path: Path) -> None:
    program = graphc.compile(function, graphc.spec(shape), device="sim")
    program.export(tmp_path / "made", "cuda", name="net", calls=2)
    (result,) = selftest(tmp_path / "made", "net")[:1]
    assert result.startswith(("2 of 2 results", "0 of 0 results"))
