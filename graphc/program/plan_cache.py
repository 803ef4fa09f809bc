"""Find programs that were planned before, by their traces alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from graphc.base import config
from graphc.base.cached import cached_property
from graphc.base.target import Target
from graphc.ir import Graph
from graphc.ir.failures import stage
from graphc.ir.state import StateBuffer
from graphc.program.executable import Executable
from graphc.program.loading import check_ops, key_of, tiers_of, with_note
from graphc.program.update import Differentiated, Update

if TYPE_CHECKING:  # nothing of it is needed before something is compiled
    from graphc.parallel.group import Group
    from graphc.runtime.plan.plan import Plan

Recalled = tuple[Executable, "Plan", dict[str, StateBuffer]]


class PlanCache:
    """The cached plan of a program, if there is one.

    The key consists of the traced graph, the settings of `compile`, the machine and the text of the
    update. Only differentiation tells which parameters have a gradient, so that is cached too,
    under the key without the update.
    """

    def __init__(
        self,
        graph: Graph,
        buffers: Mapping[str, StateBuffer],
        update: Update | None,
        target: Target,
        settings: config.Config,
        precision: str,
        group: Group | None = None,
    ) -> None:
        self._graph, self._buffers, self._update = graph, buffers, update
        self._target, self._settings, self._precision = target, settings, precision
        self._group = group

    def find(self) -> Recalled | None:
        """Return the loaded program and its state; None if it was not planned before."""
        if self._traced is None:
            return None
        from graphc.runtime import plan_store
        from graphc.runtime.compilers import cache
        from graphc.runtime.cpu import executable
        from graphc.runtime.tuning.stream_autotuner import is_unmeasured

        with stage("recall"):
            key, buffers = self._traced, self._buffers
            if self._update is not None:
                names = cache.recall_choice(key)
                outlined = names and self._outlined(names["updated"])
                if not outlined:
                    return None
                key, buffers = outlined
            found = plan_store.load_plan(key, buffers, [self._graph])
            if found is None:
                return None
            tiers = tiers_of(self._settings, self._target, found.prebuilt)
            computing = {n: k for n, k in found.plan.kernels.items() if k.message is None}
            first = tiers and tiers.first(computing, keys=found.keys)
            if is_unmeasured(found.plan) and not (first and first.prebuilt):
                return None
            if self._update is not None:
                self._update.note(names["read"])
            state, threads = {**found.state, **found.packed}, self._settings.threads
            loaded = executable.load(
                found.plan, state, threads, keys=found.keys, tiers=tiers, group=self._group
            )
        return loaded, with_note(found.plan, loaded), dict(found.state)

    def key(self, whole: Differentiated) -> str | None:
        """Return the key of the plan of a differentiated graph; None if it is not cached.

        It raises GraphError for a user's op that no kernel can compute.
        """
        check_ops(whole.graph, self._target)
        if self._traced is None or self._update is None:
            return self._traced
        outlined = self._outlined(whole.updated)
        if outlined is None:
            return None
        key, buffers = outlined
        if any(buffers.get(name) is not buffer for name, buffer in whole.buffers.items()):
            return None
        from graphc.runtime.compilers import cache

        cache.remember_choice(self._traced, {"read": whole.read, "updated": whole.updated})
        return key

    @cached_property
    def _traced(self) -> str | None:
        """The digest of all but the update; None for what is not remembered."""
        trainable = None if self._update is None else self._update.trainable
        return key_of(self._graph, trainable, self._target, self._settings, self._precision)

    def _outlined(self, updated: Sequence[str]) -> tuple[str, Mapping[str, StateBuffer]] | None:
        """The digest of everything, and the buffers of the state, moments included."""
        assert self._update is not None
        outline = self._update.outline(self._graph, updated)
        if outline is None:
            return None
        from graphc.runtime.compilers import cache

        graph, buffers = outline
        return cache.choice_key(self._traced, updated, str(graph)), buffers
