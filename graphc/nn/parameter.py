"""A tensor that belongs to a module and lives between calls."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphc.errors import GraphError
from graphc.ir import FLOATS, Type
from graphc.state import StateBuffer
from graphc.trace import Operand, user_line


class Parameter(Operand):
    """State of a module: `data` as it is at first; update rules change it if `trainable`.

    Python numbers and lists become float32 (integers stay i64 where they are not trainable);
    arrays keep their dtype. In a traced function a parameter has a tensor's operators and can be
    given to every function. All programs that read it share the one buffer. Raises GraphError for
    a trainable one that is not float.
    """

    def __init__(self, data: Any, trainable: bool = True) -> None:
        array = np.asarray(data)
        if not hasattr(data, "dtype") and (trainable or array.dtype == np.float64):
            array = array.astype(np.float32)
        self.state = StateBuffer(array)
        self.trainable = trainable
        if trainable and self.dtype not in FLOATS:
            raise GraphError(
                f"Parameter: expected a float dtype, got {self.state.type}; "
                f"trainable=False holds other dtypes ({', '.join(user_line())})"
            )

    @property
    def type(self) -> Type:
        return self.state.type

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
        return self.type.size

    def numpy(self) -> np.ndarray[Any, np.dtype[Any]]:
        """A copy of the contents as of the last finished step."""
        return self.state.numpy()

    def __array__(self, *_: Any, **__: Any) -> np.ndarray[Any, Any]:
        # A silent copy here would turn the parameter into a constant of the graph.
        raise GraphError(
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
