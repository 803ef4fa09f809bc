"""Matrix products as the simulated GPU's library computes them: by NumPy, in a stream's order."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from graphc.dtypes import Array, convert, widened
from graphc.ir import Type
from graphc.kernels.program.kernel import Matrix, Product
from graphc.runtime.sim import native
from graphc.runtime.sim.machine import Machine
from graphc.runtime.sim.objects import Stream
from graphc.runtime.sim.queues import Bytes, Operation


class Products:
    """The library of a simulated device, with the names of `CublasLt`."""

    title = "NumPy"

    def __init__(self, driver: Machine) -> None:
        self._driver = driver

    def prepare(self, product: Product) -> Prepared:
        """The product, ready to be put on streams."""
        return Prepared(self._driver, product)


class Prepared:
    """A product; its one algorithm is NumPy's."""

    count = 1

    def __init__(self, driver: Machine, product: Product) -> None:
        self._driver, self._product = driver, product

    def issue(
        self,
        rank: int,
        addresses: Sequence[int],
        stream: Stream,
        reads: Iterable[Sequence[Any]] = (),
        writes: Iterable[Sequence[Any]] = (),
        scratch: Iterable[Sequence[Any]] = (),
        completes: bool = True,
    ) -> Callable[[], None]:
        """What puts the product on the stream; as `Function._launch_kernel` for the rest."""
        ranges = [tuple(Bytes(*place) for place in places) for places in (reads, writes, scratch)]

        def run(_: Any) -> None:
            self._compute(addresses)
            for place in ranges[1]:
                native.wrote(place.start, place.stop - place.start)

        def issue() -> None:
            operation = Operation("a product", run, ranges[0], (*ranges[1], *ranges[2]))
            self._driver.put(stream, operation)

        return issue

    def _compute(self, addresses: Sequence[int]) -> None:
        p = self._product
        a, b = (
            _view(p.a, addresses, p.batches, p.m, p.k),
            _view(p.b, addresses, p.batches, p.k, p.n),
        )
        sums = widened(a) @ widened(b)
        if p.bias is not None:
            row = Matrix(p.bias, p.n, 1, 0, "f32")
            sums = sums + _view(row, addresses, 1, 1, p.n)
        d = _view(p.d, addresses, p.batches, p.m, p.n)
        d[...] = convert(np.where(sums <= 0, np.float32(0), sums) if p.relu else sums, d.dtype)


def _view(x: Matrix, addresses: Sequence[int], batches: int, rows: int, columns: int) -> Array:
    """The elements in the device's memory, [batches, rows, columns]."""
    dtype, steps = Type((), x.dtype).numpy_dtype, (x.batch, x.row, x.column)
    last = sum(s * (n - 1) for s, n in zip(steps, (batches, rows, columns), strict=True))
    memory = (ctypes.c_uint8 * ((last + 1) * dtype.itemsize)).from_address(addresses[x.argument])
    elements = np.ctypeslib.as_array(memory).view(dtype)
    strides = tuple(s * dtype.itemsize for s in steps)
    view: Array = as_strided(elements, (batches, rows, columns), strides)
    return view
