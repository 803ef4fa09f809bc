"""Memory of a device for results that stay there."""

from __future__ import annotations

import weakref
from collections import defaultdict, deque
from contextlib import suppress
from typing import Any

GRAIN = 512
"""Bytes that sizes of blocks are multiples of."""


class Block:
    """Memory of a device for the results of one call."""

    def __init__(self, memory: Any, nbytes: int, address: int) -> None:
        self.memory, self.nbytes, self.address = memory, nbytes, address
        self.readers: set[int | None] = set()
        """The handles of other libraries' streams that may read it; None for an unknown one."""


class Blocks:
    """Blocks of one device, used again once no array lies in them.

    A block is written on stream 0, which first waits for the streams of those who read it before.
    """

    def __init__(self, driver: Any, streams: list[Any]) -> None:
        self._driver, self._streams = driver, streams
        self._free: defaultdict[int, list[Block]] = defaultdict(list)
        self._returned: deque[Block] = deque()
        """Blocks without arrays, as a garbage collector finds them at any moment."""

    def take(self, nbytes: int) -> Block:
        """Return a block of at least `nbytes`. The device is entered.

        Raises the driver's MemoryError.
        """
        driver, stream = self._driver, self._streams[0]
        size = max(1, -(-nbytes // GRAIN)) * GRAIN
        self._collect()
        if not self._free[size]:
            memory = self._allocated(size)
            return Block(memory, size, int(memory))
        block = self._free[size].pop()
        try:
            for handle in block.readers - {None}:
                driver.wait_for_stream(stream, handle)
            unknown = None in block.readers
        except driver.Error:  # a stream that has been destroyed
            unknown = True
        if unknown:
            driver.Context.synchronize()
        block.readers.clear()
        return block

    def holder(self, block: Block) -> Holder:
        """Return what keeps a block from being used again while it lives."""
        holder = Holder(block)
        weakref.finalize(holder, self._returned.append, block).atexit = False
        return holder

    def trim(self) -> None:
        """Free blocks that no array lies in, once the device is idle. The device is entered."""
        self._collect()
        if any(self._free.values()):
            self._driver.Context.synchronize()
            for blocks in self._free.values():
                for block in blocks:
                    block.memory.free()
            self._free.clear()

    def _collect(self) -> None:
        while self._returned:
            block = self._returned.popleft()
            self._free[block.nbytes].append(block)

    def _allocated(self, size: int) -> Any:
        with suppress(self._driver.MemoryError):
            return self._driver.mem_alloc(size)
        self.trim()
        return self._driver.mem_alloc(size)


class Holder:
    """Keeps a block while arrays, or those who read them, hold it."""

    def __init__(self, block: Block) -> None:
        self.block = block
