"""State that a module's own `forward` changes: counters, averages, codebooks."""

from __future__ import annotations

from typing import Any

from graphc import functions
from graphc.ir import FLOATS, INTEGERS
from graphc.lines import error
from graphc.nn.parameter import Parameter
from graphc.trace import Operand, current_builder


class Buffer(Parameter):
    """State of a module that is not trained. In `forward`, `self.NAME = tensor` gives it its next
    contents: what reads it later in the same call sees them, every program from the next call on.

    `data` as for a `Parameter`; shape and dtype stay. With `persistent=False` it is left out of
    `state_dict`. Inside a scan's function it can be read alone.
    """

    def __init__(self, data: Any, persistent: bool = True) -> None:
        super().__init__(data, trainable=False)
        self.persistent = bool(persistent)

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "trainable" and value:
            raise error("Buffer: is never trained; nn.Parameter is")
        super().__setattr__(name, value)

    def assign(self, array: Any) -> None:
        """Overwrite the contents; in a traced function, with a tensor, at each call of the
        program. GraphError if shape or dtype do not fit."""
        if isinstance(array, Operand):
            self.become(array)
        else:
            super().assign(array)

    def become(self, value: Any) -> None:
        """Let `value` (a tensor or a number) be the contents from here on in the traced
        function. GraphError if shape or dtype do not fit."""
        builder = current_builder()
        old = builder.read_state(self.state)
        number = self.dtype if isinstance(value, bool | int | float) else None
        new = functions.as_tensor(value, number)
        kinds = next((k for k in (FLOATS, INTEGERS) if self.dtype in k), (self.dtype,))
        if new.shape != self.shape or new.dtype not in kinds:
            name = builder.known_name(self.state) or "a buffer"
            raise error(f"{name} is {self.type}, it cannot become {new.value.type}")
        builder.update(old, functions.astype(new, self.dtype))

    def __repr__(self) -> str:
        return f"Buffer({self.type}{'' if self.persistent else ', persistent=False'})"
