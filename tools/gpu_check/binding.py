"""Compare two ways in which a captured graph reads an array of another library where it lies:
`python -m tools.gpu_check.binding cuda`.

graphc copies such an argument on the device into its arena, whose address the graph knows. The
other way is to give the array's address to each node that reads it
(`cuGraphExecKernelNodeSetParams`). Each is measured for arrays of several sizes that `READERS`
nodes read: microseconds of the host per step, and of the device. The last line is JSON: "sizes" has
the size in bytes -> way -> [host, device]; "parameters cheaper from" is the smallest size from
which setting parameters takes less time on both, or null.
"""

from __future__ import annotations

import ctypes
import json
import sys
import time
from collections.abc import Callable
from statistics import median
from typing import Any

from graphc.runtime.cuda import find_device
from tools.gpu_check.smoke import SOURCE

SIZES = tuple(1 << n for n in (12, 16, 20, 22, 24, 26))
"""Bytes of an argument."""
READERS = 2
"""Nodes that read it, such as a layer and the gradient of its weights."""
STEPS, ROUNDS = 50, 9
KINDS = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_float, ctypes.c_int)
"""The arguments of the kernel `add` of smoke.cu: y += a * x, n elements."""
GRID, BLOCK = (264, 1, 1), (256, 1, 1)


class Reading:
    """A graph of `READERS` nodes that read an array of `nbytes`, and its arrays."""

    def __init__(self, driver: Any, stream: Any, nbytes: int) -> None:
        self.driver, self.stream, self.nbytes = driver, stream, nbytes
        self.call = driver._call
        module = driver.load_module(driver.compile(SOURCE.read_text(), "smoke", SOURCE.name))
        self.function = driver.find_function(module, b"add")
        self.theirs, self.ours = driver.mem_alloc(nbytes), driver.mem_alloc(nbytes)
        self.written = [driver.mem_alloc(nbytes) for _ in range(READERS)]
        mode = driver._bindings.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
        self.call("cuStreamBeginCapture", stream.handle, mode)
        nodes = [self._launched(y) for y in self.written]
        self.graph = self.call("cuStreamEndCapture", stream.handle)
        self.executable = self.call("cuGraphInstantiate", self.graph, 0)
        self.nodes = [
            (node, self._parameters(), y) for node, y in zip(nodes, self.written, strict=True)
        ]

    def _launched(self, y: Any) -> Any:
        """The node of a captured launch."""
        arguments = (self._values(y, self.ours), KINDS), 0
        self.call("cuLaunchKernel", self.function, *GRID, *BLOCK, 0, self.stream.handle, *arguments)
        *_, nodes, _, _ = self.call("cuStreamGetCaptureInfo", self.stream.handle, values=True)
        return nodes[-1]

    def _parameters(self) -> Any:
        """What a node is given, but for the arguments."""
        found = self.driver._bindings.CUDA_KERNEL_NODE_PARAMS()
        found.func = self.function
        found.gridDimX, found.gridDimY, found.gridDimZ = GRID
        found.blockDimX, found.blockDimY, found.blockDimZ = BLOCK
        return found

    def _values(self, y: Any, x: Any) -> tuple[Any, ...]:
        return int(y), int(x), 1.0, self.nbytes // 4

    def by_copy(self) -> None:
        """One step: the array is copied to where the graph reads it."""
        self.driver.memcpy_dtod_async(self.ours, self.theirs, self.nbytes, self.stream)
        self.call("cuGraphLaunch", self.executable, self.stream.handle)

    def by_parameters(self) -> None:
        """One step: the graph's nodes get the array's address."""
        for node, parameters, y in self.nodes:
            parameters.kernelParams = self._values(y, self.theirs), KINDS
            self.call("cuGraphExecKernelNodeSetParams", self.executable, node, parameters)
        self.call("cuGraphLaunch", self.executable, self.stream.handle)

    def microseconds(self, step: Callable[[], None]) -> list[float]:
        """Of the host and of the device per step, medians of rounds of `STEPS`."""
        rounds = []
        step()
        for _ in range(ROUNDS):
            begin, end = self.driver.Event(), self.driver.Event()
            self.stream.synchronize()
            begin.record(self.stream)
            start = time.perf_counter()
            for _ in range(STEPS):
                step()
            host = 1e6 * (time.perf_counter() - start) / STEPS
            end.record(self.stream)
            end.synchronize()
            rounds.append((host, 1e3 * end.time_since(begin) / STEPS))
        return [round(median(column), 2) for column in zip(*rounds, strict=True)]

    def close(self) -> None:
        """Free the graph."""
        self.call("cuGraphExecDestroy", self.executable)
        self.call("cuGraphDestroy", self.graph)


def compared(device: str) -> dict[str, Any]:
    """What this module prints."""
    place = find_device(device)
    if not getattr(place.driver, "_bindings", None):
        return {"missing": "cuda-bindings set the parameters of a graph's nodes"}
    found: dict[str, Any] = {}
    with place.entered():
        for size in SIZES:
            reading = Reading(place.driver, place.streams[0], size)
            copy, parameters = map(reading.microseconds, (reading.by_copy, reading.by_parameters))
            found[str(size)] = {"copy": copy, "parameters": parameters}
            reading.close()
    return {"sizes": found, "parameters cheaper from": cheaper_from(found)}


def cheaper_from(found: dict[str, dict[str, list[float]]]) -> int | None:
    """The smallest size from which on setting parameters takes less time of host and device."""
    least = None
    for size, ways in reversed(found.items()):
        if any(p >= c for p, c in zip(ways["parameters"], ways["copy"], strict=True)):
            break
        least = int(size)
    return least


if __name__ == "__main__":
    print(json.dumps(compared(sys.argv[1])))
