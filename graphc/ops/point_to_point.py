"""Messages from one process to another, or to all others, in an order that the graph states.

Each reads a token and makes one, which the next message reads: so none can overtake another, or be
left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from graphc.base.errors import GraphError
from graphc.ir import DTYPES, Type
from graphc.ops.axes import Axes
from graphc.ops.base import Array, Op

TOKEN = Type((), "bool")
"""What stands for all messages up to one."""


class _InTurn(Op):
    """A message behind that of the first input."""

    is_planned: ClassVar[bool] = True
    communicates: ClassVar[bool] = True
    in_turn: ClassVar[bool] = True

    def axis_map(self, *inputs: Type) -> tuple[tuple[Axes, ...], ...]:
        """Nothing is known, so that the operands lie in memory as they are."""
        return tuple(tuple((None,) * x.rank for x in inputs) for _ in self.infer(*inputs))

    def _check(self, count: int, inputs: tuple[Type, ...]) -> None:
        if len(inputs) != count or inputs[0].shape or inputs[0].dtype != TOKEN.dtype:
            got = ", ".join(map(str, inputs))
            raise GraphError(
                f"{self.name}: expected a token bool[] and {count - 1} more, got {got}"
            )


@dataclass(frozen=True)
class Send(_InTurn):
    """Sends the second input to process `peer`; the output is the token behind that."""

    peer: int
    """The number of the receiver."""
    name: ClassVar[str] = "send"

    def infer(self, *inputs: Type) -> tuple[Type, ...]:
        self._check(2, inputs)
        return (TOKEN,)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        return (inputs[0],)


@dataclass(frozen=True)
class Receive(_InTurn):
    """Receives an array from process `peer`: the token behind that, and the array."""

    peer: int
    """The number of the sender."""
    shape: tuple[int, ...]
    """The shape of the array."""
    dtype: str
    """The dtype of the array."""
    name: ClassVar[str] = "receive"

    def infer(self, *inputs: Type) -> tuple[Type, ...]:
        self._check(1, inputs)
        return TOKEN, Type(self.shape, self.dtype)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        """Zeros in place of what another process sends."""
        return inputs[0], np.zeros(self.shape, DTYPES[self.dtype])


@dataclass(frozen=True)
class Share(_InTurn):
    """An array of process `peer` on all processes: the token behind that, and the array.

    Process `peer` has it as second input, the others have none.
    """

    peer: int
    """The number of the process that has it."""
    shape: tuple[int, ...]
    """The shape of the array."""
    dtype: str
    """The dtype of the array."""
    name: ClassVar[str] = "share"

    def infer(self, *inputs: Type) -> tuple[Type, ...]:
        self._check(min(max(len(inputs), 1), 2), inputs)
        kind = Type(self.shape, self.dtype)
        if len(inputs) == 2 and (inputs[1].shape, inputs[1].dtype) != (kind.shape, kind.dtype):
            raise GraphError(f"share: expected {kind}, got {inputs[1]}")
        return TOKEN, kind

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        """The array itself, or zeros in place of what another process has."""
        if len(inputs) == 2:
            return inputs
        return inputs[0], np.zeros(self.shape, DTYPES[self.dtype])
