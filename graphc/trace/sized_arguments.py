"""The arguments of a call whose axes have names: their sizes, and the arrays, checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from graphc.base.dtypes import long_name
from graphc.base.errors import GraphError
from graphc.ir import NamedType, Type
from graphc.trace.arguments import Arguments

Sizes = tuple[int, ...]
"""The size of each named axis, in the order of `SizedArguments.names`."""


class SizedArguments(Arguments):
    """The arguments of a program of any size, as (name, tree of types and named types) each.

    `largest` says how large some of the axes may be.
    """

    def __init__(
        self, function: str, expected: Sequence[tuple[str, Any]], largest: Mapping[str, int]
    ) -> None:
        super().__init__(function, expected, None)
        self.largest = largest
        kinds = [kind for _, kind in self.inputs]
        found = [n for kind in kinds if isinstance(kind, NamedType) for _, n in kind.names]
        self.names = tuple(dict.fromkeys(found))
        """The named axes, in the order of the arguments."""

    def resolve(self, args: Sequence[Any], named: Mapping[str, Any]) -> tuple[Sizes, list[Any]]:
        """Return the sizes of a call and its arrays in the order of the graph's inputs.

        Arrays on the host are checked and converted; others are returned as they are, and the
        program checks them. It raises GraphError where number, structure, shape or dtype do not
        fit, or where axes of one name differ.
        """
        leaves: list[Any] = self(args, named)
        sizes: dict[str, int] = {}
        first: dict[str, str] = {}
        for value, name, kind in leaves:
            if isinstance(kind, NamedType):
                self._bind(value, name, kind, sizes, first)
        arrays = []
        for value, name, kind in leaves:
            whole = kind.at(sizes) if isinstance(kind, NamedType) else kind
            on_device = hasattr(value, "__cuda_array_interface__")
            arrays.append(value if on_device else super()._array(value, name, whole))
        return tuple(sizes[name] for name in self.names), arrays

    def _array(self, value: Any, name: str, type: Type) -> Any:
        """What `resolve` looks at once the sizes are known."""
        return value, name, type

    def _bind(
        self,
        value: Any,
        name: str,
        kind: NamedType,
        sizes: dict[str, int],
        first: dict[str, str],
    ) -> None:
        """Add the sizes that an array gives to the named axes; `first` says which array did."""
        shape = self._shape(value, name, kind)
        if len(shape) != len(kind.shape):
            raise self._wrong(value, name, kind, f"expected {len(kind.shape)} axes")
        for axis, axis_name in kind.names:
            size = shape[axis]
            known, most = sizes.setdefault(axis_name, size), self.largest.get(axis_name, size)
            if size != known:
                wanted = f"expected {axis_name} {known} as in {first[axis_name]}, got {size}"
                raise self._wrong(value, name, kind, wanted)
            first.setdefault(axis_name, name)
            if size < 1:
                wanted = f"expected {axis_name} of at least 1, got {size}"
                raise self._wrong(value, name, kind, wanted)
            if size > most:
                wanted = f"expected {axis_name} of at most {most}, its largest bucket, got {size}"
                raise self._wrong(value, name, kind, wanted)

    def _shape(self, value: Any, name: str, kind: Any) -> tuple[int, ...]:
        if hasattr(value, "shape"):
            shape = value.shape
        elif hasattr(value, "__cuda_array_interface__"):
            shape = value.__cuda_array_interface__["shape"]
        else:
            shape = self._from_other(value, name, kind).shape
        return tuple(map(int, shape))

    def _wrong(self, value: Any, name: str, kind: NamedType, wanted: str) -> GraphError:
        dtype = getattr(value, "dtype", "")
        shown = long_name(dtype) if isinstance(dtype, np.dtype) else str(dtype)
        extents = ",".join(map(str, self._shape(value, name, kind)))
        return GraphError(f"{self.function}: {name} is {kind}, got {shown}[{extents}]; {wanted}")
