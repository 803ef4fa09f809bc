"""Compare two runs as Markdown: their steps, and the changes of their kernels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tools.gpu_model.report import NOTICE, sizes, table, us

OF_KERNELS = ("calls", "flops", "bytes", "workspace")
OF_LAUNCHES = ("registers", "spilled", "shared", "dynamic", "occupancy", "bound")
OF_TABLE = ("kernel", "before us", "after us", "times faster", "what changed")
SHARES = ("arithmetic_share", "wide_share")
ENOUGH = 0.005
"""The relative change of a kernel's time that is reported."""


def versus(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """The comparison of `after` with `before`; kernels are matched by name, else by their ops."""
    parts = [f"# {before['commit']} -> {after['commit']}", NOTICE]
    known = before["machine"]
    if names := [name for name, value in after["machine"].items() if known.get(name) != value]:
        parts.append(f"The constants differ ({', '.join(names)}), so not the code alone does.")
    common = {
        name: (before["workloads"][name], w)
        for name, w in after["workloads"].items()
        if name in before["workloads"]
    }
    rows = []
    for name, (old, new) in common.items():
        a, b = old["step"], new["step"]
        rows.append((name, *times(a["seconds"], b["seconds"]), a["nodes"], b["nodes"]))
    head = ("step", "before us", "after us", "times faster", "nodes before", "after")
    parts.append(table(head, rows))
    for name, (old, new) in common.items():
        if lines := differences(old["kernels"], new["kernels"]):
            parts.append(f"## {name}\n\n{table(OF_TABLE, lines)}")
    if missing := sorted(set(before["workloads"]) ^ set(after["workloads"])):
        parts.append(f"In one file alone: {', '.join(missing)}")
    return "\n\n".join(parts) + "\n"


def differences(
    before: Sequence[Mapping[str, Any]], after: Sequence[Mapping[str, Any]]
) -> list[Sequence[Any]]:
    """A line for each kernel that changed, the largest change first."""
    names, ops = ({row[key]: row for row in before} for key in ("name", "ops"))
    lines: list[tuple[float, Sequence[Any]]] = []
    matched = set()
    for row in after:
        old = names.get(row["name"])
        if old is None or old["ops"] != row["ops"]:
            old = ops.get(row["ops"], old)
        new = row["seconds"]
        if old is None or old["name"] in matched:
            lines.append((new, (row["name"], "", us(new), "", f"new: {row['ops'][:60]}")))
            continue
        matched.add(old["name"])
        changes, changed_by = changed(old, row), abs(old["seconds"] - new)
        if changes or changed_by > ENOUGH * old["seconds"]:
            lines.append((changed_by, (row["name"], *times(old["seconds"], new), changes)))
    for row in (row for row in before if row["name"] not in matched):
        gone = row["name"], us(row["seconds"]), "", "", f"gone: {row['ops'][:60]}"
        lines.append((row["seconds"], gone))
    return [line for _, line in sorted(lines, key=lambda line: -line[0])]


def changed(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    said = [describe_change(key, old[key], new[key]) for key in OF_KERNELS]
    if len(old["launches"]) != len(new["launches"]):
        said.append(f"launches {len(old['launches'])} -> {len(new['launches'])}")
    for a, b in zip(old["launches"], new["launches"], strict=False):
        said += [describe_change(key, sizes(a[key]), sizes(b[key])) for key in ("grid", "block")]
        said += [describe_change(key, a[key], b[key]) for key in OF_LAUNCHES]
        said += [describe_change(key, round(a[key], 3), round(b[key], 3)) for key in SHARES]
        if abs(a["instructions"] - b["instructions"]) > 0.01 * a["instructions"]:
            said.append(f"instructions {a['instructions']:g} -> {b['instructions']:g}")
    return "; ".join(text for text in said if text)


def describe_change(key: str, old: Any, new: Any) -> str:
    return f"{key} {old} -> {new}" if old != new else ""


def times(before: float, after: float) -> tuple[str, str, str]:
    """Both times, and the speedup of the second."""
    return us(before), us(after), f"{before / after:.3f}" if after else ""
