"""A tensor that belongs to a module and lives between calls."""

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
    """How often the structure of modules may have changed: a parameter was made or given another
    buffer, or an attribute of a module was set. Programs compare it at each call."""

    count = 0


changes = _Changes()


class Parameter(Operand):
    """State of a module: `data` as it is at first; update rules change it if `trainable`.

    Python numbers and lists become float32 (integers stay i64 where they are not trainable);
    arrays keep their dtype, so np.ones(3) gives f64[3]. A program is compiled for what `trainable`
    says then; after another is set, calling a program that would do otherwise is an error. In a
    traced function a parameter has a tensor's operators and can be given to every function. All
    programs that read it share the one buffer, which `assign` overwrites; where another parameter
    takes its place, calling a program that was compiled before is an error. Raises GraphError for a
    trainable one that is not float.
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
        """Shape and dtype; in a function that `vmap` maps over it, those of one sample."""
        builder = innermost_builder()
        return self.state.type if builder is None else builder.type_of(self.state)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.type.shape

    @property
    def dtype(self) -> str:
        """The short dtype name, such as "f32"."""
        return self.type.dtype

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        """Elements."""
        return Size(self.type.size)

    def contents(self, builder: Builder) -> Tensor:
        """The tensor that stands for it at this point of a traced function."""
        builder.note_read(self)
        return builder.contents(self.state)

    def numpy(self) -> Array:
        """A copy of the contents as of the last finished step."""
        return self.state.numpy()

    def assign(self, array: Any) -> None:
        """Overwrite the contents; programs see them from the next call on. `array` is anything
        with `__array__`. GraphError if its shape or dtype do not fit."""
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
