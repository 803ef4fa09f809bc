"""Buffers from a file packed on the command line."""

from __future__ import annotations

import random
import sys
from pathlib import Path
from unittest.mock import MagicMock

import pytest

from graphc.runtime.memory import main
from graphc.runtime.planner.memory import exact

TRAP = """\
id,lower,upper,size
first,0,2,64
wide,1,4,128
last,3,5,64
late,4,6,192
"""


def write(folder: Path, text: str) -> str:
    path = folder / "buffers.csv"
    path.write_text(text)
    return str(path)


def packed(lines: list[str]) -> int:
    """The height of the arena, after a look that no buffers that meet share bytes."""
    rows = [[int(figure) for figure in line.split(",")[1:]] for line in lines[1:]]
    for n, (lower, upper, size, at) in enumerate(rows):
        for other_lower, other_upper, other_size, other in rows[:n]:
            apart = lower >= other_upper or other_lower >= upper
            assert apart or at + size <= other or other + other_size <= at
    return max(size + at for _, _, size, at in rows)


def test_offsets_come_in_the_order_of_the_file(tmp_path, capsys):
    assert main([write(tmp_path, TRAP)]) == 0
    out, err = capsys.readouterr()
    assert [line.rpartition(",")[0] for line in out.splitlines()[1:]] == TRAP.splitlines()[1:]
    assert out.splitlines()[0] == "id,lower,upper,size,offset"
    assert packed(out.splitlines()) == 256
    assert err.startswith("256 bytes after 0.") and err.endswith("; 256 bytes are live at once\n")


def hard(seed: int, count: int) -> str:
    """Buffers that fill an arena of 64 * 40 bytes without a gap: rectangles cut again and again."""
    dice = random.Random(seed)
    pieces = [(0, 1000, 40)]
    while len(pieces) < count:
        pieces.sort(key=lambda p: (p[1] - p[0]) * p[2])
        lower, upper, size = pieces.pop()
        if upper - lower > 2 and (dice.random() < 0.5 or size == 1):
            cut = dice.randint(lower + 1, upper - 1)
            pieces += [(lower, cut, size), (cut, upper, size)]
        else:
            cut = dice.randint(1, size - 1)
            pieces += [(lower, upper, cut), (lower, upper, size - cut)]
    dice.shuffle(pieces)
    lines = (f"{n},{a},{b},{64 * size}" for n, (a, b, size) in enumerate(pieces))
    return "\n".join(["id,lower,upper,size", *lines])


def test_search_gives_an_arena_that_is_smaller_and_the_same_each_time(
    tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr("graphc.runtime.memory.LONG", 10_000_000)
    heights = []
    for options in ([], ["--search"], ["--search"]):
        assert main([write(tmp_path, hard(0, 60)), *options]) == 0
        heights.append(packed(capsys.readouterr().out.splitlines()))
    assert heights[0] > heights[1] == heights[2] >= 64 * 40


def test_exact_search_finds_the_least_there_is(tmp_path, capsys):
    pytest.importorskip("ortools")
    assert main([write(tmp_path, hard(0, 30)), "--exact", "60"]) == 0
    out, err = capsys.readouterr()
    assert packed(out.splitlines()) == 64 * 40
    assert err.endswith("; 2560 bytes are live at once, and no arena is smaller\n")


def test_exact_search_without_or_tools_says_what_to_install(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("graphc.runtime.planner.memory.exact.find_spec", lambda name: None)
    assert main([write(tmp_path, hard(0, 60)), "--exact", "1"]) == 1
    message = "graphc: an exact search needs OR-tools: pip install 'graphc[exact]'\n"
    assert capsys.readouterr().err.endswith(message)


def test_exact_search_counts_in_units_of_the_alignment(monkeypatch):
    """Said to a stand-in for OR-tools, which puts each buffer as high as it may."""
    solver_of = MagicMock(CpSolverSolutionCallback=object)
    model, solver = solver_of.CpModel.return_value, solver_of.CpSolver.return_value
    model.new_int_var.side_effect = lambda low, high, name: high
    solver.value.side_effect = lambda start: start
    solver.solve.return_value = solver_of.OPTIMAL
    monkeypatch.setattr(exact, "find_spec", lambda name: name)
    for name in ("ortools", "ortools.sat"):
        monkeypatch.setitem(sys.modules, name, MagicMock())
    monkeypatch.setitem(sys.modules, "ortools.sat.python", MagicMock(cp_model=solver_of))
    lives, sizes, known = [(0, 5), (5, 9), (0, 9)], [64, 100, 1000], [0, 0, 128]
    starts = exact.pack_exactly(lives, sizes, known, 1024, 1.0, lambda height: None)
    assert starts == ([17 * 64, 16 * 64, 2 * 64], True)
    across, units, top = model.add_cumulative.call_args.args
    assert (len(across), units, top) == (3, [1, 2, 16], 18)
    spans = [call.args[:2] for call in model.new_fixed_size_interval_var.call_args_list]
    assert spans == [(0, 1), (1, 1), (0, 2), (17, 1), (16, 2), (2, 16)]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", ": expected the columns id,lower,upper,size, got nothing"),
        ("a,b\n", ": expected the columns id,lower,upper,size, got a,b"),
        (TRAP + "x,1,2\n", ":6: expected a name and three numbers, got x,1,2"),
        (TRAP + "x,1,2,-3\n", ":6: expected a name and three numbers, got x,1,2,-3"),
        (TRAP + "x,2,2,64\n", ":6: the buffer x ends at 2, before it begins"),
    ],
)
def test_file_that_holds_something_else_is_refused_by_line(tmp_path, capsys, text, problem):
    path = write(tmp_path, text)
    assert main([path]) == 1
    assert capsys.readouterr().err == f"graphc: {path}{problem}\n"


def test_file_that_is_not_there_is_an_error(tmp_path, capsys):
    assert main([str(tmp_path / "none.csv")]) == 1
    assert "none.csv: [Errno 2] No such file" in capsys.readouterr().err


def test_no_buffers_need_no_bytes(tmp_path, capsys):
    assert main([write(tmp_path, "id,lower,upper,size\n")]) == 0
    out, err = capsys.readouterr()
    assert out == "id,lower,upper,size,offset\n" and err.startswith("0 bytes after ")
