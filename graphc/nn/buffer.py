"""Buffers: state that a module's own `forward` changes, such as counters and averages."""

from __future__ import annotations

from typing import Any

from graphc import functions
from graphc.base.source_lines import error
from graphc.ir import FLOATS, INTEGERS, Type
from graphc.nn.parameter import Parameter
from graphc.trace import Builder, Operand, Tensor, current_builder, innermost_builder


class Buffer(Parameter):
    """State of a module that is not trained, but may be assigned in `forward`.

    In `forward`, `self.NAME = tensor` sets the next contents. Later reads of the attribute in the
    same call see them, and every program sees them from the next call on. As in PyTorch, a variable
    keeps what it was assigned: after `old = self.NAME; self.NAME = new`, `old` still holds the
    previous contents. Loops and branches may assign buffers: an iteration reads what the one before
    has left.

    Args:
        data: The initial contents, as for a `Parameter`; shape and dtype stay.
        persistent: Whether `state_dict` includes it.

    Example:
        >>> class Counter(nn.Module):
        ...     def __init__(self):
        ...         self.count = nn.Buffer(np.int64(0))
        ...     def forward(self):
        ...         self.count = self.count + 1
        ...         return self.count
        ...
        >>> count = graphc.compile(Counter())
        >>> count(), count()
        (array(1), array(2))
    """

    is_value = False
    """Whether it stands for what another buffer held at a moment of a traced function."""

    def __init__(self, data: Any, persistent: bool = True) -> None:
        super().__init__(data, trainable=False)
        self.persistent = bool(persistent)

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "trainable" and value:
            raise error("Buffer: is never trained; nn.Parameter is")
        super().__setattr__(name, value)

    def assign(self, array: Any) -> None:
        """Overwrite the contents; with a tensor in a traced function, at each call of the program.

        Raises:
            GraphError: The shape or dtype does not fit.
        """
        if isinstance(array, Operand):
            self.become(array)
        else:
            super().assign(array)

    def become(self, value: Any) -> None:
        """Set the contents from here on in the traced function.

        Args:
            value: A tensor or a number.

        Raises:
            GraphError: The shape or dtype does not fit.
        """
        builder = current_builder()
        old = builder.read_state(self.state)
        number = self.dtype if isinstance(value, bool | int | float) else None
        new = functions.as_tensor(value, number)
        kinds = next((k for k in (FLOATS, INTEGERS) if self.dtype in k), (self.dtype,))
        if new.shape != self.shape or new.dtype not in kinds:
            name = builder.known_name(self.state) or "a buffer"
            raise error(f"{name} is {self.type}, it cannot become {new.value.type}")
        builder.update(old, functions.astype(new, self.dtype))

    def read(self) -> Buffer:
        """Return the buffer, or in a traced function its contents at this point."""
        builder = innermost_builder()
        return self if builder is None else _BufferValue(self, builder)

    def __repr__(self) -> str:
        return f"Buffer({self.type}{'' if self.persistent else ', persistent=False'})"


class _BufferValue(Buffer):
    """The contents of a buffer at the moment when a traced function read it.

    `assign` overwrites the buffer, and this value with it.
    """

    is_value = True

    def __init__(self, buffer: Buffer, builder: Builder) -> None:
        vars(self).update(vars(buffer), _moment=(builder, builder.latest(buffer.state)))

    def contents(self, builder: Builder) -> Tensor:
        reader, latest = vars(self)["_moment"]
        return builder.own(reader.read_state(self.state) if latest is None else latest)

    @property
    def type(self) -> Type:
        builder: Builder = vars(self)["_moment"][0]
        return builder.type_of(self.state)

    def become(self, value: Any) -> None:
        super().become(value)
        builder = current_builder()
        vars(self)["_moment"] = builder, builder.latest(self.state)

    def read(self) -> Buffer:
        builder = innermost_builder()
        return self if builder is vars(self)["_moment"][0] else super().read()


class _Values(tuple[Any, ...]):
    """The values of a list that holds buffers; setting an item assigns to its buffer."""

    _source: Any

    def __setitem__(self, index: Any, value: Any) -> None:
        _assign(self._source, index, value)


class _NamedValues(dict[Any, Any]):
    """The values of a dict that holds buffers; setting an item assigns to its buffer."""

    _source: Any

    def __setitem__(self, name: Any, value: Any) -> None:
        _assign(self._source, name, value)
        super().__setitem__(name, as_read(self._source[name]))


def as_read(value: Any) -> Any:
    """Return the value of an attribute as a traced function sees it.

    Buffers, also those in lists, tuples and dicts, are replaced by their contents at this point.
    """
    if innermost_builder() is None or not _holds_buffers(value):
        return value
    if isinstance(value, Buffer):
        return value.read()
    found = (
        _NamedValues((name, as_read(item)) for name, item in value.items())
        if isinstance(value, dict)
        else _Values(map(as_read, value))
    )
    found._source = value
    return found


def _holds_buffers(value: Any) -> bool:
    if type(value) in (list, tuple):
        return any(map(_holds_buffers, value))
    if type(value) is dict:
        return any(map(_holds_buffers, value.values()))
    return isinstance(value, Buffer)


def _assign(source: Any, key: Any, value: Any) -> None:
    held = source[key]
    if isinstance(held, Buffer):
        held.become(value)
    else:
        source[key] = value
