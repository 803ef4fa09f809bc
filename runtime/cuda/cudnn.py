"""Convolutions by cuDNN 9, if it is installed: `nvidia-cudnn-cu13`, PyTorch's or a toolkit's.

It is called by ctypes through its graph API; the numbers here are those of cudnn_graph.h. The older
functions, one per kind of convolution, are deprecated in cuDNN 9. With the graph API weights may
have the images' layout, operands of two bytes have sums and results of four, an epilogue is part of
the call, and each engine reports whether it adds in a fixed order and how it multiplies. A plan is
built from descriptors, which consist of numbers and other descriptors.
"""

from __future__ import annotations

import ctypes
import importlib
from collections.abc import Callable, Iterator, Sequence
from ctypes import byref, c_bool, c_char, c_char_p, c_float, c_int, c_int64, c_size_t, c_void_p
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any

from graphc.base.cached import cached_property
from graphc.base.errors import CompileError
from graphc.ir.state import ALIGNMENT
from graphc.kernels.program.calls import CallTensor, Convolution, PointwiseStep

NAME = "libcudnn.so.9"
OLDEST = 90000
"""The version that the numbers here belong to."""
TYPES = {"f32": 0, "f16": 2, "bf16": 9}
"""cudnnDataType_t."""
(HANDLE, TYPE, FLAG, INTEGER, FLOAT, POINTER, MODE, HEURISTIC, NOTE, POINTWISE_MODE, DESCRIPTOR,
 TEXT) = (0, 1, 2, 3, 4, 6, 7, 8, 11, 14, 15, 24)  # fmt: skip
"""cudnnBackendAttributeType_t."""
ELEMENTS: dict[int, Any] = {
    HANDLE: c_void_p, FLAG: c_bool, INTEGER: c_int64, FLOAT: c_float, POINTER: c_void_p,
    DESCRIPTOR: c_void_p, TEXT: c_char,
}  # fmt: skip
"""The ctypes type of an attribute's elements, unless they are enumerators."""
(OF_POINTWISE, OF_CONVOLUTION, ENGINE, CONFIGURATION, HEURISTICS, PLAN, STEP, GRAPH, PACK, TENSOR,
 DEVICE) = (0, 1, 2, 3, 4, 5, 13, 15, 16, 17, 38)  # fmt: skip
"""cudnnBackendDescriptorType_t."""
CONVOLUTIONS = {
    "conv2d": (10, 700, (704, 703, 705)),
    "conv2d_wgrad": (11, 712, (716, 717, 715)),
    "conv2d_dgrad": (12, 706, (711, 709, 710)),
}
"""By graphc's op name: the descriptor, its attribute alpha, which beta and the convolution's
follow, and the attributes of both operands and the result."""
STEPS = {
    "add": (0, (751, 752), 753),
    "relu": (100, (751,), 753),
    "relu_grad": (200, (757, 751), 756),
    "cast": (21, (751,), 753),
}
"""By graphc's op name: cudnnPointwiseMode_t, and the attributes of operands and result."""
BY_MODEL, FALLBACK = 3, 2
"""cudnnBackendHeurMode_t: engines ranked by a model of their times; any engine that works."""
TENSOR_CORES = 0
UNWANTED = {
    1: "narrower operands",
    2: "narrower sums",
    3: "FFT",
    4: "no fixed order",
    5: "Winograd",
}
"""cudnnBackendNumericalNote_t, and why an engine with it is rejected."""
MOST = 32
"""Configurations requested from a heuristic."""
MOST_WORKSPACE = 64 << 20
"""The most bytes of workspace of a plan, which are work memory of the program."""
TRIED = 12
"""Configurations for which plans are built; some are compiled, which takes half a second each."""
PROPOSED = 3
"""Plans, each a candidate for measurement."""

Attribute = tuple[int, int, Sequence[Any]]
"""An attribute's number (cudnnBackendAttributeName_t), element type and elements."""


