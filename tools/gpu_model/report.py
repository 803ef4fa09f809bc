"""Print the tables of a run as Markdown."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any

NOTICE = "**A model, not measured.** Every time below is an estimate; nothing here ran on a GPU."
MEASURED = """\
## Measured steps

These ran on the GPU, and the model's constants were fitted there. In place of a modelled goal a
measured time counts."""
STEP_NOTES = """\
Times in us. *est.*: nodes by streams and events; *critical path*: the longest chain, whatever runs
beside it; *floor*: useful FLOP of each kernel at the peak, or its bytes at the speed of a copy;
*by 16*: the share of bytes that accesses of 16 bytes move, of contractions and of pointwise
kernels."""


def report(results: Mapping[str, Any], kernels: int) -> str:
    """All tables, with `kernels` kernels of each workload."""
    parts = [heading(results), steps(results["workloads"]), losses(results["workloads"])]
    if measured := results.get("measured"):
        rows = [(name, f"{time:.1f}") for name, time in measured.items()]
        parts.insert(1, f"{MEASURED}\n\n{table(('step', 'us'), rows)}")
    if results["failed"]:
        lines = [f"- {name}: {error}" for name, error in results["failed"].items()]
        parts.append("## What does not compile\n\n" + "\n".join(lines))
    if kernels:
        parts += [workload(name, w, kernels) for name, w in alone(results["workloads"])]
    return "\n\n".join(parts) + "\n"


def alone(workloads: Mapping[str, Any]) -> Iterable[tuple[str, Any]]:
    """The workloads on one stream."""
    return ((name, w) for name, w in workloads.items() if "-streams" not in name)


def heading(results: Mapping[str, Any]) -> str:
    machine, sources = results["machine"], results["sources"]
    rows = [(name, f"{machine[name]:g}", source) for name, source in sources.items()]
    of = f"graphc {results['commit']}, {results['arch']}, {results['precision']}"
    constants = table(("constant", "value", "what, source"), rows)
    formula = f"```\n{results['formula']}\n```"
    return "\n\n".join([f"# {machine['name']}, {of}", NOTICE, constants, formula])


def steps(workloads: Mapping[str, Any]) -> str:
    head = (
        "step", "est. us", "critical path", "nodes", "floor", "executed / useful",
        "TFLOP/s in contractions", "MB of the plan", "host kB (us)", "contractions by 16",
        "pointwise by 16", "share by kind",
    )  # fmt: skip
    rows = [step_row(name, w["step"], workloads) for name, w in workloads.items()]
    return f"## Steps\n\n{table(head, rows)}\n\n{STEP_NOTES}"


def step_row(name: str, step: Mapping[str, Any], workloads: Mapping[str, Any]) -> Sequence[Any]:
    serial, flops = max(step["serial"], 1e-12), step["flops"]
    kinds = [f"{kind} {percent(s / serial)}" for kind, s in [*step["kinds"].items()][:4]]
    base, _, several = name.partition("-streams")
    if several and base in workloads:
        gain = workloads[base]["step"]["seconds"] / step["seconds"]
        name = f"{name} ({gain:.3f}x one stream)"
    return (
        name,
        us(step["seconds"]),
        us(step["critical_path"]),
        step["nodes"],
        us(step["floor"]),
        f"{step['executed_over_useful']:.2f}" if flops else "",
        f"{flops / step['contraction_seconds'] / 1e12:.1f}" if flops else "",
        f"{step['bytes'] / 1e6:.1f}",
        f"{step['host_bytes'] / 1e3:.1f} ({us(step['host_seconds'])})",
        percent(step["wide_of_contractions"]),
        percent(step["wide_of_pointwise"]),
        " ".join(kinds),
    )


def losses(workloads: Mapping[str, Any]) -> str:
    """The kernels that lose most over their floor, one row per distinct text of a workload."""
    rows: list[tuple[float, float, str, Mapping[str, Any]]] = []
    for name, w in alone(workloads):
        texts: dict[str, dict[str, Any]] = {}
        for row in w["kernels"]:
            known = texts.setdefault(row["same"], dict(row))
            if known["name"] != row["name"]:
                known |= {k: known[k] + row[k] for k in ("calls", "seconds", "floor", "loss")}
        for row in texts.values():
            rows.append((row["loss"], row["loss"] / w["step"]["serial"], name, row))
    head = ("workload", "kernel", "kind", "calls", "est. us", "floor us", "loss us", "why", "ops")
    parts = ["## Largest losses, in us of a step (estimate less floor; all calls of a text)"]
    largest, shares = (sorted(rows, key=itemgetter(key), reverse=True)[:15] for key in (0, 1))
    parts += [table(head, [loss_row(*row) for row in largest])]
    parts += ["## Largest as a share of their step"]
    parts += [table(head, [loss_row(*row) for row in shares])]
    return "\n\n".join(parts)


def loss_row(loss: float, share: float, name: str, row: Mapping[str, Any]) -> Sequence[Any]:
    lost = f"{us(loss)} ({percent(share)} of the step)"
    times = us(row["seconds"]), us(row["floor"])
    return name, row["name"], row["kind"], row["calls"], *times, lost, why(row), row["ops"][:70]


def why(row: Mapping[str, Any]) -> str:
    """What bounds the slowest launch, and what stands out in it."""
    slowest, flops = max(row["launches"], key=lambda launch: launch["seconds"]), row["flops"]
    waves, moved, share = slowest["waves"], slowest["moved"], slowest["wide_share"]
    sectors, conflicts = slowest["sectors_over_bytes"], slowest["bank_conflicts"]
    said = (
        (
            flops and row["executed"] > 1.15 * flops,
            f"{row['executed'] / (flops or 1):.1f}x the FLOP",
        ),
        (
            flops and slowest["arithmetic_share"] < 0.6,
            f"{percent(slowest['arithmetic_share'])} arithmetic",
        ),
        (waves < 1 or math.ceil(waves) > 1.15 * waves, f"{waves:.2f} waves"),
        (slowest["spilled"], f"spills {slowest['spilled']} B"),
        (
            not flops and moved > 2.5 * row["bytes"],
            f"moves {moved / max(row['bytes'], 1):.1f}x its bytes",
        ),
        (share < 0.5, f"{percent(share)} by 16 bytes"),
        (sectors > 1.5, f"sectors {sectors:.1f}x the bytes asked for"),
        (conflicts > 1.2, f"bank conflicts {conflicts:.1f}x"),
        (slowest["depends_on_data"], "loops on data not counted"),
    )
    return ", ".join([slowest["bound"], *(text for holds, text in said if holds)])


def workload(name: str, w: Mapping[str, Any], most: int) -> str:
    head = (
        "kernel", "kind", "calls", "est. us", "floor", "MFLOP useful, executed", "MB plan",
        "launch us", "grid x block", "regs", "spill", "shared + dynamic", "per SM, occ.", "waves",
        "MB moved", "by 16", "arith.", "hot loop: instr. (turns)", "bound",
    )  # fmt: skip
    rows = []
    for row in w["kernels"][:most]:
        flops = f"{row['flops'] / 1e6:.1f}, {row['executed'] / 1e6:.1f}" if row["flops"] else ""
        times = us(row["seconds"]), us(row["floor"])
        kernel = row["name"], row["kind"], row["calls"], *times, flops, f"{row['bytes'] / 1e6:.2f}"
        for number, launch in enumerate(row["launches"]):
            symbol = launch["symbol"].removeprefix(row["name"] + "_")
            first = kernel if not number else [""] * len(kernel)
            rows.append((*first, f"{symbol} {us(launch['seconds'])}", *launch_row(launch)))
    rest = w["kernels"][most:]
    more = f"\n\n{len(rest)} more kernels, {us(sum(row['seconds'] for row in rest))} us"
    return f"## {name}\n\n{table(head, rows)}{more * bool(rest)}"


def launch_row(launch: Mapping[str, Any]) -> Sequence[Any]:
    dynamic = f" + {launch['dynamic']}" if launch["dynamic"] else ""
    return (
        f"{sizes(launch['grid'])} x {sizes(launch['block'])}",
        launch["registers"],
        launch["spilled"] or "",
        f"{launch['shared']}{dynamic}",
        f"{launch['resident']}, {percent(launch['occupancy'])}",
        launch["waves"],
        f"{launch['moved'] / 1e6:.2f}",
        percent(launch["wide_share"]),
        percent(launch["arithmetic_share"]),
        loop(launch["hot"]),
        launch["bound"],
    )


def loop(hot: Mapping[str, Any]) -> str:
    """Text such as `80 (72): FFMA 64, LDS 16B:8`, with accesses as bytes per lane :
    instructions."""
    parts = []
    for name, value in hot.items():
        if isinstance(value, dict):
            counts = " ".join(f"{width}B:{count:g}" for width, count in value.items())
            parts.append(f"{name} {counts}")
        elif name not in ("turns", "instructions"):
            parts.append(f"{name} {value:g}")
    return f"{hot.get('instructions', 0):g} ({hot.get('turns', 0)}): {', '.join(parts)}"


def sizes(axes: Sequence[int]) -> str:
    """The sizes without trailing ones."""
    count = max((i + 1 for i, size in enumerate(axes) if size > 1), default=1)
    return "x".join(map(str, axes[:count]))


def percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.0f} %"


def us(seconds: float) -> str:
    value = seconds * 1e6
    return f"{value:.0f}" if value >= 1000 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    def line(cells: Sequence[Any]) -> str:
        texts = (str(cell).replace("|", "/").replace("\n", " ") for cell in cells)
        return f"| {' | '.join(texts)} |"

    return "\n".join([line(head), "|" + " --- |" * len(head), *map(line, rows)])


def short(value: Any) -> Any:
    """The value with all numbers in it of four digits."""
    if isinstance(value, float):
        return float(f"{value:.4g}")
    if isinstance(value, dict):
        return {key: short(each) for key, each in value.items()}
    return [short(each) for each in value] if isinstance(value, list | tuple) else value
