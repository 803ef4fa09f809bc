"""PyCUDA plus compilation, CUDA graphs and waiting for other libraries' streams.

`PycudaDriver` has the names of `pycuda.driver` and those that the simulated driver adds, so that
the runtime is the same for both. CUDA graphs come from cuda-bindings, which shares the context with
PyCUDA and accepts the handles of its streams.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import struct
import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import partialmethod
from typing import Any

from graphc.base.cached import cached_property
from graphc.base.errors import RunError
from graphc.kernels.program.kernel import TensorMap
from graphc.runtime.cuda.compile import Usage, compile_cuda
from graphc.runtime.cuda.cublas import CublasLt, find_cublas
from graphc.runtime.cuda.cudnn import Cudnn, find_cudnn
from graphc.runtime.cuda.tensor_maps import encode_tiled

LEGACY_STREAM = 1
"""The handle of the default stream, which waits for all streams that are not non-blocking."""


class PycudaDriver:
    """`pycuda.driver` for one device of architecture `arch`, such as "sm_90a"."""

    def __init__(self, pycuda: Any, bindings: Any, arch: str) -> None:
        self._pycuda, self._bindings = pycuda, bindings
        self.arch = arch
        self.captures = bindings is not None
        """Whether streams can be captured."""
        self.cooperates = bindings is not None
        """Whether it has cooperative launches."""
        self.begins_early = bindings is not None and int(arch.strip("sm_a")) >= 90
        """Whether launches may begin before the launch that they depend on has ended."""
        self.usage: dict[str, Usage] = {}
        """The resource usage of each compiled kernel, by its symbol."""

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._pycuda, name)
        setattr(self, name, found)  # so that it is found at once from now on
        return found

    @cached_property
    def products(self) -> CublasLt | None:
        """The library for matrix products, with a handle per device; None if it is not
        installed."""
        return find_cublas()

    @cached_property
    def convolutions(self) -> Cudnn | None:
        """The library for convolutions, likewise."""
        return find_cudnn()

    def compile(self, text: str, name: str, where: str = "") -> bytes:
        """The cubin of CUDA text. Raises CompileError."""
        cubin = compile_cuda(text, name, self.arch, where)
        self.usage.update(cubin.usage)
        return cubin.image

    def cooperative(self, buffer: bytes, name: str) -> CooperativeFunction:
        """The kernel `name` of a module, for cooperative launches."""
        return CooperativeFunction(self, buffer, name)

    def early(self, buffer: bytes, name: str) -> EarlyFunction:
        """The kernel `name` of a module, for programmatic dependent launches."""
        return EarlyFunction(self, buffer, name)

    def tensor_map(self, address: int, matrix: TensorMap) -> bytes:
        """The encoded tensor map of a matrix at this address. Raises RunError if the driver
        fails."""
        return encode_tiled(self._library, address, matrix)

    @cached_property
    def _library(self) -> Any:
        return ctypes.CDLL(driver_library())

    def begin_capture(self, stream: Any) -> None:
        """Capture what `stream`, and streams that fork from it, are given as a graph.

        Until the end of the capture no garbage is collected: freeing memory would break it.
        """
        self._collects = gc.isenabled()
        gc.disable()
        self._urgent: list[Any] = []
        mode = self._bindings.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
        self._call("cuStreamBeginCapture", stream.handle, mode)

    def end_capture(self, stream: Any, before: CapturedGraph | None = None) -> CapturedGraph:
        """The graph captured since `begin_capture`: `before`, updated, if only addresses have
        changed since it was captured, which is faster than a new one."""
        try:
            graph = self._call("cuStreamEndCapture", stream.handle)
        finally:
            if self._collects:
                gc.enable()
        try:
            self._prioritise()
            if before is not None and before.try_update(graph):
                return before
            return CapturedGraph(self, self._call("cuGraphInstantiate", graph, 0))
        finally:
            self._call("cuGraphDestroy", graph)

    def raise_priority(self, stream: Any) -> None:
        """Give the captured stream's last launch a higher priority than those of other streams.
        PyCUDA's streams have no priority; nodes of graphs do."""
        *_, nodes, _, _ = self._call("cuStreamGetCaptureInfo", stream.handle, values=True)
        self._urgent += nodes

    def _prioritise(self) -> None:
        """Set the priority. It changes no result, so a driver that rejects it is not asked
        again."""
        if not self._urgent:
            return
        with suppress(self._pycuda.Error):
            _, greatest = self._call("cuCtxGetStreamPriorityRange", values=True)
            attribute = self._bindings.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PRIORITY
            value = self._bindings.CUkernelNodeAttrValue()
            value.priority = greatest
            for node in self._urgent:
                self._call("cuGraphKernelNodeSetAttribute", node, attribute, value)

    def wait_for_stream(self, stream: Any, handle: int) -> None:
        """Make later work on `stream` wait for another library's stream with this handle."""
        if self._bindings is None:
            self._pycuda.Context.synchronize()
            return
        flags = self._bindings.CUevent_flags.CU_EVENT_DISABLE_TIMING
        event = self._call("cuEventCreate", flags)
        self._call("cuEventRecord", event, handle)
        self._call("cuStreamWaitEvent", stream.handle, event, 0)
        self._call("cuEventDestroy", event)

    def _call(self, name: str, *arguments: Any, values: bool = False) -> Any:
        """The result of a function of cuda-bindings, or all results with `values`. Raises PyCUDA's
        error."""
        error, *given = getattr(self._bindings, name)(*arguments)
        if error:
            raise self._pycuda.LogicError(f"{name} failed: {error.name}")
        return given if values else given[0] if given else None

    load_module = partialmethod(_call, "cuModuleLoadData")
    unload_module = partialmethod(_call, "cuModuleUnload")
    find_function = partialmethod(_call, "cuModuleGetFunction")
    set_function_attribute = partialmethod(_call, "cuFuncSetAttribute")
    count_resident = partialmethod(_call, "cuOccupancyMaxActiveBlocksPerMultiprocessor")
    launch_early = partialmethod(_call, "cuLaunchKernelEx")
    launch_cooperative = partialmethod(_call, "cuLaunchCooperativeKernel")
    update_graph = partialmethod(_call, "cuGraphExecUpdate")
    launch_graph = partialmethod(_call, "cuGraphLaunch")
    destroy_graph = partialmethod(_call, "cuGraphExecDestroy")


