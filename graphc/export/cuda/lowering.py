"""Programs of a GPU as entries of an export: with the plans that Python plays."""

from __future__ import annotations

from collections.abc import Mapping

from graphc.base.errors import GraphError
from graphc.export.lowering import Entry
from graphc.program.loading import pack_state
from graphc.program.program import Program


def entries_of(programs: Mapping[str, Program]) -> list[Entry]:
    """Return programs that `check_gpu_program` accepts as entries, by their names.

    Each buffer is that of the model; the type of the plan's binding has the layout in which the
    kernels read or write it.
    """
    entries = []
    for name, program in programs.items():
        plan = program.plan
        assert plan is not None, "programs of a GPU have a plan"
        _, buffers = pack_state(program.stages["order_sums"], program.bound, program.target)
        bound = tuple(buffers[binding.value.name] for binding in plan.state)
        for buffer in bound:
            buffer.refresh_host()
        entries.append(Entry(name, program, plan, bound, str(program.recipe.source().graph)))
    return entries


def check_gpu_program(program: Program) -> None:
    """Raise GraphError for a program that cannot be exported for a GPU."""
    plan, target = program.plan, program.target
    if plan is None or target.kind.multiprocessors == 0:
        raise GraphError(
            f"export: {program.name} was compiled for {target.device}: only programs of a GPU can "
            'be exported for one: compile with device="cuda", which needs no GPU'
        )
    kernels = [*plan.kernels.values(), *(joined.kernel for joined in plan.joined)]
    for kernel in kernels:
        if kernel.call is not None:
            raise GraphError(
                f"export: {kernel.name} of {program.name} is a call of a library, which exports "
                'do not need: compile without tune="libraries"'
            )
    if target.multiplies_groups or target.adds_in_clusters:
        raise GraphError(
            f"export: {program.name} was compiled with GRAPHC_WGMMA or GRAPHC_CLUSTERS, which "
            "exports do not have: compile without them"
        )
