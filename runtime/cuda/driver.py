"""PyCUDA, and what it lacks: compiled kernels, CUDA graphs, waiting for other libraries' streams.

`PycudaDriver` has the names of `pycuda.driver` and those that the simulated driver adds to them,
so that the runtime is the same for both. CUDA graphs come from cuda-bindings, which shares the
context with PyCUDA and takes the handles of its streams.
"""

from __future__ import annotations

import ctypes
import functools
import gc
import importlib
import struct
import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import partialmethod
from typing import Any

from graphc.base.errors import RunError
from graphc.kernels.program.kernel import TensorMap
from graphc.runtime.cuda.compile import Usage, compile_cuda
from graphc.runtime.cuda.cublas import CublasLt, find_cublas
from graphc.runtime.cuda.cudnn import Cudnn, find_cudnn
from graphc.runtime.cuda.tensor_maps import encode_tiled

LEGACY_STREAM = 1
"""The handle of the default stream, which waits for all streams that are not non-blocking."""


class PycudaDriver:
    """`pycuda.driver` for one device of compute capability `arch`, such as "sm_90a"."""

    def __init__(self, pycuda: Any, bindings: Any, arch: str) -> None:
        self._pycuda, self._bindings = pycuda, bindings
        self.arch = arch
        self.captures = bindings is not None
        """Whether streams can be captured."""
        self.cooperates = bindings is not None
        """Whether it has cooperative launches."""
        self.begins_early = bindings is not None and int(arch.strip("sm_a")) >= 90
        """Whether launches may begin before those that they wait for have ended."""
        self.usage: dict[str, Usage] = {}
        """What each compiled kernel takes, by its symbol."""

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._pycuda, name)
        setattr(self, name, found)  # so that it is found at once from now on
        return found

    @functools.cached_property
    def products(self) -> CublasLt | None:
        """The library for matrix products, of which each device has a handle of its own."""
        return find_cublas()

    @functools.cached_property
    def convolutions(self) -> Cudnn | None:
        """The library for convolutions, likewise."""
        return find_cudnn()

    def compile(self, text: str, name: str, where: str = "") -> bytes:
        """The cubin of CUDA text. Raises CompileError."""
        cubin = compile_cuda(text, name, self.arch, where)
        self.usage.update(cubin.usage)
        return cubin.image

    def cooperative(self, buffer: bytes, name: str) -> CooperativeFunction:
        """The kernel of that name of a module, to be launched with all of its blocks at once."""
        return CooperativeFunction(self, buffer, name)

    def early(self, buffer: bytes, name: str) -> EarlyFunction:
        """The kernel of that name of a module, whose launches begin early."""
        return EarlyFunction(self, buffer, name)

    def tensor_map(self, address: int, matrix: TensorMap) -> bytes:
        """How TMA copies panels of a matrix at this address. RunError if the driver makes none."""
        return encode_tiled(self._library, address, matrix)

    @functools.cached_property
    def _library(self) -> Any:
        return ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")

    def begin_capture(self, stream: Any) -> None:
        """What `stream`, and streams that fork from it, are given becomes a graph's nodes.

        Until the end of the capture no garbage is collected: freeing memory would break it.
        """
        self._collects = gc.isenabled()
        gc.disable()
        self._urgent: list[Any] = []
        mode = self._bindings.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
        self._call("cuStreamBeginCapture", stream.handle, mode)

    def end_capture(self, stream: Any, before: CapturedGraph | None = None) -> CapturedGraph:
        """The graph of what the streams were given since `begin_capture`: `before`, brought up to
        date where only addresses have changed since it was captured, which takes less time than to
        make another."""
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
        """Let the launch that the captured stream was given last go before those of other streams
        where both could begin. PyCUDA's streams have no priority; nodes of graphs do."""
        *_, nodes, _, _ = self._call("cuStreamGetCaptureInfo", stream.handle, values=True)
        self._urgent += nodes

    def _prioritise(self) -> None:
        """A priority changes no result: a driver that does not take it is not asked again."""
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
        """Let what is put on `stream` from now on begin after what is on the stream of another
        library whose handle this is."""
        if self._bindings is None:
            self._pycuda.Context.synchronize()
            return
        flags = self._bindings.CUevent_flags.CU_EVENT_DISABLE_TIMING
        event = self._call("cuEventCreate", flags)
        self._call("cuEventRecord", event, handle)
        self._call("cuStreamWaitEvent", stream.handle, event, 0)
        self._call("cuEventDestroy", event)

    def _call(self, name: str, *arguments: Any, values: bool = False) -> Any:
        """What a function of cuda-bindings gives, or all that it gives. Raises PyCUDA's error."""
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
    """A kernel that is launched by cuda-bindings, in ways that PyCUDA has not."""

    def __init__(self, driver: PycudaDriver, buffer: bytes, name: str) -> None:
        self._driver = driver
        self._module = driver.load_module(buffer)
        self._function = driver.find_function(self._module, name.encode())

    def set_attribute(self, attribute: Any, value: int) -> None:
        """As that of PyCUDA's functions."""
        number = self._driver._bindings.CUfunction_attribute(int(attribute))
        self._driver.set_function_attribute(self._function, number, value)

    def __del__(self) -> None:
        self._driver.unload_module(self._module)


