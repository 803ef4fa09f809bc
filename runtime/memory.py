"""Pack the buffers of a CSV file as plans do: `python -m graphc.runtime.memory FILE.csv`.

The file has a line `id,lower,upper,size` and one line per buffer, which lives from step `lower` to
before step `upper` and has `size` bytes. The output adds `offset`, in the order of the file; the
arena's size goes to standard error. `--search` searches for some seconds, `--exact` for the
smallest arena, for the given seconds, with OR-tools (`pip install 'graphc[exact]'`).
"""

from __future__ import annotations

import argparse
import csv
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from graphc.base.errors import GraphError, RunError
from graphc.runtime.planner.memory.exact import pack_exactly
from graphc.runtime.planner.memory.packing import LONG, Flags, pack
from graphc.runtime.planner.tasks import aligned

COLUMNS = ("id", "lower", "upper", "size")
Row = tuple[str, int, int, int]


def main(arguments: Sequence[str] | None = None) -> int:
    """Pack the given file; returns 0, or 1 after printing an error."""
    parser = argparse.ArgumentParser(
        prog="python -m graphc.runtime.memory", description="Pack buffers into one arena."
    )
    parser.add_argument("file", type=Path, help="a CSV file with columns id, lower, upper, size")
    parser.add_argument("--search", action="store_true", help="look on for some seconds")
    parser.add_argument(
        "--exact", type=float, metavar="SECONDS", help="look for the smallest arena with OR-tools"
    )
    options = parser.parse_args(arguments)
    try:
        rows = read(options.file)
        for line in packed(rows, LONG if options.search else 0, options.exact):
            print(line)
    except (GraphError, RunError) as error:
        print(f"graphc: {error}", file=sys.stderr)
        return 1
    return 0


def packed(rows: Sequence[Row], work: int, exact: float | None) -> list[str]:
    """The lines of the result."""
    begin = time.perf_counter()
    sizes = [aligned(size) for *_, size in rows]
    meets, bound = overlapping_lives(rows), most_live(rows)
    starts = pack(sizes, meets, bound, work)

    def report(height: int, more: str = "") -> None:
        seconds = time.perf_counter() - begin
        print(f"{height} bytes after {seconds:.2f} s{more}", file=sys.stderr)

    height = max((a + n for a, n in zip(starts, sizes, strict=True)), default=0)
    more = ""
    if exact is not None and height > bound:
        report(height)
        lives = [(lower, upper) for _, lower, upper, _ in rows]
        starts, proved = pack_exactly(lives, sizes, starts, bound, exact, report)
        height = max(a + n for a, n in zip(starts, sizes, strict=True))
        more = ", and no arena is smaller" if proved else ""
    report(height, f"; {bound} bytes are live at once{more}")
    lines = (",".join(map(str, (*row, at))) for row, at in zip(rows, starts, strict=True))
    return [",".join((*COLUMNS, "offset")), *lines]


def read(path: Path) -> list[Row]:
    """The buffers of a file. Raises GraphError, with the line, for an invalid one."""
    try:
        lines = list(csv.reader(path.read_text().splitlines()))
    except (OSError, UnicodeDecodeError) as error:
        raise GraphError(f"{path}: {error}") from None
    if not lines or tuple(lines[0]) != COLUMNS:
        got = ",".join(lines[0]) if lines else "nothing"
        raise GraphError(f"{path}: expected the columns {','.join(COLUMNS)}, got {got}")
    rows = []
    for number, line in enumerate(lines[1:], 2):
        name, *figures = line
        if len(figures) != 3 or not all(figure.isdecimal() for figure in figures):
            raise GraphError(
                f"{path}:{number}: expected a name and three numbers, got {','.join(line)}"
            )
        lower, upper, size = map(int, figures)
        if lower >= upper:
            raise GraphError(
                f"{path}:{number}: the buffer {name} ends at {upper}, before it begins"
            )
        rows.append((name, lower, upper, size))
    return rows


def overlapping_lives(rows: Sequence[Row]) -> Flags:
    """For each pair of buffers, whether they are live at the same time."""
    lower, upper = (np.array([row[column] for row in rows], np.int64) for column in (1, 2))
    meets: Flags = (lower[:, None] < upper) & (lower < upper[:, None])
    np.fill_diagonal(meets, False)
    return meets


def most_live(rows: Sequence[Row]) -> int:
    """The most bytes live at once, aligned."""
    return max(
        (
            sum(aligned(size) for _, lower, upper, size in rows if lower <= at < upper)
            for _, at, _, _ in rows
        ),
        default=0,
    )


if __name__ == "__main__":
    sys.exit(main())
