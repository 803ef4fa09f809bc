"""Parameters: tensors that belong to a module and live between calls."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphc.base.dlpack import host_array
from graphc.base.errors import GraphError
from graphc.base.source_lines import error, user_line
from graphc.ir import FLOATS, Array, Type
from graphc.ir.state import StateBuffer
from graphc.trace import Builder, Operand, Size, Tensor, innermost_builder


class _Changes:
    """Counts changes to the structure of modules, which programs compare at each call.

    A change is a new parameter, a new buffer of one, or an attribute of a module that was set.
    """

    count = 0


changes = _Changes()


class Parameter(Operand):
    """State of a module that update rules change, if it is trainable.

    In a traced function, a parameter has a tensor's operators and can be passed to every function.
    All programs that read it share one buffer. A program is compiled for the value of `trainable`;
    if it changes, calling the program is an error.

    Args:
        data: The initial contents. Python numbers and lists become float32 (integers stay i64 if
            not trainable); arrays keep their dtype.
        trainable: Whether update rules change it.

    Raises:
        GraphError: A trainable parameter is not a float.

    Example:
        >>> nn.Parameter([[1.0, 2.0]])
        Parameter(f32[1,2])
    """

    persistent = True
    """Whether `state_dict` holds it."""

    def __init__(self, data: Any, trainable: bool = True) -> None:
        array = host_array(data)
        if not hasattr(data, "dtype") and (trainable or array.dtype == np.float64):
            array = array.astype(np.float32)
        self.state = StateBuffer(array)
        self.trainable = trainable

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in ("state", "trainable", "persistent"):
            raise GraphError(
                f"Parameter: cannot set {name}: assign(array) overwrites the contents, and "
                f"trainable says whether update rules change them ({', '.join(user_line())})"
            )
        if name == "state":
            changes.count += 1
        if name == "trainable" and not isinstance(value, bool):
            raise error(f"Parameter: trainable expected True or False, got {value!r}")
        if name == "trainable" and value and self.dtype not in FLOATS:
            raise error(
                f"Parameter: expected a float dtype, got {self.state.type}; "
                "trainable=False holds other dtypes"
            )
        super().__setattr__(name, value)

    @property
    def type(self) -> Type:
        """The shape and dtype; in a function that `vmap` maps over it, those of one sample."""
        builder = innermost_builder()
        return self.state.type if builder is None else builder.type_of(self.state)

    @property
    def shape(self) -> tuple[int, ...]:
        """The size of each axis."""
        return self.type.shape

    @property
    def dtype(self) -> str:
        """The short dtype name, such as "f32"."""
        return self.type.dtype

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return Size(self.type.size)

    def contents(self, builder: Builder) -> Tensor:
        """Return the tensor that stands for the parameter at this point of a traced function."""
        builder.note_read(self)
        return builder.contents(self.state)

    def numpy(self) -> Array:
        """Return a copy of the contents as of the last finished step.

        Example:
            >>> nn.Parameter([1.0, 2.0]).numpy()
            array([1., 2.], dtype=float32)
        """
        return self.state.numpy()

    def assign(self, array: Any) -> None:
        """Overwrite the contents; programs see them from the next call on.

        Args:
            array: An array, or anything with `__array__`.

        Raises:
            GraphError: The shape or dtype does not fit.

        Example:
            >>> weight = nn.Parameter([1.0, 2.0])
            >>> weight.assign(np.array([3.0, 4.0], np.float32))
            >>> weight.numpy()
            array([3., 4.], dtype=float32)
        """
        try:
            self.state.assign(array, "Parameter.assign")
        except GraphError as unfit:
            raise GraphError(f"{unfit} ({', '.join(user_line())})") from None

    def _unreadable(self, reader: str) -> GraphError:
        # A silent copy here would turn the parameter into a constant of the graph.
        return GraphError(
            "a parameter is not an array: use graphc's functions in a traced function and "
            f".numpy() elsewhere ({', '.join(user_line())})"
        )

    def __len__(self) -> int:
        if not self.shape:
            raise GraphError(f"len() of a parameter without axes ({', '.join(user_line())})")
        return self.shape[0]

    def __bool__(self) -> bool:
        raise GraphError(
            f"a parameter has no truth value: compare with None ({', '.join(user_line())})"
        )

    def __repr__(self) -> str:
        return f"Parameter({self.type}{'' if self.trainable else ', trainable=False'})"
