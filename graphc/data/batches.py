"""Batches: go through arrays, datasets and iterables, from any position."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from typing import Any

import numpy as np

from graphc.base.dtypes import Array
from graphc.base.errors import GraphError
from graphc.base.source_lines import error
from graphc.data.ahead import ahead
from graphc.data.memory import Memory
from graphc.data.sources import Arrays, Dataset, Rows, Stream, source_of
from graphc.ir import tree

LAST = ("drop", "pad", "bucket")
AT_ONCE = 2**18
"""Batches of arrays in memory up to so many bytes are gathered by the loop itself: that takes less
time (some 20 microseconds) than to wait for another thread."""


class Batches:
    """Batches of a dataset as NumPy arrays; each `for` loop over it is one epoch.

    A batch has the structure of the source (an array, tuple or dict), each array [size, ...] and
    C-contiguous. A thread prepares the next batches in memory that is used again once nothing
    refers to a batch any more. The thread ends with the loop, however the loop ends.

    `position` is a small dict for JSON that says how many batches were given: store it with
    `graphc.save_checkpoint(..., data=batches.position)`, assign it to go on with the next batch.

    Args:
        source: Arrays of one number of rows: one array, a tuple or a dict of them; a name of a
            `.npy` file stands for the file as a memory-mapped array. Or a dataset of samples with
            `__len__` and `__getitem__`, such as a list or those of PyTorch and Hugging Face. Or an
            iterable of samples, or a function without arguments that returns one. A sample is a
            number, an array or a tuple or dict of them; lists of numbers are arrays. Python's
            numbers become int32 and float32.
        size: The number of samples of a batch.
        shuffle: The seed of the order, another one in each epoch; None keeps the order.
        last: What becomes of the samples that are left over at the end. "drop" leaves them out (in
            shuffled epochs each time others). "pad" repeats the last of them up to `size` rows, and
            gives all batches one array more, f32 [size], behind those of a tuple or as "weight" of
            a dict: 1 for a sample, 0 for padding. "bucket" gives a smaller batch, for programs with
            a named axis, which have a plan for its size or pad it up to one of their
            `graphc.Buckets`.
        prefetch: The number of batches that the thread prepares; 0 does without a thread. By
            default 2, and 0 for small batches of arrays in memory.

    Raises:
        GraphError: An argument is wrong, or arrays differ in their number of rows. While it is gone
            through: samples differ in structure, shape or dtype. Exceptions of the source are
            raised as they are, by the loop, with a note that names the batch.

    Example:
        >>> x, y = np.arange(10, dtype=np.float32), np.arange(10, dtype=np.int32)
        >>> batches = graphc.data.Batches((x, y), 4, last="bucket")
        >>> [len(y) for x, y in batches]
        [4, 4, 2]
        >>> batches.position["epoch"]
        1
    """

    def __init__(
        self,
        source: Any,
        size: int,
        *,
        shuffle: int | None = None,
        last: str = "drop",
        prefetch: int | None = None,
    ) -> None:
        self.size = _whole("size", size, 1)
        self.shuffle = None if shuffle is None else _whole("shuffle", shuffle, 0, "a seed")
        if last not in LAST:
            raise error(f"Batches: last expected {', '.join(map(repr, LAST))}, got {last!r}")
        self.last = last
        self._source = source_of(source)
        rows = self._source.rows
        if rows == 0:
            raise error("Batches: expected samples, got none")
        if rows is None and self.shuffle is not None:
            raise error("Batches: shuffle expected a source with a length, got an iterable")
        if rows is not None and rows < self.size and last == "drop":
            raise error(
                f"Batches: expected at least size={self.size} samples, got {rows}; last='pad' or "
                "'bucket' gives the smaller batch"
            )
        self._prefetch = self._ahead() if prefetch is None else _whole("prefetch", prefetch, 0)
        self._memory = Memory(self._prefetch + 3)
        self._epoch, self._batch = 0, 0
        self._set = False
        """Whether the position was assigned since the last loop began."""

    def _ahead(self) -> int:
        source = self._source
        small = isinstance(source, Arrays) and source.row_bytes * self.size <= AT_ONCE
        return 0 if small and not source.mapped else 2  # type: ignore[union-attr]

    @property
    def position(self) -> dict[str, Any]:
        """How many batches of which epoch were given, as a dict for JSON.

        A loop begins with the batch of a position that was assigned, else with the next epoch. The
        position of an iterable is reached by going through it. To assign one raises GraphError if
        it is that of other batches (in rows, size, seed or treatment of the last one).

        Example:
            >>> batches = graphc.data.Batches(np.arange(8), 2, shuffle=0)
            >>> whole = [batch.tolist() for batch in batches]
            >>> batches.position = {**batches.position, "epoch": 0, "batch": 3}
            >>> [batch.tolist() for batch in batches] == whole[3:]
            True
        """
        return {"epoch": self._epoch, "batch": self._batch, **self._identity()}

    @position.setter
    def position(self, value: Mapping[str, Any]) -> None:
        names = ["epoch", "batch", *self._identity()]
        if not isinstance(value, Mapping) or sorted(value) != sorted(names):
            raise error(f"Batches: position expected a dict of {', '.join(names)}, got {value!r}")
        for name, own in self._identity().items():
            if value[name] != own:
                raise error(
                    f"Batches: position expected {name} {own!r}, got one of {value[name]!r}"
                )
        epoch, batch = (_whole(f"position: {name}", value[name], 0) for name in ("epoch", "batch"))
        if self._source.rows is not None and batch > len(self):
            raise error(f"Batches: position expected at most {len(self)} batches, got {batch}")
        self._epoch, self._batch, self._set = epoch, batch, True

    def _identity(self) -> dict[str, Any]:
        """What positions of these batches have in common."""
        return {
            "rows": self._source.rows,
            "size": self.size,
            "shuffle": self.shuffle,
            "last": self.last,
        }

    def __len__(self) -> int:
        """Return the number of batches of an epoch.

        Raises:
            TypeError: The source is an iterable.
        """
        rows = self._source.rows
        if rows is None:
            raise TypeError("Batches of an iterable have no len()")
        return rows // self.size if self.last == "drop" else -(-rows // self.size)

    def count(self, batch: Any) -> int:
        """Return the number of samples of a batch, padding left out."""
        arrays = [array for _, array in tree.leaves(batch)]
        return int(arrays[-1].sum()) if self.last == "pad" else len(arrays[0])

    def __iter__(self) -> Iterator[Any]:
        if not self._set and self._batch:
            self._epoch, self._batch = self._epoch + 1, 0
        self._set = False
        return self._loop(self._epoch, self._batch)

    def _loop(self, epoch: int, batch: int) -> Iterator[Any]:
        made = self._made(epoch, batch)
        items = ahead(made, self._prefetch) if self._prefetch else made
        try:
            for found in items:
                batch += 1
                self._epoch, self._batch = epoch, batch
                # The generator keeps no reference, so that the memory of the batch is free once
                # the caller's is gone.
                yield found.pop()
        finally:
            items.close()
        self._epoch, self._batch = epoch + 1, 0

    def _made(self, epoch: int, batch: int) -> Generator[list[Any]]:
        """The batches of an epoch from number `batch` on, each in a list."""
        source = self._source
        if isinstance(source, Stream):
            parts = source.batches(self.size, batch, self.last, self._memory)
        else:
            parts = self._of_rows(source, epoch, batch)
        while True:
            try:
                part = next(parts)
            except StopIteration:
                return
            except Exception as problem:
                if not isinstance(problem, GraphError):
                    problem.add_note(f"in batch {batch} of epoch {epoch}")
                raise
            weighted = [self._weighted(*part)]
            del part  # as above
            yield weighted
            batch += 1

    def _of_rows(
        self, source: Arrays | Dataset, epoch: int, batch: int
    ) -> Iterator[tuple[Any, int]]:
        """The batches of a source with a length, and how many rows of each are no padding."""
        size = self.size
        order = None if self.shuffle is None else _order(self.shuffle, epoch, source.rows)
        for start in range(batch * size, len(self) * size, size):
            count = min(size, source.rows - start)
            rows: Rows = slice(start, start + count) if order is None else order[start:][:count]
            if self.last == "pad" and count < size:
                numbers = np.arange(start, start + count) if order is None else order[start:]
                rows = np.pad(numbers, (0, size - count), mode="edge")
            yield source.read(rows, self._memory), count

    def _weighted(self, arrays: Any, count: int) -> Any:
        """A batch with the weight of each of its rows, if the last batch is padded."""
        if self.last != "pad":
            return arrays
        weight = self._memory.take("weight of a row", (self.size,), np.dtype(np.float32))
        weight[:count], weight[count:] = 1, 0
        if isinstance(arrays, dict):
            return {**arrays, "weight": weight}
        return (*arrays, weight) if isinstance(arrays, tuple) else (arrays, weight)


def _order(seed: int, epoch: int, rows: int) -> Array:
    """The order of an epoch's samples, which depends on the seed and the epoch alone."""
    return np.random.default_rng([seed, epoch]).permutation(rows)


def _whole(name: str, value: Any, least: int, what: str = "a whole number") -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise error(f"Batches: {name} expected {what} from {least} up, got {value!r}")
    return int(value)
