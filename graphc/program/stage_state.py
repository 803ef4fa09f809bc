"""The state of a program of which each of several ranks has a part, saved and loaded as a whole."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from graphc.ir import DTYPES, Array, Type
from graphc.ir.state import StateBuffer

if TYPE_CHECKING:
    from graphc.parallel.group import Group


class StageState:
    """What state each rank has. All ranks make it together.

    State of one name on several ranks, such as the counter of steps, is the same there.

    Attributes:
        types: The types of all state, by name.
        owners: The first rank that has each.
    """

    def __init__(self, group: Group, own: Mapping[str, StateBuffer]) -> None:
        self._group = group
        table = {name: [b.type.dtype, list(b.type.shape)] for name, b in own.items()}
        self.types: dict[str, Type] = {}
        self.owners: dict[str, int] = {}
        for rank, found in enumerate(group.collected(table)):
            for name, (dtype, shape) in found.items():
                self.types.setdefault(name, Type(tuple(shape), dtype))
                self.owners.setdefault(name, rank)

    def whole(self, own: Mapping[str, Array]) -> dict[str, Array]:
        """Return the arrays of all ranks, by name; all ranks call it together.

        Args:
            own: Those of this rank.

        Raises:
            RunError: A rank has failed.
        """
        arrays = {}
        for name, kind in self.types.items():
            array = np.empty(kind.shape, DTYPES[kind.dtype])
            if self.owners[name] == self._group.rank:
                array[...] = own[name]
            arrays[name] = self._group.shared(array, self.owners[name])
        return arrays
