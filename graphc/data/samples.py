"""Stack samples to arrays: what PyTorch calls to collate."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from graphc.base.dlpack import host_array
from graphc.base.dtypes import Array, long_name
from graphc.base.errors import GraphError
from graphc.data.memory import Memory
from graphc.ir import tree


def stack(samples: Sequence[Any], rows: Iterable[int], memory: Memory) -> Any:
    """Return samples of one structure as that structure of arrays [n, ...].

    Python's numbers, also in lists, become bool, int32 or float32; arrays keep their dtype.

    Args:
        samples: Numbers, arrays, or tuples and dicts of them.
        rows: Their numbers, for messages.
        memory: Where the arrays are taken from.

    Raises:
        GraphError: A sample holds something else, or differs in structure, shape or dtype from the
            first.
    """
    first: dict[str, Array] = {}
    made: dict[str, Array] = {}
    structure: Any = None
    for place, (row, sample) in enumerate(zip(rows, samples, strict=True)):
        arrays = tree.map_leaves(_array, _with_arrays(sample, row), f"sample {row}")
        if place == 0:
            structure = tree.map_leaves(lambda path, _: path, arrays, "sample")
            first = dict(tree.leaves(arrays, "sample"))
            made = {
                name: memory.take(name, (len(samples), *array.shape), array.dtype)
                for name, array in first.items()
            }
        found = dict(tree.leaves(arrays, "sample"))
        if found.keys() != first.keys():
            raise GraphError(f"Batches: sample {row}: expected {[*first]}, got {[*found]}")
        for name, array in found.items():
            like = first[name]
            if array.shape != like.shape or array.dtype != like.dtype:
                raise GraphError(
                    f"Batches: sample {row}: {name} expected {_type(like)} as in the first of the "
                    f"batch, got {_type(array)}"
                )
            made[name][place] = array
    return tree.map_leaves(lambda _, name: made[name], structure)


def _with_arrays(sample: Any, row: int) -> Any:
    """A sample whose lists of numbers are arrays."""
    if isinstance(sample, list) and _holds_numbers(sample):
        try:
            return _narrowed(np.asarray(sample))
        except ValueError:
            raise GraphError(
                f"Batches: sample {row}: expected rows of one length in a list"
            ) from None
    if isinstance(sample, dict):
        return {key: _with_arrays(value, row) for key, value in sample.items()}
    if isinstance(sample, tuple | list):
        return tuple(_with_arrays(value, row) for value in sample)
    return sample


def _holds_numbers(value: Any) -> bool:
    """Whether it is a number or nested lists that begin with one."""
    while isinstance(value, list):
        if not value:
            return True
        value = value[0]
    return isinstance(value, bool | int | float | np.generic)


def _array(name: str, value: Any) -> Array:
    if isinstance(value, bool | int | float):
        return _narrowed(np.asarray(value))
    if isinstance(value, str | bytes):
        raise GraphError(f"Batches: {name}: expected numbers, got {type(value).__name__}")
    array = host_array(value, f"Batches: {name}")
    if array.dtype.kind not in "biufcV":
        raise GraphError(f"Batches: {name}: expected numbers, got {type(value).__name__}")
    return array


def _narrowed(array: Array) -> Array:
    """Python's numbers as graphc's functions take them: float32, and int32 where they fit."""
    if array.dtype == np.float64:
        return array.astype(np.float32)
    if array.dtype == np.int64 and np.array_equal(array, array.astype(np.int32)):
        return array.astype(np.int32)
    return array


def _type(array: Array) -> str:
    return f"{long_name(array.dtype)}[{','.join(map(str, array.shape))}]"
