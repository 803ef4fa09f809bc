"""What batches are made of: arrays, datasets of samples, and iterables."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from graphc.base.dlpack import host_array
from graphc.base.dtypes import Array
from graphc.base.errors import GraphError
from graphc.base.source_lines import error
from graphc.data.memory import Memory
from graphc.data.samples import stack
from graphc.ir import tree

Rows = slice | Array
"""The rows of a batch: a run of them, or their numbers i64 [n]."""


class Arrays:
    """Arrays of one number of rows, in tuples and dicts; each row of each is a sample's."""

    def __init__(self, source: Any) -> None:
        self.arrays = tree.map_leaves(_opened, source, "source")
        found = list(tree.leaves(self.arrays, "source"))
        if not found:
            raise error("Batches: expected arrays, got none")
        for name, array in found:
            if array.ndim == 0 or array.dtype.kind not in "biufcV":
                got = "a number" if array.ndim == 0 else f"dtype {array.dtype}"
                raise error(f"Batches: {name}: expected rows of numbers, got {got}")
        counts = {name: len(array) for name, array in found}
        if len(set(counts.values())) > 1:
            said = ", ".join(f"{name} {count}" for name, count in counts.items())
            raise error(f"Batches: expected arrays of one number of rows, got {said}")
        self.rows = len(found[0][1])
        self.row_bytes = sum(array.nbytes for _, array in found) // max(self.rows, 1)
        self.mapped = any(isinstance(array, np.memmap) for _, array in found)

    def read(self, rows: Rows, memory: Memory) -> Any:
        """Return the rows of each array [n, ...] in memory of `memory`."""
        count = rows.stop - rows.start if isinstance(rows, slice) else len(rows)

        def chosen(name: str, array: Array) -> Array:
            out = memory.take(name, (count, *array.shape[1:]), array.dtype)
            if isinstance(rows, slice):
                np.copyto(out, array[rows])
            else:  # "clip" copies straight to `out`; no row is out of bounds
                np.take(array, rows, axis=0, out=out, mode="clip")
            return out

        return tree.map_leaves(chosen, self.arrays)


class Dataset:
    """A dataset with `__len__` and `__getitem__`, as those of PyTorch and Hugging Face.

    One with `__getitems__` is asked for all samples of a batch at once, as PyTorch's loader does.
    """

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset
        self.rows = len(dataset)

    def read(self, rows: Rows, memory: Memory) -> Any:
        """Return the samples of these rows, stacked."""
        numbers = range(rows.start, rows.stop) if isinstance(rows, slice) else rows.tolist()
        several = getattr(self.dataset, "__getitems__", None)
        if several is not None:
            samples = several(list(numbers))
        else:
            samples = [self._sample(number) for number in numbers]
        return stack(samples, list(numbers), memory)

    def _sample(self, number: int) -> Any:
        try:
            return self.dataset[number]
        except Exception as problem:
            problem.add_note(f"in sample {number}")
            raise


class Stream:
    """An iterable of samples, or a function that returns one; each epoch begins it anew."""

    rows = None

    def __init__(self, source: Iterable[Any] | Callable[[], Iterable[Any]]) -> None:
        self.source = source
        self.once = isinstance(source, Iterator)
        self.begun = False

    def samples(self) -> Iterator[Any]:
        """Return the samples of an epoch.

        Raises:
            GraphError: It is an iterator, which can be gone through once, and was.
        """
        if self.once and self.begun:
            raise GraphError(
                "Batches: the iterator was used up by an earlier epoch; give the function that "
                "returns it, or an iterable that begins anew"
            )
        self.begun = True
        return iter(self.source if isinstance(self.source, Iterable) else self.source())

    def batches(
        self, size: int, skipped: int, last: str, memory: Memory
    ) -> Iterator[tuple[Any, int]]:
        """Return the batches behind `skipped` ones, and how many rows of each are no padding.

        `last` is that of `Batches`.
        """
        samples = itertools.islice(self.samples(), skipped * size, None)
        first = skipped * size
        while found := list(itertools.islice(samples, size)):
            count = len(found)
            if last == "drop" and count < size:
                return
            found += found[-1:] * (size - count if last == "pad" else 0)
            yield stack(found, range(first, first + len(found)), memory), count
            first += count


Source = Arrays | Dataset | Stream


def source_of(given: Any) -> Source:
    """Return the source that an argument of `Batches` stands for, or raise GraphError."""
    if isinstance(given, tuple | dict) or _is_array(given):
        return Arrays(given)
    if hasattr(given, "__len__") and hasattr(given, "__getitem__"):
        return Dataset(given)
    if isinstance(given, Iterable) or callable(given):
        return Stream(given)
    raise error(
        "Batches: expected arrays, the name of a .npy file, a dataset or an iterable of samples, "
        f"got {type(given).__name__}"
    )


def _is_array(given: Any) -> bool:
    """Whether it is a whole array or stands for one, rather than a sequence of samples."""
    whole = isinstance(given, np.ndarray | str | os.PathLike)
    return whole or hasattr(given, "__dlpack__") or hasattr(given, "to_numpy")


def _opened(name: str, given: Any) -> Array:
    """The array that an array, a list or the name of a file stands for."""
    if not isinstance(given, str | os.PathLike):
        return host_array(given, f"Batches: {name}")
    path = Path(given)
    if path.suffix != ".npy":
        raise error(f"Batches: {name}: expected a .npy file, got {path.name}")
    try:
        mapped: Array = np.load(path, mmap_mode="r")
    except (OSError, ValueError) as problem:
        raise error(f"Batches: {name}: cannot read {path}: {problem}") from None
    return mapped