class BoundFunction:
    """A kernel that is launched by cuda-bindings, in ways that PyCUDA lacks."""

    def __init__(self, driver: PycudaDriver, buffer: bytes, name: str) -> None:
        self._driver = driver
        self._module = driver.load_module(buffer)
        self._function = driver.find_function(self._module, name.encode())

    def set_attribute(self, attribute: Any, value: int) -> None:
        """As for PyCUDA's functions."""
        number = self._driver._bindings.CUfunction_attribute(int(attribute))
        self._driver.set_function_attribute(self._function, number, value)

    def __del__(self) -> None:
        self._driver.unload_module(self._module)


class CooperativeFunction(BoundFunction):
    """A kernel whose blocks may wait for each other: all blocks of a launch run at once, or the
    driver rejects it."""

    def blocks(self, threads: int, shared: int, each: int) -> int:
        """The most blocks of a launch with these threads and bytes of dynamic shared memory, at
        most `each` per multiprocessor."""
        context, attribute = self._driver.Context, self._driver.device_attribute
        count = context.get_device().get_attribute(attribute.MULTIPROCESSOR_COUNT)
        resident = self._driver.count_resident(self._function, threads, shared)
        return int(count * min(each, resident))

    def _launch_kernel(
        self, grid: Sequence[int], block: Sequence[int], arguments: bytes, shared: int, stream: Any
    ) -> None:
        """As for PyCUDA's functions; all arguments are addresses."""
        _, places = _parameters(arguments)
        self._driver.launch_cooperative(
            self._function, *grid, *block, shared, stream.handle, ctypes.addressof(places)
        )


