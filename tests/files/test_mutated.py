"""5,000 programs and checkpoints, changed in bytes or in what they say, most under a digest that
fits. Reading one ends within ten seconds, in a result or in one of graphc's exceptions; nothing is
compiled, run or unpickled, and nothing outside of its folder is written."""

from __future__ import annotations

import json
import os
import random
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphc
from benchmarks.limit import limited
from graphc import nn
from graphc.base.errors import CompileError, GraphError, PlanError, RunError
from graphc.ops.base import REGISTRY
from graphc.runtime.compilers.compiler import find_compiler
from graphc.runtime.compilers.player_library import begin_player
from tests.files.rewriting import joined, resealed, rewritten, split
from tests.files.training import RULES, bits, train, trainer
from tests.text_mutations import PIECES, mutated

OURS = (GraphError, CompileError, PlanError, RunError)
SECONDS = 10
BATCH = 50
BATCHES = 50
"""Of each kind of file."""
PLAIN = 2
"""Batches of each kind in the plain suite."""
slow = pytest.mark.slow
VALUES: tuple[Any, ...] = (
    *(
        None,
        True,
        False,
        0,
        1,
        -1,
        2**31,
        2**63,
        10**30,
        0.5,
        -0.0,
        1e308,
        "",
        "x",
        "*",
        "\0",
        "a\nb",
    ),
    *([], {}, [[]], {"x": 1}, ["a", "b"], [1, 2], {"tuple": []}, "lean", "cpu", "cuda:9", "f32[2]"),
    *({"dict": [[[], "*"]]}, {"static": ["int", "9" * 5000]}, {"static": ["float", "x"]}, "../x"),
)


NUMBERS = ("0", "1", "2", "3", "4", "5", "7", "16", "100", "1000000", "2147483648", "-1", "1e300")
WORDS: tuple[tuple[str, tuple[str, ...]], ...] = (
    (r"(?<![\w.])\d+(?![\w.])", NUMBERS),
    (r"(?<== )\w+(?=\()", tuple(sorted(REGISTRY))),
    (r"\b(f32|i32|bool|i64|f64|bf16)(?=\[)", ("f32", "i32", "bool", "i64", "f16", "bf16", "u8")),
    (
        r"(?<==)\(?[\w,.-]+\)?(?= )",
        (*NUMBERS, "()", "(0,)", "(1,0)", "(2,2)", "True", "False", "''"),
    ),
    (r"%[\w.]+", ("%x", "%model.first.weight", "%matmul", "%lr", "%step", "%scan")),
)
"""What a graph's text holds, and what it might hold instead."""


class _Watch:
    """What Python runs, starts, unpickles, or opens for writing while `events` is a list."""

    events: list[str] | None = None

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.events is None:
            return
        room = event.partition(".")[0]
        writes = event == "open" and isinstance(arguments[2], int) and arguments[2] & os.O_ACCMODE
        runs = event == "exec" and getattr(arguments[0], "co_filename", "").startswith("<")
        if writes or runs or room in ("subprocess", "socket", "pickle", "shutil"):
            self.events.append(f"{event} {arguments}")
        elif event in ("os.remove", "os.rename", "os.system", "os.exec", "ctypes.dlopen"):
            self.events.append(f"{event} {arguments}")


_WATCH = _Watch()
sys.addaudithook(_WATCH)


@contextmanager
def watched() -> Iterator[None]:
    """Nothing is executed or written."""
    _WATCH.events = []
    try:
        yield
    finally:
        events, _WATCH.events = _WATCH.events, None
    assert [e for e in events if "<string>" not in e and "dataclass" not in e] == []


def ends_well(read: Callable[[], Any]) -> bool:
    """Whether it gave a result; False for one of our exceptions. Others are failures."""
    try:
        with limited(SECONDS), watched():
            read()
    except OURS as problem:
        assert "a bug of its own" not in str(problem) or isinstance(problem, PlanError)
        return False
    return True


