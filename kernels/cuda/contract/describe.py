"""Describe the schedule of a contraction, in the dump and in the plan's notes."""

from __future__ import annotations

from graphc.kernels.cuda.contract.schedules import SHORT, ContractSchedule


def describe(schedule: ContractSchedule, element: str, lack: str, rank: int) -> tuple[str, str]:
    """What the dump says of the schedule, the model's number `rank`, and what the plan notes of a
    contraction of reduced precision. Products are of `element`; `lack` is what keeps tensor cores
    away."""
    problem, tile, finish = schedule.problem, schedule.tile, schedule.finish
    batches, m, n, k = problem.sizes
    cut = f", k in {schedule.splits} parts added {finish.value}" if finish else ""
    why = "of those tried the cheapest" if rank == 1 else f"number {rank} of those by the model,"
    product = f"{batches} x " * (batches > 1) + f"{m} x {n} sums of {k} products"
    multiplied = tile.multiplied(element)
    if multiplied is None:
        narrow = any(x.element in SHORT for x in (problem.a, problem.b))
        apart = lack or "for sums so few they are estimated to be slower"
        note = f"no tensor cores: {apart}" if narrow else ""
        return f"registers, {tile.describe(cut)}: {why} for {product}", note
    by, products, shape = multiplied
    note = f"{by}, products of {products}, {shape}"
    return f"{by}, {tile.describe(cut)}: {why} for {product}", note
