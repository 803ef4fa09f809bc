"""Traced tensors, and the operators and methods that they share with parameters."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from graphc.base.errors import GraphError
from graphc.base.source_lines import user_line
from graphc.ir import TensorLike, Value


class Operand:
    """Anything with NumPy's operators, indexing and methods in a traced function.

    Each method is the function of that name in graphc.functions.
    """

    __array_priority__ = 1000
    functions: ClassVar[Any]
    """The package `graphc.functions`, which stands above this folder and sets it."""
    if TYPE_CHECKING:  # set below, from tables
        # fmt: off
        def __add__(self, other: TensorLike) -> Tensor: ...
        def __radd__(self, other: TensorLike) -> Tensor: ...
        def __sub__(self, other: TensorLike) -> Tensor: ...
        def __rsub__(self, other: TensorLike) -> Tensor: ...
        def __mul__(self, other: TensorLike) -> Tensor: ...
        def __rmul__(self, other: TensorLike) -> Tensor: ...
        def __truediv__(self, other: TensorLike) -> Tensor: ...
        def __rtruediv__(self, other: TensorLike) -> Tensor: ...
        def __pow__(self, other: TensorLike) -> Tensor: ...
        def __rpow__(self, other: TensorLike) -> Tensor: ...
        def __matmul__(self, other: TensorLike) -> Tensor: ...
        def __rmatmul__(self, other: TensorLike) -> Tensor: ...
        def __mod__(self, other: TensorLike) -> Tensor: ...
        def __rmod__(self, other: TensorLike) -> Tensor: ...
        def __floordiv__(self, other: TensorLike) -> Tensor: ...
        def __rfloordiv__(self, other: TensorLike) -> Tensor: ...
        def __and__(self, other: TensorLike) -> Tensor: ...
        def __rand__(self, other: TensorLike) -> Tensor: ...
        def __or__(self, other: TensorLike) -> Tensor: ...
        def __ror__(self, other: TensorLike) -> Tensor: ...
        def __xor__(self, other: TensorLike) -> Tensor: ...
        def __rxor__(self, other: TensorLike) -> Tensor: ...
        def __lshift__(self, other: TensorLike) -> Tensor: ...
        def __rlshift__(self, other: TensorLike) -> Tensor: ...
        def __rshift__(self, other: TensorLike) -> Tensor: ...
        def __rrshift__(self, other: TensorLike) -> Tensor: ...
        def __lt__(self, other: TensorLike) -> Tensor: ...
        def __le__(self, other: TensorLike) -> Tensor: ...
        def __gt__(self, other: TensorLike) -> Tensor: ...
        def __ge__(self, other: TensorLike) -> Tensor: ...
        def __eq__(self, other: TensorLike) -> Tensor: ...  # type: ignore[override]
        def __ne__(self, other: TensorLike) -> Tensor: ...  # type: ignore[override]
        def __neg__(self) -> Tensor: ...
        def __abs__(self) -> Tensor: ...
        def __invert__(self) -> Tensor: ...
        def __getitem__(self, index: Any) -> Tensor: ...
        # fmt: on

    def contents(self, builder: Any) -> Tensor:
        """Return the tensor of this in the function that `builder` traces."""
        raise NotImplementedError

    def _unreadable(self, reader: str) -> GraphError:
        """Return the error for `reader`, which tries to read elements."""
        raise NotImplementedError

    def __array__(self, *_: Any, **__: Any) -> np.ndarray[Any, Any]:
        raise self._unreadable("NumPy functions")

    def __array_function__(self, *_: Any) -> Any:
        # Else np.sum(x) would call x.sum(axis=None, dtype=None, out=None).
        raise self._unreadable("NumPy functions")

    @classmethod
    def __torch_function__(cls, function: Any, *_: Any, **__: Any) -> Any:
        functions = Operand.functions
        raise functions.hints.torch_function(function, cls.__name__, functions.__all__)

    def __float__(self) -> float:
        raise self._unreadable("float() and Python's math functions")

    def __int__(self) -> int:
        raise self._unreadable("int()")

    def __index__(self) -> int:
        raise self._unreadable("range(), a list's index or a shape")

    def __complex__(self) -> complex:
        raise self._unreadable("complex()")

    def __format__(self, specification: str) -> str:
        if specification:
            raise self._unreadable(f"the format {specification!r}")
        return repr(self)

    def __setitem__(self, index: Any, value: Any) -> None:
        raise GraphError(
            "a tensor's elements are not assigned to: graphc.where, concat, scatter and pad give "
            f"a new tensor ({', '.join(user_line())})"
        )

    def __getattr__(self, name: str) -> Any:
        # An AttributeError, so that hasattr() and getattr() with a default work as for any object.
        message = f"{type(self).__name__} has no {name!r}"
        if not name.startswith("_"):
            functions = Operand.functions
            known = functions.hints.missing_attribute(name, _METHODS, functions.__all__)
            message += f"{known} ({', '.join(user_line())})"
        raise AttributeError(message)


class Size(int):
    """A number of elements; calling it raises an error that explains PyTorch's `x.size(0)`."""

    def __call__(self, *_: Any) -> Any:
        raise GraphError(
            "size is the number of elements: x.shape[i] is the extent of an axis "
            f"({', '.join(user_line())})"
        )