class CooperativeFunction(BoundFunction):
    """A kernel whose blocks may wait for each other: all of a launch run at once, or the driver
    refuses it."""

    def blocks(self, threads: int, shared: int, each: int) -> int:
        """The most blocks of a launch, of so many threads and bytes of dynamic shared memory, with
        at most `each` on a multiprocessor."""
        context, attribute = self._driver.Context, self._driver.device_attribute
        count = context.get_device().get_attribute(attribute.MULTIPROCESSOR_COUNT)
        resident = self._driver.count_resident(self._function, threads, shared)
        return int(count * min(each, resident))

    def _launch_kernel(
        self, grid: Sequence[int], block: Sequence[int], arguments: bytes, shared: int, stream: Any
    ) -> None:
        """As that of PyCUDA's functions, of arguments that are all addresses."""
        _, places = _parameters(arguments)
        self._driver.launch_cooperative(
            self._function, *grid, *block, shared, stream.handle, ctypes.addressof(places)
        )


class EarlyFunction(BoundFunction):
    """A kernel that may begin while the launch before it on its stream has not ended; it waits by
    itself before it touches memory (`begin_launch` in intrinsics.cuh). In a captured graph the edge
    between the two becomes what CUDA calls programmatic."""

    def _launch_kernel(
        self, grid: Sequence[int], block: Sequence[int], arguments: bytes, shared: int, stream: Any
    ) -> None:
        """As that of PyCUDA's functions, of arguments that are all addresses."""
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
    """Packed addresses in memory, which the caller keeps, and the places of each in it."""
    size = struct.calcsize("P")
    values = ctypes.create_string_buffer(arguments, len(arguments))
    first, count = ctypes.addressof(values), len(arguments) // size
    return values, (ctypes.c_void_p * count)(*(first + size * i for i in range(count)))


class CapturedGraph:
    """A graph that is ready to be launched."""

    def __init__(self, driver: PycudaDriver, executable: Any) -> None:
        self._driver, self._executable = driver, executable
        self._launch = driver.launch_graph

    def launch(self, stream: Any) -> None:
        """Put one run of the whole graph on the stream."""
        self._launch(self._executable, stream.handle)

    def try_update(self, graph: Any) -> bool:
        """Whether it does from now on what `graph` says: nodes and edges have to be the same. What
        is on its way already goes on as it was."""
        with suppress(self._driver.Error):
            self._driver.update_graph(self._executable, graph)
            return True
        return False

    def __del__(self) -> None:
        self._driver.destroy_graph(self._executable)


def open_driver(ordinal: int) -> PycudaDriver:
    """PyCUDA for the GPU of this number. RunError, with the remedy, if there is none."""
    try:
        pycuda = importlib.import_module("pycuda.driver")
    except ImportError as error:
        raise RunError(_why_no_pycuda(error)) from error
    try:
        pycuda.init()
        count = pycuda.Device.count()
    except pycuda.Error as error:
        raise RunError(f"the CUDA driver does not start: {error}") from error
    if ordinal >= count:
        have = "no GPU" if count == 0 else "1 GPU" if count == 1 else f"{count} GPUs"
        raise RunError(f"this machine has {have}")
    major, minor = pycuda.Device(ordinal).compute_capability()
    if major < 8:
        raise RunError(
            f"{pycuda.Device(ordinal).name()} has compute capability {major}.{minor}; "
            "the kernels need 8.0 or newer"
        )
    return PycudaDriver(pycuda, _bindings(), arch_of(major, minor))


def describe_gpus() -> list[str]:
    """A line for each GPU: its number, name, architecture and memory; or why there is none."""
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
    """The architecture that kernels are compiled for: with all of the chip's own instructions."""
    return f"sm_{major}{minor}{'a' if major >= 9 else ''}"


def _bindings() -> Any:
    try:
        return importlib.import_module("cuda.bindings.driver")
    except ImportError:
        return None


def _why_no_pycuda(error: ImportError) -> str:
    if isinstance(error, ModuleNotFoundError):
        return f"PyCUDA is not installed ({error}): pip install 'graphc[cuda]'"
    return f"PyCUDA cannot be loaded ({error}): is NVIDIA's driver installed?"
