"""From a graph that is not optimized yet to a program: passes, the cache of plans, loading."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from graphc.base import config
from graphc.base.errors import refusals
from graphc.base.files import unused_folder
from graphc.base.locks import between_forks
from graphc.base.messages import decide
from graphc.base.target import Target
from graphc.ir import Graph
from graphc.ir.failures import stage
from graphc.ir.state import StateBuffer
from graphc.ops.constant import PLACED, Constant
from graphc.ops.loops.scan import bodies
from graphc.program.loading import load
from graphc.program.plan_cache import PlanCache
from graphc.program.program import Program
from graphc.program.tracing import Traced
from graphc.program.update import Differentiated, Update

if TYPE_CHECKING:  # nothing of it is needed before something is compiled
    from graphc.parallel.group import Group
    from graphc.runtime.plan.plan import Plan


@dataclass(frozen=True)
class Recipe:
    """What a program is made from."""

    traced: Traced
    """The function's arguments and results."""
    source: Callable[[], Differentiated]
    """Makes the graph that the passes behind the gradient begin with, and its state."""
    settings: config.Config
    precision: str
    target: Target
    group: Group | None = None
    """The ranks that train together; None for a process by itself."""


@between_forks
@refusals()
def make(
    step: Update | None,
    rule: Any,
    recipe: Recipe,
    device: str,
    remembered: PlanCache,
    stages: dict[str, Graph],
    notes: Iterable[str],
) -> Program:
    """Return the program of a recipe, optimized, planned and loaded.

    Args:
        step: What it updates.
        rule: The optimizer.
        recipe: The function, its graph and the settings.
        device: The device.
        remembered: Where its plan may be found.
        stages: The graphs after the passes so far; the rest are added.
        notes: The decisions so far, for the plan.
    """
    settings, target = recipe.settings, recipe.target

    def rest() -> dict[str, Graph]:
        optimize(recipe, stages)
        return stages

    plan: Plan | None
    found = remembered.find()
    if found:
        executable, plan, state = found
    else:
        whole = recipe.source()
        if step is not None:
            step.note(whole.read)
        key = remembered.key(whole)
        optimised = optimize(replace(recipe, source=lambda: whole), stages)
        if "meaning" in settings.check and "trace" in stages:
            from graphc.meaning.check import check

            with stage("meaning"):
                decide(str(check(stages)))
        state = bind_state(optimised, whole.buffers, stages)
        executable, plan, made = load(
            optimised, device, target, state, settings, notes, key, recipe.group
        )
        if made is not None:
            stages.update([made])
    program = Program(
        recipe.traced,
        rest if found else lambda: stages,
        plan,
        executable,
        state,
        rule,
        target,
        settings.check,
        recipe,
    )
    if settings.profile:
        program.profile_at_exit()
    if settings.dump is not None:
        program.dump(unused_folder(settings.dump, program.name))
    return program


def optimize(recipe: Recipe, stages: dict[str, Graph]) -> Graph:
    """Return the graph after the passes behind the gradient, each of which is added to `stages`."""
    from graphc.kernels.loops.sum_orders import order_sums
    from graphc.ops.loops.bodies import through_bodies
    from graphc.passes import pipeline
    from graphc.passes.rewriting.runner import run_passes

    settings = recipe.settings
    # A library computes a contraction, and nothing that its kernel would do besides.
    own = ["fuse_columns", "fuse_rows", "fuse_products"] if settings.libraries else []
    left_out = {*settings.disable, *own}
    after = [item for item in pipeline.after_gradient(recipe.precision) if item[0] not in left_out]
    after.append(("order_sums", through_bodies(order_sums)))
    return run_passes(recipe.source().graph, recipe.target, after, stages.__setitem__)


def bind_state(
    graph: Graph, buffers: Mapping[str, StateBuffer], stages: Mapping[str, Graph]
) -> dict[str, StateBuffer]:
    """Return the buffer of each state value: the model's, or a constant that became state."""
    constants = {
        PLACED + n.op.value.digest: n.op.array
        for stage in stages.values()
        for graph_or_body in (stage, *bodies(stage))
        for n in graph_or_body.nodes
        if isinstance(n.op, Constant)
    }
    return {
        v.name: buffers[v.name] if v.name in buffers else StateBuffer(constants[v.name])
        for v in graph.state
    }
