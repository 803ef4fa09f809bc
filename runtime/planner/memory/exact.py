"""Find the smallest arena for buffers with lifetimes on a line, or the smallest within a time
limit.

OR-tools' CP-SAT solver gets each buffer as a rectangle, its lifetime wide and its size high, with a
fixed position in time. No two overlap, and the live buffers never exceed the arena. The solver
starts from a known packing. (With several streams there is no line of time; a plan's buffers are
packed by the local search alone.)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.util import find_spec

from graphc.base.errors import RunError
from graphc.ir.state import ALIGNMENT
from graphc.runtime.planner.tasks import aligned


def pack_exactly(
    lives: Sequence[tuple[int, int]],
    sizes: Sequence[int],
    initial: Sequence[int],
    bound: int,
    seconds: float,
    report: Callable[[int], None],
) -> tuple[list[int], bool]:
    """(starts, whether no smaller arena exists).

    `initial` are the starts of a known packing and `bound` is a lower bound in bytes; `report` gets
    the height of each better packing as it is found. Raises RunError without OR-tools.
    """
    if find_spec("ortools") is None:
        raise RunError("an exact search needs OR-tools: pip install 'graphc[exact]'")
    from ortools.sat.python import cp_model

    units = [aligned(size) // ALIGNMENT for size in sizes]
    hints = [start // ALIGNMENT for start in initial]
    height = max(hint + unit for hint, unit in zip(hints, units, strict=True))
    moments = {moment: n for n, moment in enumerate(sorted({m for life in lives for m in life}))}
    model = cp_model.CpModel()
    top = model.new_int_var(bound // ALIGNMENT, height, "")
    starts = [model.new_int_var(0, height - unit, "") for unit in units]
    across = [
        model.new_fixed_size_interval_var(moments[a], moments[b] - moments[a], "") for a, b in lives
    ]
    along = [
        model.new_fixed_size_interval_var(start, unit, "")
        for start, unit in zip(starts, units, strict=True)
    ]
    model.add_no_overlap_2d(across, along)
    model.add_cumulative(across, units, top)
    for start, unit, hint in zip(starts, units, hints, strict=True):
        model.add(start + unit <= top)
        model.add_hint(start, hint)
    model.minimize(top)

    class Progress(cp_model.CpSolverSolutionCallback):  # type: ignore[misc]
        def on_solution_callback(self) -> None:
            report(round(self.objective_value) * ALIGNMENT)

    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = seconds
    solver.parameters.use_energetic_reasoning_in_no_overlap_2d = True
    solver.parameters.use_timetabling_in_no_overlap_2d = True
    status = solver.solve(model, Progress())
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return list(initial), False
    return [solver.value(start) * ALIGNMENT for start in starts], status == cp_model.OPTIMAL