def changed_bytes(draw: random.Random, data: bytes) -> bytes:
    """The file with a few bytes changed, cut out, doubled or put in."""
    made = bytearray(data)
    for _ in range(draw.randint(1, 3)):
        at, span = draw.randrange(len(made) + 1), draw.randint(1, 16)
        kind = draw.randrange(5)
        if kind == 0 and made:
            made[at % len(made)] ^= 1 << draw.randrange(8)
        elif kind == 1:
            del made[at : at + span]
        elif kind == 2:
            made[at:at] = made[at : at + span]
        elif kind == 3:
            made[at:at] = draw.randbytes(span)
        else:
            del made[at:]
    return bytes(made)


def resealed_bytes(draw: random.Random, data: bytes) -> bytes:
    """The same behind the digest, which fits."""
    return resealed(data[:100] + changed_bytes(draw, data[100:]))


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """(container, key) of everything within a JSON value."""
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield value, key
            yield from places(value[key])


def edited(draw: random.Random, value: Any) -> None:
    """Change a JSON value in place: swap two fields, lose, add or replace one."""
    for _ in range(draw.randint(1, 3)):
        found = list(places(value))
        if not found:
            return
        (holder, key), (other, their) = draw.choice(found), draw.choice(found)
        kind = draw.randrange(4)
        if kind == 0:
            first, second = json.dumps(holder[key]), json.dumps(other[their])
            holder[key], other[their] = json.loads(second), json.loads(first)
        elif kind == 1:
            del holder[key]
        elif kind == 2 and isinstance(holder, dict):
            holder[draw.choice(("unknown", "name", "step", ""))] = draw.choice(VALUES)
        else:
            holder[key] = draw.choice(VALUES)


def edited_document(draw: random.Random, data: bytes) -> bytes:
    return rewritten(data, lambda document: edited(draw, document))


def edited_header(draw: random.Random, data: bytes) -> bytes:
    header, elements = split(data)
    edited(draw, header)
    return joined(header, elements) if "__metadata__" in header else json.dumps(header).encode()


def edited_graph(draw: random.Random, data: bytes) -> bytes:
    """The program with lines, words or attributes of its graph changed."""

    def edit(document: dict[str, Any]) -> None:
        document["graph"] = mutated(document["graph"], draw)

    return rewritten(data, edit)


def other_numbers(draw: random.Random, data: bytes) -> bytes:
    """The program with a few numbers, ops or dtypes of its graph replaced by others."""

    def edit(document: dict[str, Any]) -> None:
        text = document["graph"]
        for _ in range(draw.randint(1, 3)):
            pattern, new = draw.choice(WORDS)
            found = list(re.finditer(pattern, text))
            if found:
                match = draw.choice(found)
                text = text[: match.start()] + draw.choice(new) + text[match.end() :]
        document["graph"] = text

    return rewritten(data, edit)


def edited_settings(draw: random.Random, data: bytes) -> bytes:
    def edit(document: dict[str, Any]) -> None:
        part = draw.choice(["settings", "update", "arguments", "outputs", "record"])
        if isinstance(document[part], dict | list):
            edited(draw, document[part])
        else:
            document[part] = draw.choice((*VALUES, *PIECES))

    return rewritten(data, edit)


BYTES = (changed_bytes, resealed_bytes, edited_header, edited_document)
PROGRAMS = (*BYTES, edited_graph, edited_settings, *[other_numbers] * 4)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    """Whole files of programs, for NumPy and for the CPU."""
    find_compiler()
    begin_player().finish()
    folder = tmp_path_factory.mktemp("whole")
    step = trainer("groups", device="reference")

    def loop(x: graphc.Tensor) -> Any:
        return {"loop": graphc.scan(lambda c, e: (c + e, c * e), graphc.zeros(4), x), "more": (x,)}

    table = graphc.as_tensor
    programs = [
        step,
        graphc.compile(loop, graphc.spec((3, 4)), device="reference"),
        graphc.compile(
            lambda d, k: (graphc.tap(d["x"] @ table(np.eye(5, dtype=np.float32)), "t"), k),
            {"x": graphc.spec((2, 5)), "n": 3},
            graphc.spec((), "int32"),
            device="reference",
        ),
    ]
    for number, program in enumerate(programs):
        program.save(folder / str(number))
        graphc.load(folder / str(number))

    def for_cpu(document: dict[str, Any]) -> None:
        document["settings"]["device"] = "cpu"
        document["record"]["sources"] = "another"

    whole = [path.read_bytes() for path in sorted(folder.iterdir())]
    return [*whole, *(rewritten(data, for_cpu) for data in whole)]


