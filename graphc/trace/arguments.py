"""The arguments of a call: matched with specs by structure and name, checked, and made arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from graphc.base.dlpack import host_array, refuse_gradient
from graphc.base.dtypes import BFLOAT16, array_of, convert, is_bfloat16, long_name
from graphc.base.errors import GraphError
from graphc.ir import Array, NamedType, Type, tree

Foreign = Callable[[Any, str], Any]
"""Takes another library's array that lies on the device; None if it does not."""
SPECS: Any = Type | NamedType
"""What an argument's leaf is that stands for an array."""
Exact = Callable[[Any, Any], bool]


def exact(values: Sequence[Any], kinds: Sequence[tuple[tuple[int, ...], Any]]) -> bool:
    """Return whether all values are C-contiguous arrays of the given shapes and dtypes."""
    if len(values) != len(kinds):
        return False
    for value, (shape, dtype) in zip(values, kinds, strict=True):
        if value.__class__ is not np.ndarray or value.dtype != dtype or value.shape != shape:
            return False
        if not value.flags.c_contiguous:
            return False
    return True


@dataclass(frozen=True)
class Static:
    """A constant that a program was compiled for."""

    value: bool | int | float | str


class Arguments:
    """The arguments of a program, as (name, tree of types) each.

    Calling it returns arrays in the order of the graph's inputs, or raises GraphError where number,
    structure, shape or dtype do not fit.
    """

    def __init__(
        self,
        function: str,
        expected: Sequence[tuple[str, Any]],
        foreign: Foreign | None,
        exact: Exact = exact,
    ) -> None:
        self.function, self.expected, self.foreign, self.exact = function, expected, foreign, exact
        leaves = [leaf for name, types in expected for leaf in tree.leaves(types, name)]
        self.inputs = [(name, leaf) for name, leaf in leaves if isinstance(leaf, SPECS)]
        self.flat = all(isinstance(types, Type) for _, types in expected)
        self.kinds = tuple((t.shape, t.numpy_dtype) for _, t in expected) if self.flat else ()

    def __call__(self, args: Sequence[Any], named: Mapping[str, Any]) -> list[Array]:
        if named:
            args = self._in_order(args, named)
        # What is right already costs but a look: a small step takes some microseconds in all.
        if self.flat and self.exact(args, self.kinds):
            return list(args)
        if len(args) != len(self.expected):
            self._fail(f"expected {len(self.expected)} arguments ({self._signature()})", len(args))
        arrays: list[Array] = []
        for value, (name, types) in zip(args, self.expected, strict=True):
            self._match(value, types, name, arrays)
        return arrays

    def _in_order(self, args: Sequence[Any], named: Mapping[str, Any]) -> list[Any]:
        """`args` and those given by name in the order of the function's arguments."""
        names = [name for name, _ in self.expected]
        for name in named:
            if name not in names:
                self._fail(f"expected the arguments {', '.join(names)}", f"{name}=")
            if name in names[: len(args)]:
                self._fail(f"expected {name} once", f"it in place {names.index(name)} and by name")
        behind = names[len(args) :]
        if len(behind) != len(named):
            missing = next(name for name in behind if name not in named)
            kinds = ", ".join(f"{n} {t}" for n, t in self.inputs if n.split(".")[0] == missing)
            self._fail(f"expected {kinds}", "nothing for it")
        return [*args, *(named[name] for name in behind)]

    def _match(self, value: Any, types: Any, path: str, arrays: list[Array]) -> None:
        if types is None:
            return
        if isinstance(types, Static):
            if type(value) is not type(types.value) or value != types.value:
                self._fail(f"{path}: was compiled for {types.value!r}", repr(value))
            return
        if isinstance(types, SPECS):
            arrays.append(self._array(value, path, types))
            return
        if isinstance(types, dict):
            if not isinstance(value, dict) or value.keys() != types.keys():
                got = f"keys {list(value)}" if isinstance(value, dict) else type(value).__name__
                self._fail(f"{path}: expected a dict with the keys {list(types)}", got)
            items = [(value[key], types[key], key) for key in types]
        elif tree.is_record(types):
            if type(value) is not type(types):
                kind, got = type(types).__name__, type(value).__name__
                self._fail(f"{path}: expected the dataclass {kind}", got)
            fields = zip(tree.members(value) or (), tree.members(types) or (), strict=True)
            items = [(given, kind, key) for (key, given), (_, kind) in fields]
        else:
            sized = isinstance(value, tuple | list)
            if not sized or len(value) != len(types):
                got = f"{len(value)} items" if sized else type(value).__name__
                self._fail(f"{path}: expected a tuple or list of {len(types)} items", got)
            items = [(v, t, i) for i, (v, t) in enumerate(zip(value, types, strict=True))]
        for item, kind, key in items:
            self._match(item, kind, f"{path}.{key}", arrays)

    def _array(self, value: Any, name: str, type: Type) -> Array:
        if not isinstance(value, np.ndarray):
            refuse_gradient(value, name)
            foreign = self.foreign(value, name) if self.foreign else None
            if foreign is not None:
                self._check(foreign, name, type)
                return foreign  # type: ignore[no-any-return]
            value = self._from_other(value, name, type)
        if type.dtype == "bf16" and (value.dtype == np.float32 or is_bfloat16(value.dtype)):
            value = convert(value, BFLOAT16)
        self._check(value, name, type)
        return np.ascontiguousarray(value).reshape(type.shape)

    def _from_other(self, value: Any, name: str, type: Type) -> Array:
        if hasattr(value, "__array__"):
            return host_array(value, name)
        if hasattr(value, "__dlpack__"):
            return np.from_dlpack(value)
        if isinstance(value, bool | int | float) and type.shape == ():
            return array_of(value, type.numpy_dtype)
        kind = value.__class__.__name__
        self._fail(f"{name}: expected an array ({type})", f"{kind}; numpy.asarray makes one")

    def _check(self, value: Any, name: str, type: Type) -> None:
        if value.dtype == type.numpy_dtype and value.shape == type.shape:
            return
        hint = ""
        other = value.shape != type.shape and len(value.shape) == type.rank
        if other and value.shape[1:] == type.shape[1:]:
            named = ("batch", *type.shape[1:])
            hint = f"; shapes are fixed, but a program of graphc.spec({named}) takes every size"
        elif value.shape == type.shape and value.dtype.newbyteorder("=") == type.numpy_dtype:
            hint = " of the other byte order"
        elif value.shape == type.shape:
            wanted = "float32" if type.dtype == "bf16" else type.numpy_dtype.name
            hint = f"; {name}.astype({wanted!r}) converts it"
        extents = ",".join(map(str, value.shape))
        raise GraphError(
            f"{self.function}: {name} is {type}, got {long_name(value.dtype)}[{extents}]{hint}"
        )

    def _signature(self) -> str:
        return ", ".join(f"{name} {type}" for name, type in self.inputs)

    def _fail(self, expected: str, got: Any) -> NoReturn:
        raise GraphError(f"{self.function}: {expected}, got {got}")
