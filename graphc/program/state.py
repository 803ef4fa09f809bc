"""The state of a program: saved and loaded as arrays by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from graphc.base.dtypes import shown
from graphc.ir import Array, Type
from graphc.ir.state import StateBuffer, contents, overwrite, snapshot
from graphc.nn.state_arrays import fitting
from graphc.ops.constant import PLACED
from graphc.program.stage_state import StageState
from graphc.trace.builder import RANK


class ProgramState:
    """The part of a program that lives on between calls.

    Attributes:
        name: The name of the compiled function.
    """

    staged: StageState | None = None
    """The state of all ranks, where each has a stage of the program."""

    def __init__(self, name: str, state: Mapping[str, StateBuffer]) -> None:
        self.name, self._state = name, state

    @property
    def bound(self) -> Mapping[str, StateBuffer]:
        """The buffer of each piece of state by name, and of constants that lie in memory."""
        return self._state

    @property
    def buffers(self) -> dict[str, StateBuffer]:
        """The buffer of each piece of state by name, without constants."""
        return self._buffers_for("a checkpoint")

    def _buffers_for(self, what: str) -> dict[str, StateBuffer]:
        """`buffers`; an error says that `what` needs them."""
        own = (n for n in self._state if not n.startswith(PLACED) and n != RANK)
        return {n: self._state[n] for n in own}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned; if anything does not fit, nothing is changed.

        Args:
            state: A dict from names to arrays.

        Raises:
            GraphError: A name is missing or unexpected, or a shape or dtype does not fit; the
                message lists all.
        """
        own = self._buffers_for("load_state_dict")
        arrays = fitting(self.name, state, self.state_types())
        overwrite(own, {name: arrays[name] for name in own})

    def state_dict(self) -> dict[str, Array]:
        """Return copies of all state of the program, as of the last finished call.

        It includes parameters, moments and counters. Where ranks have parts of these, all ranks
        call it together.

        Returns:
            A dict from names to NumPy arrays.

        Example:
            >>> f = graphc.compile(nn.Linear(2, 1), graphc.spec((1, 2)))
            >>> sorted(f.state_dict())
            ['bias', 'weight']
        """
        own = self._buffers_for("state_dict")
        if self.staged is None:
            return snapshot(own)
        whole = self.staged.whole(contents(own, "state_dict"))
        return {name: shown(array) for name, array in whole.items()}

    def state_types(self) -> dict[str, Type]:
        """Return the types of what `state_dict` returns, by name."""
        if self.staged is not None:
            return dict(self.staged.types)
        buffers = self._buffers_for("state_types")
        return {name: buffer.whole_type for name, buffer in buffers.items()}
