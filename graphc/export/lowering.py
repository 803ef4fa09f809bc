"""Lower programs again for the machine that they are exported for.

The graphs are those that the programs were made from, so that every sum has the same order; passes,
kernels and plans are the machine's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from graphc.base.errors import GraphError
from graphc.base.target import Target
from graphc.export.targets import Machine
from graphc.ir import Graph
from graphc.ir.state import StateBuffer
from graphc.program.loading import pack_state
from graphc.program.making import bind_state, optimize
from graphc.program.planning import make_plan_of
from graphc.program.program import Program
from graphc.program.sizes import SizedProgram
from graphc.runtime.plan.plan import Plan


@dataclass(frozen=True)
class Entry:
    """One program of an export, lowered for its machine."""

    name: str
    """The name of its C function, without the prefix."""
    program: Program
    """The program."""
    plan: Plan
    """Its verified plan, on one stream."""
    buffers: tuple[StateBuffer, ...]
    """The buffers of the plan's state, in its order."""
    text: str
    """The text of the graph that the passes behind the gradient begin with."""


def lower_for(machine: Machine, programs: Mapping[str, Program]) -> list[Entry]:
    """Return programs that `check_program` accepts, lowered for a machine, by their names."""
    made = {name: optimize_for(machine.target, program) for name, program in programs.items()}
    # What one of them writes, the others read as it is.
    changing = [state[old.name] for _, graph, state in made.values() for old, _ in graph.updates]
    entries = []
    for name, (source, graph, state) in made.items():
        graph, buffers = pack_state(graph, state, machine.target, changing)
        plan = make_plan_of(graph, machine.target, streams=1)
        bound = tuple(buffers[b.value.name] for b in plan.state)
        for buffer in bound:
            buffer.refresh_host()
        entries.append(Entry(name, programs[name], plan, bound, str(source)))
    return entries


def optimize_for(target: Target, program: Program) -> tuple[Graph, Graph, dict[str, StateBuffer]]:
    """Return the program's graph, the one behind all passes for a target, and the state's buffers.

    The target's `transforms_tiles` is as the program's precision asks.
    """
    recipe = program.recipe
    whole = recipe.source()
    target = replace(target, transforms_tiles=recipe.precision == "winograd")
    stages: dict[str, Graph] = {"source": whole.graph}
    again = replace(recipe, source=lambda: whole, target=target)
    optimized = optimize(again, stages)
    state = bind_state(optimized, whole.buffers, stages)
    # Constants lie where the program has them.
    state = {name: program.bound.get(name, buffer) for name, buffer in state.items()}
    return whole.graph, optimized, state


def check_sizes(program: Program) -> None:
    """Raise GraphError for a program that cannot be exported for any target."""
    if isinstance(program, SizedProgram):
        raise GraphError(
            f"export: {program.name} is for any size, an export is for one: export what its at() "
            "returns"
        )
    if any(asked.count for asked in program.recipe.traced.builder.shown):
        raise GraphError(
            f"export: {program.name} prints by graphc.show: use graphc.tap, whose values become "
            "outputs"
        )


def check_program(program: Program) -> None:
    """Raise GraphError for a program that cannot be exported for a CPU."""
    device = program.target.device
    if device not in ("cpu", "reference"):
        raise GraphError(
            f"export: {program.name} was compiled for {device}: only programs of the CPU and the "
            'reference can be exported for a CPU: compile with device="cpu", or export for "cuda"'
        )
