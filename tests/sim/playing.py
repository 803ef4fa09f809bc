"""Kernels on the simulated GPU: single texts with arrays as arguments, and fused nodes."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from graphc.base.target import Target
from graphc.ir import Node, Type
from graphc.kernels.lower import lower
from graphc.kernels.program.kernel import Kernel
from graphc.ops.base import Array
from graphc.ops.fused import Fused
from graphc.runtime.cuda.tensor_maps import packed as arguments
from graphc.runtime.sim import Simulator
from graphc.runtime.sim.module import Function
from graphc.runtime.sim.native import BACKWARD, FORWARD, ORDERS
from graphc.runtime.sim.objects import DeviceAllocation, Stream
from tests.kernels.cuda_harness import arrays_of, assert_close
from tests.tools import need_command

TARGET = Target("sim", lanes=1, arch="sm_90a")
PER_FILE = 40


def simulator(**settings: Any) -> Simulator:
    """A simulated device whose context is current."""
    device = Simulator(**settings)
    device.init()
    device.Device(0).retain_primary_context().push()
    return device


def place(device: Simulator, array: Array) -> DeviceAllocation:
    """A copy of the array on the device; one byte of memory for an empty one."""
    allocation = device.mem_alloc(max(array.nbytes, 1))
    if array.nbytes:
        device.memcpy_htod(allocation, np.ascontiguousarray(array))
    return allocation


def fetch(device: Simulator, allocation: DeviceAllocation, like: Array) -> Array:
    array = np.empty(like.shape, like.dtype)
    if array.nbytes:
        device.memcpy_dtoh(array, allocation)
    return array


def launch_twice(
    device: Simulator, text: str, order: int, shape: tuple[int, int], *arguments: Any, **uses: Any
) -> None:
    """Launch the function `kernel` of a text twice, by so many blocks and threads in this order;
    `uses` are its reads, writes and scratch."""
    function = device.module_from_buffer(device.compile(text, "kernel")).get_function("kernel")
    device.scheduler.random = InOrder(order)
    grid, block = ((n, 1, 1) for n in shape)
    for _ in range(2):
        stream = device.Stream(1)
        function._launch_kernel(grid, block, packed(*arguments), 0, stream, **uses)
        device.Context.synchronize()


def assert_right_in_any_order(
    nodes: Sequence[Node],
    length: int | None = None,
    arrays: Callable[[Node], list[Array]] = arrays_of,
) -> None:
    """The kernels of nodes make what the reference does, but for the rounding of sums of so many
    terms, or of as many as an input has elements, and the same bits for each order of threads."""
    need_command("g++", "clang++")
    played = Played(simulator(check=True), nodes)
    for node in nodes:
        given = arrays(node)
        ahead, back = (played.run(node, given, order) for order in (FORWARD, BACKWARD))
        terms = length or max(a.size for a in given)
        for got, other, want in zip(ahead, back, node.op.reference(*given), strict=True):
            assert_close(got, want, terms)
            np.testing.assert_array_equal(got, other)


def laid(array: Array, type: Type) -> Array:
    """The array as it lies in memory; where nothing may be read there are large numbers."""
    axis = type.layout.axis
    if axis is None:
        return array
    assert type.layout.in_one_block(type.shape), f"{type} has blocks"
    memory = np.full(type.storage_shape, 99, type.numpy_dtype)
    elements(memory, type)[...] = array
    return memory


def elements(memory: Array, type: Type) -> Array:
    """A view of the elements in memory, in the type's shape."""
    axis = type.layout.axis
    if axis is None:
        return memory.reshape(type.shape)
    channels_last = np.squeeze(memory, axis)[..., : type.shape[axis]]
    return np.moveaxis(channels_last, -1, axis)


def whole(allocation: DeviceAllocation, nbytes: int, name: str) -> tuple[int, int, str]:
    return int(allocation), int(allocation) + nbytes, name