class Tensor(Operand):
    """A value of the graph being traced, with NumPy's operators, indexing and methods.

    Example:
        >>> graphc.compile(lambda x: (x + 1).sum(), graphc.spec(2))(np.array([1, 2], np.float32))
        array(5., dtype=float32)
    """

    __slots__ = ("builder", "value")

    def __init__(self, value: Value, builder: object) -> None:
        self.value, self.builder = value, builder

    def contents(self, builder: Any) -> Tensor:
        """Return this tensor in the function that `builder` traces."""
        return self

    @property
    def shape(self) -> tuple[int, ...]:
        """The size of each axis."""
        return self.value.type.shape

    @property
    def dtype(self) -> str:
        """The short dtype name, such as "f32"."""
        return self.value.type.dtype

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return Size(self.value.type.size)

    def __repr__(self) -> str:
        return f"Tensor({self.value} : {self.value.type})"

    def __bool__(self) -> bool:
        raise GraphError(
            "a traced tensor has no truth value: the graph is the same for every input; "
            f"use graphc.where(condition, a, b) ({', '.join(user_line())})"
        )

    def _unreadable(self, reader: str) -> GraphError:
        return GraphError(
            f"a traced tensor has no elements yet: {reader} cannot read it; "
            f"use graphc's functions ({', '.join(user_line())})"
        )

    def __len__(self) -> int:
        if not self.shape:
            raise GraphError(f"len() of a tensor without axes ({', '.join(user_line())})")
        return self.shape[0]

    def __iter__(self) -> Iterator[Tensor]:
        return (self[i] for i in range(len(self)))


def _method(name: str, reflected: bool = False) -> Callable[..., Any]:
    def method(self: Operand, *args: Any, **kwargs: Any) -> Any:
        function = getattr(Operand.functions, name)
        return function(args[0], self) if reflected else function(self, *args, **kwargs)

    method.__name__ = name
    return method


# fmt: off
_OPERATORS = {
    "add": "add", "sub": "subtract", "mul": "multiply", "truediv": "divide", "pow": "pow",
    "matmul": "matmul", "mod": "remainder", "floordiv": "floor_divide",
    "and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor",
    "lshift": "bitwise_left_shift", "rshift": "bitwise_right_shift",
}
_COMPARISONS = {
    "lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal",
    "eq": "equal", "ne": "not_equal",
}
_METHODS = ("sum", "mean", "max", "min", "reshape", "permute_dims", "flatten", "astype", "exp",
            "log", "sqrt", "tanh", "sigmoid", "relu", "abs", "transpose", "squeeze", "expand_dims",
            "broadcast_to", "softmax")
# fmt: on
for _name, _function in _OPERATORS.items():
    setattr(Operand, f"__{_name}__", _method(_function))
    setattr(Operand, f"__r{_name}__", _method(_function, reflected=True))
for _name, _function in _COMPARISONS.items():
    setattr(Operand, f"__{_name}__", _method(_function))
for _name in _METHODS:
    setattr(Operand, _name, _method(_name))
for _name, _function in {
    "neg": "negative",
    "abs": "abs",
    "getitem": "getitem",
    "invert": "bitwise_not",
}.items():
    setattr(Operand, f"__{_name}__", _method(_function))
Operand.__hash__ = object.__hash__  # type: ignore[method-assign]
Operand.T = Operand.mT = property(_method("matrix_transpose"))  # type: ignore[attr-defined]
