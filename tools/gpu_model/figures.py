"""The figures of a workload in the JSON file: seconds, bytes and FLOPs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tools.gpu_model.compiled import CompiledKernel, CompiledPlan
from tools.gpu_model.counts import MATRIX
from tools.gpu_model.launch_time import Timed
from tools.gpu_model.machine import Machine
from tools.gpu_model.profile import warps_of
from tools.gpu_model.step_time import critical_path, played, scheduled

POINTWISE = ("pointwise", "update")
"""Kinds of kernels whose 16-byte accesses are reported together."""


def figures(made: CompiledPlan, machine: Machine, precision: str) -> dict[str, Any]:
    """The figures of a workload: its `step`, and its `kernels`, the slowest first."""
    step = played(made, machine)
    peak = {"tf32": machine.tf32, "bfloat16": machine.bf16, "float16": machine.bf16}
    rate = peak.get(precision, machine.fp32)
    kernels = {**made.kernels, **{joined.kernel.name: joined.kernel for joined in made.joined}}
    rows = [
        kernel_figures(kernels[name], calls, rate, machine) for name, calls in step.calls.items()
    ]
    rows.sort(key=lambda row: -row["seconds"])
    copies = [node for node in step.nodes if not node.kernel]
    kinds = {"copy": sum(node.seconds for node in copies)} if copies else {}
    for row in rows:
        kinds[row["kind"]] = kinds.get(row["kind"], 0.0) + row["seconds"]
    compute = [row for row in rows if row["flops"]]
    useful = sum(row["calls"] * row["flops"] for row in compute)
    executed = sum(row["calls"] * row["executed"] for row in compute)
    found = {
        "seconds": scheduled(step.nodes, machine),
        "critical_path": critical_path(step.nodes),
        "serial": sum(node.seconds for node in step.nodes),
        "streams": made.streams,
        "kernels": len(rows),
        "nodes": len(step.nodes),
        "copies": len(copies),
        "floor": sum(row["floor"] for row in rows),
        "flops": useful,
        "executed_over_useful": executed / useful if useful else 0,
        "contraction_seconds": sum(row["seconds"] for row in compute),
        "wide_of_contractions": wide_share(compute),
        "wide_of_pointwise": wide_share(row for row in rows if row["kind"] in POINTWISE),
        "bytes": sum(row["calls"] * row["bytes"] for row in rows),
        "host_bytes": made.host_bytes,
        "host_seconds": made.host_bytes / machine.host,
        "arena_bytes": made.arena,
        "kinds": dict(sorted(kinds.items(), key=lambda kind: -kind[1])),
    }
    return {"step": found, "kernels": rows}


def wide_share(rows: Iterable[dict[str, Any]]) -> float | None:
    """The fraction of bytes that 16-byte accesses move; None if nothing is moved."""
    moved = wide = 0.0
    for row in rows:
        for launch in row["launches"]:
            moved += row["calls"] * launch["lane_bytes"]
            wide += row["calls"] * launch["lane_bytes"] * launch["wide_share"]
    return wide / moved if moved else None


def kernel_figures(
    kernel: CompiledKernel, calls: Sequence[Sequence[Timed]], peak: float, machine: Machine
) -> dict[str, Any]:
    """A kernel over all its calls in a step; `launches` are those of the slowest call. `floor` is
    the time of its useful FLOPs at the `peak`, or of its bytes at the speed of a copy."""
    seconds = sum(each.seconds for call in calls for each in call)
    floor = len(calls) * max(kernel.flops / peak, kernel.bytes / machine.copy)
    slowest = max(calls, key=lambda call: sum(each.seconds for each in call))
    return {
        "name": kernel.name,
        "kind": "update" if kernel.name.startswith("update") else kernel.template,
        "ops": kernel.ops,
        "same": kernel.same,
        "calls": len(calls),
        "seconds": seconds,
        "floor": floor,
        "loss": seconds - floor,
        "flops": kernel.flops,
        "executed": sum(each.executed for each in slowest),
        "bytes": kernel.bytes,
        "workspace": kernel.workspace,
        "launches": [launch_figures(each) for each in slowest],
    }


def launch_figures(made: Timed) -> dict[str, Any]:
    counts, launch = made.counts, made.launch
    moved, blocks = counts.moved_bytes, launch.grid[0] * launch.grid[1] * launch.grid[2]
    arithmetic = sum(count for opcode, count in counts.opcodes.items() if is_arithmetic(opcode))
    sectors = counts.load_sectors + counts.other_sectors + counts.kept_sectors
    return {
        "symbol": launch.symbol,
        "grid": launch.grid,
        "block": launch.block,
        "registers": launch.registers,
        "spilled": launch.spilled,
        "shared": launch.static,
        "dynamic": launch.dynamic,
        "resident": made.resident,
        "occupancy": round(made.occupancy, 3),
        "waves": round(made.waves, 2),
        "seconds": made.seconds,
        "bound": made.bound,
        "terms": {name: float(f"{value:.3g}") for name, value in made.terms.items()},
        "executed": made.executed,
        "moved": made.moved,
        "lane_bytes": moved * warps_of(launch) * blocks,
        "instructions": round(counts.issued, 1),
        "arithmetic_share": round(arithmetic / counts.issued, 3) if counts.issued else 0,
        "wide_share": counts.wide_bytes / moved if moved else float(counts.bulk > 0),
        "sectors_over_bytes": round(sectors / moved, 2) if moved else 1.0,
        "bank_conflicts": round(counts.conflicts / counts.shared_cycles, 2)
        if counts.shared_cycles
        else 1.0,
        "hot": counts.hot,
        "depends_on_data": counts.unknown,
        "incomplete": counts.truncated,
    }


def is_arithmetic(opcode: str) -> bool:
    name = opcode.partition(".")[0]
    return name.startswith("FFMA") or name == "DFMA" or name in MATRIX