def packed(*arguments: Any) -> bytes:
    """Arguments as a launch takes them: addresses, ints, floats."""
    letters = {DeviceAllocation: "P", int: "i", float: "f"}
    values = [int(a) if isinstance(a, DeviceAllocation) else a for a in arguments]
    return struct.pack("".join(letters[type(a)] for a in arguments), *values)


class InOrder:
    """In place of a scheduler's random numbers: threads and blocks run in this order, of ORDERS."""

    def __init__(self, order: int) -> None:
        self._order = order

    def choice(self, items: Sequence[Any]) -> Any:
        return self._order if items is ORDERS else items[0]

    def getrandbits(self, count: int) -> int:
        return 1


class Played:
    """The kernels of fused nodes on a device, as `make` lowers them; `edit` may change their
    text."""

    def __init__(
        self,
        device: Simulator,
        nodes: Sequence[Node],
        edit: Callable[[str], str] = lambda text: text,
        make: Callable[[Node], Kernel] = lambda node: lower(node, TARGET),
    ) -> None:
        self.device = device
        self.kernels = {n.op.kernel: make(n) for n in nodes if isinstance(n.op, Fused)}
        assert len(self.kernels) == len(nodes), "names are unique"
        kernels = list(self.kernels.values())
        parts = [kernels[i : i + PER_FILE] for i in range(0, len(kernels), PER_FILE)]
        with ThreadPoolExecutor(2) as pool:
            objects = list(pool.map(lambda p: device.compile(edit(joined(p)), "kernels"), parts))
        self._functions: dict[str, Function] = {}
        for part, image in zip(parts, objects, strict=True):
            module = device.module_from_buffer(image)
            for kernel in part:
                for launch in kernel.launches:
                    self._functions[launch.symbol] = module.get_function(launch.symbol)
        self.stream: Stream = device.Stream(1)

    def run(self, node: Node, inputs: Sequence[Array], order: int | None = None) -> list[Array]:
        """The outputs of the node's kernel, whose launches declare what they read and write.
        Threads and blocks run in `order`, or in any."""
        if order is not None:
            self.device.scheduler.random = InOrder(order)
        assert isinstance(node.op, Fused)
        kernel = self.kernels[node.op.kernel]
        device = self.device
        made = [np.empty(v.type.storage_shape, v.type.numpy_dtype) for v in node.outputs]
        inputs = [laid(a, v.type) for a, v in zip(inputs, node.inputs, strict=True)]
        given = [place(device, a) for a in inputs]
        results = [device.mem_alloc(max(a.nbytes, 1)) for a in made]
        scratch = [device.mem_alloc(kernel.workspace)] if kernel.workspace else []
        pointers = [int(x) for x in (*given, *results, *scratch)]
        reads = [
            whole(a, x.nbytes, v.name) for a, x, v in zip(given, inputs, node.inputs, strict=True)
        ]
        gaps = kernel.gaps or ((),) * len(made)
        writes = [
            (*whole(a, x.nbytes, v.name), *gap)
            for a, x, v, gap in zip(results, made, node.outputs, gaps, strict=True)
        ]
        own = [whole(a, kernel.workspace, "workspace") for a in scratch]
        for launch in kernel.launches:
            function = self._functions[launch.symbol]
            if launch.shared_bytes:
                attribute = device.function_attribute.MAX_DYNAMIC_SHARED_SIZE_BYTES
                function.set_attribute(attribute, launch.shared_bytes)
            function._launch_kernel(
                launch.grid,
                launch.block,
                arguments(pointers, launch, device),
                launch.shared_bytes,
                self.stream,
                reads=reads,
                writes=writes,
                scratch=own,
                completes=launch is kernel.launches[-1],
            )
        self.stream.synchronize()
        return [
            elements(fetch(device, a, x), v.type)
            for a, x, v in zip(results, made, node.outputs, strict=True)
        ]


def joined(kernels: Sequence[Kernel]) -> str:
    return "\n".join(k.source for k in kernels)
