"""What the ranks of a program do before its first call and around each: on every device."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from graphc.ir import DTYPES
from graphc.ir.sliced_state import SlicedBuffer
from graphc.ir.state import StateBuffer, wrote
from graphc.ops.constant import PLACED
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
        kernels = plan.kernels.values()
        self._staged = any(k.message is not None and k.message.in_turn for k in kernels)
        """Whether ranks have a stage each, and so plans and state of their own."""

    def begin(self, state: Mapping[str, StateBuffer]) -> None:
        """Begin a call. Raises RunError if the ranks' programs differ, or a rank has failed."""
        self.group.check()
        self.group.step += 1
        if self._agreed:
            return
        if self._staged:
            self._share_common(state)
            self._agreed = True
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

    def _share_common(self, state: Mapping[str, StateBuffer]) -> None:
        """Let state of one name on several ranks be that of the first of these."""
        own = {n: [b.type.dtype, list(b.type.shape)] for n, b in state.items()}
        facts = {"graphc": sources_digest()[:12]}
        self.group.compare(self._plan.name, facts)
        tables = self.group.collected(own)
        for name in dict.fromkeys(name for table in tables for name in table):
            holders = [rank for rank, table in enumerate(tables) if name in table]
            if len(holders) == 1 or name.startswith(PLACED):
                continue
            dtype, shape = tables[holders[0]][name]
            buffer = state.get(name)
            if buffer is not None:
                buffer.refresh_host()
            array = np.empty(shape, DTYPES[dtype]) if buffer is None else buffer.array
            self.group.shared(array, holders[0])
            wrote([] if buffer is None else [buffer], "host")

    def end(self) -> None:
        """End a call. Raises RunError if a rank has failed meanwhile."""
        self.group.finish()
