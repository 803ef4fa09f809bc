"""The table of what was found, in Markdown."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import mean, median
from typing import Any

Row = dict[str, Any]
BACKENDS = ("graphc", "inductor")
BEGIN, END = "<!-- the table begins -->", "<!-- the table ends -->"
"""What stands in the page around that which is written."""
HEAD = (
    "| model | parameters | operators | compiled | off, of what is allowed | cold: graphc | "
    "inductor | warm: graphc | inductor | step: eager | graphc | inductor |",
    f"|{' --- |' * 12}",
)


def write(folder: Path, page: Path) -> None:
    """Put the table of the results in `folder` into the page, between its two marks."""
    rows = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
    before, _, rest = page.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    page.write_text("\n".join([before + BEGIN, "", *lines(rows), "", END + after]))


def lines(rows: list[Row]) -> list[str]:
    """A sentence that sums up, then for each package a table."""
    done = [row for row in rows if "failed" not in row]
    wrong = [row["name"] for row in done if row["wrong"]]
    turned = [row for row in done if row["turned"]]
    text = [
        f"{len(done)} models, {sum(row['results'] for row in done):,} results compared, "
        f"{len(wrong)} models wrong{': ' + ', '.join(wrong) if wrong else ''}; "
        f"{mean(row['share'] for row in done):.1%} of a model's operators compiled on average, "
        f"{min(row['share'] for row in done):.1%} at least. "
        f"In {len(turned)} models relus stood on the other side of 0.",
        f"Dynamo's graphs break in {', '.join(r['name'] for r in done if r['breaks']) or 'none'}.",
    ]
    timed = [row for row in done if "graphc_ratio" in row]
    if timed:
        text += ["", f"Steps of {len(timed)} models were timed. {_gain(timed, 'graphc')}."]
        both = [row for row in timed if "inductor_ratio" in row]
        if both:
            text[-1] += f" {_gain(both, 'inductor')} ({len(both)} models)."
        if cold := [r for r in timed if all(f"{b}_cold_cpu_s" in r for b in BACKENDS)]:
            own, other = (median(row[f"{b}_cold_cpu_s"] for row in cold) for b in BACKENDS)
            text[-1] += (
                f" Of {len(cold)} models whose first step both made with empty caches, it took "
                f"graphc {own:.1f} s of the processor and inductor {other:.1f} s (medians)."
            )
    for package in sorted({row["package"] for row in done}):
        text += ["", f"## {package}", "", *HEAD]
        text += [_line(row) for row in done if row["package"] == package]
    failed = [
        f"- {row['name']}: {row['failed'].splitlines()[-1]}" for row in rows if "failed" in row
    ]
    return text + (["", "Not finished:", "", *failed] if failed else [])


def _gain(rows: list[Row], backend: str) -> str:
    ratios = sorted(row[f"{backend}_ratio"] for row in rows)
    return (
        f"Eager takes {median(ratios):.2f} times as long as {backend} (median; "
        f"{ratios[0]:.2f} to {ratios[-1]:.2f})"
    )


def _line(row: Row) -> str:
    cells = [
        row["name"],
        f"{row['parameters']:,}",
        str(row["operators"]),
        f"{row['share']:.1%}",
        f"{row['use']:.2f}" if not row["wrong"] else "WRONG",
        *(_compiling(row, f"{b}_{kind}") for kind in ("cold", "warm") for b in BACKENDS),
        f"{row['eager_ms']:.2f} ms" if "eager_ms" in row else "",
        *(_ratio(row, backend) for backend in BACKENDS),
    ]
    return f"| {' | '.join(cells)} |"


def _ratio(row: Row, backend: str) -> str:
    if f"{backend}_ratio" not in row:
        return ""
    ratio, low, high = (row[f"{backend}_{part}"] for part in ("ratio", "low", "high"))
    return f"{ratio:.2f} ({low:.2f} to {high:.2f})"


def _compiling(row: Row, kind: str) -> str:
    if f"{kind}_s" not in row:
        backend, _, first = kind.partition("_")
        longer = first == "cold" and row.get("note", "").startswith(backend)
        return f"> {row['note'].split()[-2]} s" if longer else ""
    return f"{row[f'{kind}_s']:.0f} s ({row[f'{kind}_cpu_s']:.0f})"