class Cudnn:
    """The library for one device, whose context is current in every call here.

    With `properties` (the library's JSON) its plans are for a device that is not present, and
    cannot run.
    """

    def __init__(self, library: Any, properties: str = "") -> None:
        self._library, self._properties = library, properties
        self._prepared: dict[Convolution, PreparedConvolution] = {}
        library.cudnnGetVersion.restype = c_size_t
        library.cudnnGetErrorString.restype = c_char_p
        version = int(library.cudnnGetVersion())
        if version < OLDEST:
            raise CompileError(f"cuDNN {version}: the oldest version known is {OLDEST}")
        self.title = f"cuDNN {version // 10000}.{version // 100 % 100}.{version % 100}"

    def prepare(self, convolution: Convolution) -> PreparedConvolution:
        """The convolution, ready to be issued on streams; equal convolutions share it."""
        return self._prepared.setdefault(convolution, PreparedConvolution(self, convolution))

    @cached_property
    def handle(self) -> c_void_p:
        """The library's handle, created on first use and kept for the life of the process."""
        found = c_void_p()
        self.call("cudnnCreate", byref(found))
        return found

    @cached_property
    def device(self) -> Descriptor | None:
        """The descriptor of a device that is not present; None for the present one."""
        if not self._properties:
            return None
        return Descriptor(
            self, DEVICE, (2702, TEXT, [bytes([c]) for c in self._properties.encode()])
        )

    def on_device(self, of_handle: int, of_device: int) -> Attribute:
        """The attribute that names the device of something."""
        if self.device is not None:
            return of_device, DESCRIPTOR, [self.device]
        return of_handle, HANDLE, [self.handle]

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function. Raises CompileError with the status if it fails."""
        status = getattr(self._library, name)(*arguments)
        if status:
            said, more = self._library.cudnnGetErrorString(status).decode(), (c_char * 500)()
            self._library.cudnnGetLastErrorString(more, c_size_t(len(more)))
            raise CompileError(f"{self.title}: {name} failed: {said}, {more.value.decode()}")


class Descriptor:
    """A finalized descriptor of the library, which keeps those that it consists of alive; without
    attributes, an empty one for the library to fill."""

    def __init__(self, library: Cudnn, kind: int, *attributes: Attribute) -> None:
        self._library, self.pointer = library, c_void_p()
        self._parts: Any = attributes
        library.call("cudnnBackendCreateDescriptor", kind, byref(self.pointer))
        for number, element, values in attributes:
            array = _array(element, values)
            library.call(
                "cudnnBackendSetAttribute",
                self.pointer,
                number,
                element,
                c_int64(len(array)),
                array,
            )
        if attributes:
            library.call("cudnnBackendFinalize", self.pointer)

    def get(self, number: int, element: int, most: int = 1) -> list[Any]:
        """The values of an attribute, at most `most`."""
        return self._got(number, element, (ELEMENTS.get(element, c_int) * most)())

    def filled(self, number: int, kind: int, most: int = 1) -> list[Descriptor]:
        """The descriptors that are the values of an attribute, at most `most`."""
        made = [Descriptor(self._library, kind) for _ in range(most)]
        for each in made:
            each._parts = self
        return made[: len(self._got(number, DESCRIPTOR, _array(DESCRIPTOR, made)))]

    def _got(self, number: int, element: int, array: Any) -> list[Any]:
        count = c_int64()
        most = c_int64(len(array))
        self._library.call(
            "cudnnBackendGetAttribute", self.pointer, number, element, most, byref(count), array
        )
        return list(array[: count.value])

    def __del__(self) -> None:
        if self.pointer:
            self._library.call("cudnnBackendDestroyDescriptor", self.pointer)


class PreparedConvolution:
    """A convolution with its plans, which it owns."""

    def __init__(self, library: Cudnn, convolution: Convolution) -> None:
        self._library, self._convolution = library, convolution
        self._plans: list[tuple[Descriptor, int]] = []
        self._further = islice(self._proposed(), PROPOSED)

    @property
    def workspaces(self) -> list[int]:
        """Bytes of workspace of each plan; at most `PROPOSED` plans."""
        self._plans.extend(self._further)
        return [workspace for _, workspace in self._plans]

    def issue(
        self, rank: int, addresses: Sequence[int], stream: Any, **declared: Any
    ) -> Callable[[], None]:
        """A function that issues the convolution on the stream with plan `rank`.

        `addresses` are those of the kernel's arguments, followed by its workspace. Raises
        CompileError if there is no such plan.
        """
        library, tensors = self._library, self._convolution.tensors
        self._plans.extend(islice(self._further, max(0, rank + 1 - len(self._plans))))
        if rank >= len(self._plans):
            raise CompileError(f"{library.title} has no plan {rank + 1} for this convolution")
        plan, workspace = self._plans[rank]
        places = {i: addresses[x.argument] for i, x in enumerate(tensors) if x.argument is not None}
        pack = Descriptor(
            library,
            PACK,
            (1000, INTEGER, list(places)),
            (1001, POINTER, list(places.values())),
            (1003, POINTER, [addresses[-1] if workspace else None]),
        )
        handle = c_void_p(int(stream.handle))

        def issue() -> None:
            library.call("cudnnSetStream", library.handle, handle)
            library.call("cudnnBackendExecute", library.handle, plan.pointer, pack.pointer)

        return issue

    def _proposed(self) -> Iterator[tuple[Descriptor, int]]:
        """Plans with their workspace."""
        on_device = self._library.on_device(400, 407)
        for configuration in islice(self.configurations(), TRIED):
            chosen: Attribute = (401, DESCRIPTOR, [configuration])
            try:
                plan = Descriptor(self._library, PLAN, chosen, on_device)
            except CompileError:
                continue
            (workspace,) = plan.get(402, INTEGER)
            if workspace <= MOST_WORKSPACE:
                yield plan, workspace

    def configurations(self) -> Iterator[Descriptor]:
        """Configurations of engines that add in a fixed order and multiply as requested, the
        fastest first by the library's model."""
        library, graph = self._library, self._graph()
        unwanted = {*UNWANTED} if self._tensor_cores() else {*UNWANTED, TENSOR_CORES}
        for mode in (BY_MODEL, FALLBACK):
            asked: list[Attribute] = [(201, DESCRIPTOR, [graph]), (200, HEURISTIC, [mode])]
            if library.device is not None:
                asked.append((204, DESCRIPTOR, [library.device]))
            for configuration in Descriptor(library, HEURISTICS, *asked).filled(
                202, CONFIGURATION, MOST
            ):
                (engine,) = configuration.filled(300, ENGINE)
                if not unwanted & {*engine.get(1303, NOTE, MOST)}:
                    yield configuration

    def _tensor_cores(self) -> bool:
        """Whether tensor cores may multiply: for float32 only as tf32."""
        return self._convolution.tf32 or self._convolution.tensors[0].dtype != "f32"

    def _graph(self) -> Descriptor:
        """The operation graph of the convolution and its epilogue."""
        library, convolution = self._library, self._convolution
        tensors = [self._tensor(i, x) for i, x in enumerate(convolution.tensors)]
        kind, alpha, operands = CONVOLUTIONS[convolution.op]
        pads = [(number, INTEGER, convolution.padding) for number in (104, 105)]
        described = Descriptor(
            library, OF_CONVOLUTION, (100, TYPE, [TYPES["f32"]]), (101, MODE, [1]),
            (102, INTEGER, convolution.dilation), (103, INTEGER, convolution.stride), *pads,
            (106, INTEGER, [len(convolution.padding)]),
        )  # fmt: skip
        named = zip(operands, tensors, strict=False)
        steps = [
            Descriptor(
                library, kind, (alpha, FLOAT, [1.0]), (alpha + 1, FLOAT, [0.0]),
                (alpha + 2, DESCRIPTOR, [described]), *((n, DESCRIPTOR, [t]) for n, t in named),
            ),
            *(self._step(tensors, step) for step in convolution.epilogue),
        ]  # fmt: skip
        graph: list[Attribute] = [(801, DESCRIPTOR, steps)]
        if library.device is None:
            graph.append((800, HANDLE, [library.handle]))
        return Descriptor(library, GRAPH, *graph)

    def _step(self, tensors: Sequence[Descriptor], step: PointwiseStep) -> Descriptor:
        mode, operands, result = STEPS[step.op]
        described = Descriptor(
            self._library, OF_POINTWISE, (0, POINTWISE_MODE, [mode]), (1, TYPE, [TYPES["f32"]])
        )
        named = zip((*operands, result), (*step.inputs, step.output), strict=True)
        places = [(number, DESCRIPTOR, [tensors[i]]) for number, i in named]
        return Descriptor(self._library, STEP, (750, DESCRIPTOR, [described]), *places)

    def _tensor(self, number: int, x: CallTensor) -> Descriptor:
        return Descriptor(
            self._library, TENSOR, (901, TYPE, [TYPES[x.dtype]]), (902, INTEGER, x.shape),
            (903, INTEGER, x.strides), (906, INTEGER, [number]), (900, INTEGER, [ALIGNMENT]),
            (907, FLAG, [x.argument is None]),
        )  # fmt: skip


def _array(element: int, values: Sequence[Any]) -> Any:
    kind = ELEMENTS.get(element, c_int)
    plain = [x.pointer if isinstance(x, Descriptor) else x for x in values]
    return (kind * len(plain))(*plain)


def find_cudnn() -> Cudnn | None:
    """The library; None if it is not installed or too old. Libraries that it opens by name are
    loaded first, by cuda-pathfinder, which comes with cuda-bindings."""
    try:
        pathfinder = importlib.import_module("cuda.pathfinder")
        for name in ("cublasLt", "nvrtc"):
            pathfinder.load_nvidia_dynamic_lib(name)
        return Cudnn(ctypes.CDLL(_place()))
    except (ImportError, RuntimeError, OSError, CompileError):
        return None


def _place() -> str:
    """The library's path in its wheel, else the name by which the system finds it."""
    wheels = find_spec("nvidia")
    folders = (wheels.submodule_search_locations or ()) if wheels else ()
    found = (Path(folder) / "cudnn" / "lib" / NAME for folder in folders)
    return next((str(file) for file in found if file.exists()), NAME)
