"""Library calls on the simulated GPU, computed by NumPy in a stream's order."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from graphc.base.dtypes import Array, convert, widened
from graphc.ir import Type
from graphc.kernels.program.calls import Call, CallMatrix, CallTensor, Convolution, Product
from graphc.ops.convolution import Conv2d, Conv2dDgrad, Conv2dWgrad
from graphc.ops.pointwise.elementary import Relu, ReluGrad
from graphc.ops.pointwise.tf32 import nearest_tf32
from graphc.runtime.sim import native
from graphc.runtime.sim.machine import SimulatedDevice
from graphc.runtime.sim.objects import Stream
from graphc.runtime.sim.queues import Bytes, StreamOperation

STEPS: dict[str, Callable[..., Array]] = {
    "add": np.add,
    "relu": lambda x: Relu().reference(x)[0],
    "relu_grad": lambda d, y: ReluGrad().reference(d, y)[0],
    "cast": lambda x: x,
}
"""The epilogue steps by op name."""


class Library:
    """The library of a simulated device, with the interface of `CublasLt` and `Cudnn`."""

    title = "NumPy"

    def __init__(self, driver: SimulatedDevice) -> None:
        self._driver = driver

    def prepare(self, call: Call) -> PreparedCall:
        """The call, ready to be issued on streams."""
        return PreparedCall(self._driver, call)


class PreparedCall:
    """A call. Its one algorithm is NumPy's, and leaves its workspace alone."""

    workspaces = (4096,)

    def __init__(self, driver: SimulatedDevice, call: Call) -> None:
        self._driver, self._call = driver, call

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
        """A function that issues the call on the stream; the other arguments are those of
        `Function._launch_kernel`."""
        ranges = [tuple(Bytes(*place) for place in places) for places in (reads, writes, scratch)]
        call = self._call
        name = "a product" if isinstance(call, Product) else "a convolution"

        def run(_: Any) -> None:
            if isinstance(call, Product):
                _multiply(call, addresses)
            else:
                _convolve(call, addresses)
            for place in ranges[1]:
                whole = place.stop - place.start
                step, live = place.period or max(1, whole), place.live or whole
                for start in range(place.start, place.stop, step):
                    native.wrote(start, live)

        def issue() -> None:
            operation = StreamOperation(name, run, ranges[0], (*ranges[1], *ranges[2]))
            self._driver.put(stream, operation)

        return issue


def _multiply(p: Product, addresses: Sequence[int]) -> None:
    a, b = (
        _matrices(p.a, addresses, p.batches, p.m, p.k),
        _matrices(p.b, addresses, p.batches, p.k, p.n),
    )
    sums = widened(a) @ widened(b)
    if p.bias is not None:
        sums = sums + _matrices(CallMatrix(p.bias, p.n, 1, 0, "f32"), addresses, 1, 1, p.n)
    d = _matrices(p.d, addresses, p.batches, p.m, p.n)
    d[...] = convert(np.where(sums <= 0, np.float32(0), sums) if p.relu else sums, d.dtype)


def _convolve(p: Convolution, addresses: Sequence[int]) -> None:
    values: dict[int, Array] = {}
    operands = [widened(_tensor(x, addresses)) for x in p.tensors[:2]]
    if p.tf32:
        operands = [nearest_tf32(x) for x in operands]
    settings = p.stride, p.padding, p.dilation, p.groups
    height, width = p.tensors[2].shape[2:]
    ops = {
        "conv2d": Conv2d(*settings),
        "conv2d_dgrad": Conv2dDgrad(*settings, size=(height, width)),
        "conv2d_wgrad": Conv2dWgrad(*settings, kernel_size=(height, width)),
    }
    _keep(p.tensors[2], ops[p.op].reference(*operands)[0], 2, values, addresses)
    for step in p.epilogue:
        read = [
            values[i] if i in values else widened(_tensor(p.tensors[i], addresses))
            for i in step.inputs
        ]
        _keep(p.tensors[step.output], STEPS[step.op](*read), step.output, values, addresses)


def _keep(
    x: CallTensor, made: Array, number: int, values: dict[int, Array], addresses: Sequence[int]
) -> None:
    """Round a step's result to its dtype, and store it if it has an argument."""
    narrow = convert(made, Type((), x.dtype).numpy_dtype)
    values[number] = widened(narrow)
    if x.argument is not None:
        _tensor(x, addresses)[...] = narrow


def _matrices(
    x: CallMatrix, addresses: Sequence[int], batches: int, rows: int, columns: int
) -> Array:
    """The elements in the device's memory, [batches, rows, columns]."""
    strides = x.batch, x.row, x.column
    return _view(addresses[x.argument], (batches, rows, columns), strides, x.dtype)


def _tensor(x: CallTensor, addresses: Sequence[int]) -> Array:
    """The elements in the device's memory."""
    assert x.argument is not None, "what has no place is a step's result"
    return _view(addresses[x.argument], x.shape, x.strides, x.dtype)


def _view(address: int, shape: Sequence[int], strides: Sequence[int], dtype: str) -> Array:
    kind = Type((), dtype).numpy_dtype
    last = sum(s * (n - 1) for s, n in zip(strides, shape, strict=True))
    memory = (ctypes.c_uint8 * ((last + 1) * kind.itemsize)).from_address(address)
    elements = np.ctypeslib.as_array(memory).view(kind)
    view: Array = as_strided(elements, shape, [s * kind.itemsize for s in strides])
    return view