class EarlyFunction(BoundFunction):
    """A kernel that may start before the previous launch on its stream has ended. It waits itself
    before it accesses memory (`begin_launch` in intrinsics.cuh). In a captured graph the edge
    between the two is programmatic."""

    def _launch_kernel(
        self, grid: Sequence[int], block: Sequence[int], arguments: bytes, shared: int, stream: Any
    ) -> None:
        """As for PyCUDA's functions; all arguments are addresses."""
        bindings = self._driver._bindings
        attribute, config = bindings.CUlaunchAttribute(), bindings.CUlaunchConfig()
        kinds = bindings.CUlaunchAttributeID
        attribute.id = kinds.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
        attribute.value.programmaticStreamSerializationAllowed = 1
        config.gridDimX, config.gridDimY, config.gridDimZ = grid
        config.blockDimX, config.blockDimY, config.blockDimZ = block
        config.sharedMemBytes, config.hStream = shared, stream.handle
        config.attrs, config.numAttrs = [attribute], 1
        _, places = _parameters(arguments)
        self._driver.launch_early(config, self._function, ctypes.addressof(places), 0)


def _parameters(arguments: bytes) -> tuple[Any, Any]:
    """Packed addresses in memory, which the caller keeps alive, and pointers to each."""
    size = struct.calcsize("P")
    values = ctypes.create_string_buffer(arguments, len(arguments))
    first, count = ctypes.addressof(values), len(arguments) // size
    return values, (ctypes.c_void_p * count)(*(first + size * i for i in range(count)))


class CapturedGraph:
    """An executable graph."""

    def __init__(self, driver: PycudaDriver, executable: Any) -> None:
        self._driver, self._executable = driver, executable
        self._launch = driver.launch_graph

    def launch(self, stream: Any) -> None:
        """Launch the whole graph on the stream."""
        self._launch(self._executable, stream.handle)

    def try_update(self, graph: Any) -> bool:
        """Update it to do what `graph` does; returns False if their nodes or edges differ. Launches
        already under way are not affected."""
        with suppress(self._driver.Error):
            self._driver.update_graph(self._executable, graph)
            return True
        return False

    def __del__(self) -> None:
        self._driver.destroy_graph(self._executable)


def driver_library() -> str:
    """The name of the driver's library."""
    return "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"


def open_driver(ordinal: int) -> PycudaDriver:
    """The driver of the GPU of this number, by PyCUDA or else by cuda-bindings. Raises RunError,
    with the remedy, if there is none."""
    pycuda = _pycuda()
    try:
        pycuda.init()
        count = pycuda.Device.count()
    except pycuda.Error as error:
        raise RunError(f"the CUDA driver does not start: {error}") from error
    if ordinal >= count:
        have = "no GPU" if count == 0 else "1 GPU" if count == 1 else f"{count} GPUs"
        raise RunError(f"this machine has {have}")
    major, minor = pycuda.Device(ordinal).compute_capability()
    if (major, minor) < (7, 5):
        raise RunError(
            f"{pycuda.Device(ordinal).name()} has compute capability {major}.{minor}; "
            "the kernels need 7.5 or newer"
        )
    return PycudaDriver(pycuda, _bindings(), arch_of(major, minor))


def describe_gpus() -> list[str]:
    """A line per GPU with its number, name, architecture and memory; or why there is none."""
    lines: list[str] = []
    while True:
        try:
            driver = open_driver(len(lines))
        except RunError as error:
            return lines or [str(error)]
        device = driver.Device(len(lines))
        memory = f"{device.total_memory() / 1e9:.1f} GB"
        lines.append(f"cuda:{len(lines)} {device.name()}, {driver.arch}, {memory}")


def arch_of(major: int, minor: int) -> str:
    """The architecture that kernels are compiled for, with all of the chip's own instructions."""
    return f"sm_{major}{minor}{'a' if major >= 9 else ''}"


def _pycuda() -> Any:
    """PyCUDA, or what cuda-bindings have of it. Raises RunError if both are missing."""
    try:
        return importlib.import_module("pycuda.driver")
    except ImportError as error:
        with suppress(ImportError):
            return importlib.import_module("graphc.runtime.cuda.bindings_driver")
        raise RunError(_why_no_pycuda(error)) from error


def _bindings() -> Any:
    try:
        return importlib.import_module("cuda.bindings.driver")
    except ImportError:
        return None


def _why_no_pycuda(error: ImportError) -> str:
    if isinstance(error, ModuleNotFoundError):
        return (
            f"PyCUDA is not installed ({error}): pip install 'graphc[cuda]', or from wheels alone "
            "'graphc[cuda-bindings]'"
        )
    return f"PyCUDA cannot be loaded ({error}): is NVIDIA's driver installed?"