def read_program(path: Path) -> None:
    """Load, and where that is small, run in NumPy."""
    program = graphc.load(path, replan=True)
    values = [v for node in program.graph.nodes for v in node.outputs]
    if program.target.device == "reference" and sum(v.type.size for v in values) < 10_000:
        program.executable.run(
            [np.zeros(v.type.shape, v.type.numpy_dtype) for v in program.graph.inputs]
        )


@pytest.mark.parametrize(
    "number", [pytest.param(i, marks=slow if i >= PLAIN else ()) for i in range(BATCHES)]
)
def test_programs(number: int, tmp_path: Path, files: list[bytes], unbuilt: None) -> None:
    draw = random.Random(number)
    path, results = tmp_path / "program", []
    for _ in range(BATCH):
        path.write_bytes(draw.choice(PROGRAMS)(draw, draw.choice(files)))
        results.append(ends_well(lambda: read_program(path)))
    assert not all(results)
    assert [p.name for p in tmp_path.iterdir()] == ["program"]


@pytest.mark.parametrize(
    "number", [pytest.param(i, marks=slow if i >= PLAIN else ()) for i in range(BATCHES)]
)
def test_checkpoints(number: int, tmp_path: Path) -> None:
    draw = random.Random(number)
    step = trainer(draw.choice([*RULES]), device="reference")
    train(step, 0, 1)
    path = graphc.save_checkpoint(tmp_path, 1, step, data={"epoch": 1, "rest": [1, 2.5, None]})
    whole, results = path.read_bytes(), []
    train(step, 1, 2)
    for _ in range(BATCH):
        path.write_bytes(draw.choice(BYTES)(draw, whole))
        before = bits(step)
        results.append(ends_well(lambda: graphc.load_checkpoint(path, step)))
        if not results[-1]:
            assert bits(step) == before
    assert not all(results)
    path.write_bytes(whole)
    graphc.load_checkpoint(path, step)
    train(step, 1, 2)


def test_what_is_executed_would_be_found(tmp_path: Path) -> None:
    """The watch sees what is run and written, the clock what does not end."""
    for act in (
        lambda: os.system("true"),
        lambda: (tmp_path / "x").write_text(""),
        lambda: exec(compile("1", "<file>", "exec")),
    ):
        with pytest.raises(AssertionError), watched():
            act()
    with pytest.raises(TimeoutError), limited(1):
        while True:
            pass


def test_a_line_of_code_in_a_name_is_refused(tmp_path: Path) -> None:
    """As a comment of a kernel it would end, and what follows would be compiled."""
    layer = nn.Linear(2, 1)
    graphc.compile(layer, graphc.spec((1, 2)), device="cpu").save(tmp_path / "f")

    def edit(document: dict[str, Any]) -> None:
        lines = document["graph"].split("\n")
        at = next(i for i, line in enumerate(lines) if " = " in line)
        lines[at] = lines[at].split("  # ")[0] + "  # a.py:1%a;int%20;stolen;"
        document["graph"] = "\n".join(lines)

    path = tmp_path / "f"
    path.write_bytes(rewritten(path.read_bytes(), edit))
    with pytest.raises(GraphError, match=r"control characters or backslashes in the name 'a\.py:1"):
        graphc.load(path)
