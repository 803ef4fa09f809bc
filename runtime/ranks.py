"""What the ranks of a program do before its first call and around each: on every device."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from graphc.ir.sliced_state import SlicedBuffer
from graphc.ir.state import StateBuffer, wrote
from graphc.parallel.group import ALONE, Group
from graphc.runtime.plan.plan import Plan
from graphc.runtime.plan_store import sources_digest
from graphc.trace.builder import RANK


class Ranks:
    """The ranks that call one program together.

    Before the first call they compare their programs and take the state of rank 0.
    """

    def __init__(self, plan: Plan, group: Group | None) -> None:
        self._plan, self.group = plan, group or ALONE
        self._agreed = self.group.ranks == 1

    def begin(self, state: Mapping[str, StateBuffer]) -> None:
        """Begin a call. Raises RunError if the ranks' programs differ, or a rank has failed."""
        self.group.check()
        self.group.step += 1
        if self._agreed:
            return
        plan = self._plan
        sliced = [buffer for buffer in state.values() if isinstance(buffer, SlicedBuffer)]
        self.group.compare(
            plan.name,
            {
                "graphc": sources_digest()[:12],
                "NumPy": np.__version__,
                "specs": ", ".join(f"{b.value.name} {b.value.type}" for b in plan.inputs),
                "state": ", ".join(f"{b.value.name} {b.value.type}" for b in plan.state),
                "kernels": ", ".join(plan.kernels),
                "plan": plan.verify().digest,
                "sharded state": "loaded" if any(b.version for b in sliced) else "new",
            },
        )
        shared = [
            buffer
            for name, buffer in state.items()
            if name != RANK and not isinstance(buffer, SlicedBuffer)
        ]
        for buffer in shared:
            buffer.refresh_host()
        self.group.broadcast([buffer.array for buffer in shared])
        wrote(shared, "host")
        self._agreed = True

    def end(self) -> None:
        """End a call. Raises RunError if a rank has failed meanwhile."""
        self.group.finish()
