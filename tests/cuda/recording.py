"""What PyCUDA asks of a driver that records: a few scenarios, and the record of each as JSON.

test_pycuda.py runs this in a process of its own, with the recording driver in place of libcuda.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
from typing import Any

import numpy as np

import graphc
from graphc import nn, optim
from graphc.base.errors import GraphError, RunError
from graphc.program import Program
from graphc.runtime.cuda import CudaExecutable, find_device
from graphc.runtime.cuda.driver import PycudaDriver
from graphc.runtime.plan.plan import Loop, all_steps
from tests.small_models import MODELS, loss_fn

DRIVER = ctypes.CDLL("libcuda.so.1")
DRIVER.fake_record.restype = ctypes.c_char_p
DRIVER.fake_machine.argtypes = (ctypes.c_int, ctypes.c_size_t)

Record = list[str]
JOIN = ("join_launches",)
STEPS = 6
"""Of the recurrent layers."""


def main() -> None:
    PycudaDriver.products = PycudaDriver.convolutions = None  # type: ignore[assignment]
    # Kernels are recorded, not run: their text need not be compiled.
    PycudaDriver.compile = compiled  # type: ignore[method-assign]
    DRIVER.fake_machine(2, 1 << 34)
    model = MODELS["lenet"][0]()
    found: dict[str, Any] = {}
    train = trainer(model, "cuda")
    found["compile"] = taken()
    found["steps"] = [called(train) for _ in range(3)]
    found["plan"] = [step_line(train, step) for step in train.plan.steps]
    found["submitted"] = submitted(train)
    found["reading state"] = reading_state(train)
    found["setting the rate"] = setting_rate(train)
    found["foreign"] = foreign()
    found["growing"] = growing(train, model)
    found["second device"] = second_device(model)
    found["third device"] = error_of(lambda: trainer(model, "cuda:2")(*batch()))
    found["too large"] = too_large()
    found["thread"] = in_thread(train)
    found["fork"] = in_fork(train)
    found["forgotten"] = forgotten()
    found["failing"] = failing(model)
    found["nothing"] = nothing()
    found["recurrent"] = {kind: recurrent(kind) for kind in ("LSTM", "GRU")}
    found["one stream"] = called(trainer(model, "cuda", streams=1, disable=JOIN))
    found["joined"] = joined()
    found["refused"] = refused(model)
    found["early"] = early(model)
    found["maps"] = maps()
    found["depth"] = DRIVER.fake_depth()
    print(json.dumps(found))


def compiled(self: Any, text: str, name: str, where: str = "") -> bytes:
    return b"image"


def trainer(model: Any, device: str, streams: int = 2, disable: tuple[str, ...] = ()) -> Program:
    shape = MODELS["lenet"][1]
    specs = graphc.spec(shape), graphc.spec(shape[:1], "int32")
    rule = optim.SGD(lr=0.1, momentum=0.9)
    return graphc.compile(
        loss_fn, model, *specs, update=rule, device=device, streams=streams, disable=disable
    )


def batch() -> tuple[Any, Any]:
    shape = MODELS["lenet"][1]
    return np.zeros(shape, np.float32), np.zeros(shape[0], np.int32)


def early(model: Any) -> dict[str, Any]:
    """The first step where launches may begin early, and the plan's steps."""
    os.environ["GRAPHC_EARLY_LAUNCH"] = "1"
    train = trainer(model, "cuda", disable=JOIN)
    record = called(train)
    del os.environ["GRAPHC_EARLY_LAUNCH"]
    return {"step": record, "plan": [step_line(train, step) for step in train.plan.steps]}


def maps() -> dict[str, Any]:
    """The records of calls of a product whose operands TMA copies: two, and one behind a larger
    program; and what is said where the driver makes no tensor map."""
    settings = {"GRAPHC_WGMMA": "1", "GRAPHC_TMA": "1", "GRAPHC_EARLY_LAUNCH": "1"}
    os.environ.update(settings)
    specs = [graphc.spec(s, "bfloat16") for s in ((2048, 512), (512, 2048))]
    arrays = [np.zeros(s.shape, np.float32) for s in specs]

    def program() -> Program:
        return graphc.compile(graphc.matmul, *specs, device="cuda", streams=1)

    product, records = program(), []
    for larger in (False, False, True):
        if larger:
            size = find_device("cuda").arena.nbytes // 4 + 1
            grown = graphc.compile(graphc.exp, graphc.spec((size,)), device="cuda")
            grown(np.zeros(size, np.float32))
        taken()
        product(*arrays)
        records.append(taken())
    DRIVER.fake_map_answer(801)
    refused = error_of(lambda: program()(*arrays))
    DRIVER.fake_map_answer(0)
    for name in settings:
        del os.environ[name]
    return {"calls": records, "refused": refused}


def taken() -> Record:
    """The record so far, which begins anew."""
    lines = DRIVER.fake_record().decode().splitlines()
    DRIVER.fake_clear()
    return lines


def called(program: Program) -> Record:
    taken()
    program(*batch())
    return taken()


def step_line(program: Program, step: Any) -> list[Any]:
    """A step as [kind, stream, symbols of the kernel's launches or the event]."""
    kind = type(step).__name__.lower()
    if kind == "launch":
        return [kind, step.stream, [la.symbol for la in program.plan.kernels[step.kernel].launches]]
    return [kind, step.stream, getattr(step, "event", None)]


def joined() -> dict[str, Any]:
    """The records of two steps of a recurrent layer whose plan is one joined launch."""
    layer = nn.LSTM(4, 8)
    spec = graphc.spec((STEPS, 32, 4))
    options: dict[str, Any] = {"update": optim.SGD(lr=0.1), "device": "cuda", "streams": 1}
    train = graphc.compile(mean_square, layer, spec, **options)
    (run,) = train.plan.joined
    taken()
    steps = []
    for _ in range(2):
        train(np.zeros(spec.shape, np.float32))
        steps.append(taken())
    return {"steps": steps, "whole": run.stop, "of": len(all_steps(train.plan.steps))}


def recurrent(kind: str) -> dict[str, Any]:
    """The record of the first step of a recurrent layer, and the symbols of each loop's kernels."""
    layer = getattr(nn, kind)(4, 8)
    spec = graphc.spec((STEPS, 32, 4))
    train = graphc.compile(
        mean_square, layer, spec, update=optim.SGD(lr=0.1), device="cuda", disable=JOIN
    )
    taken()
    train(np.zeros(spec.shape, np.float32))
    loops = [step for step in train.plan.steps if isinstance(step, Loop)]
    symbols = [[step_line(train, step)[2] for step in loop.steps] for loop in loops]
    return {"first step": taken(), "loops": symbols}


def mean_square(layer: Any, x: graphc.Tensor) -> graphc.Tensor:
    y, _ = layer(x)
    return graphc.mean(y * y)


def refused(model: Any) -> Record:
    """The first step on a driver whose graphs take no priorities."""
    DRIVER.fake_refuse(1)
    record = called(trainer(model, "cuda"))
    DRIVER.fake_refuse(0)
    return record


def executable_of(program: Program) -> CudaExecutable:
    executable = program._executable
    assert isinstance(executable, CudaExecutable)
    return executable


def submitted(train: Program) -> list[Record]:
    """Two calls, then the first one's result."""
    executable = executable_of(train)
    taken()
    first = executable.submit(batch())
    second = executable.submit(batch())
    calls = taken()
    first.read()
    reads = taken()
    second.read()
    first.read()
    return [calls, reads, taken()]


def reading_state(train: Program) -> list[Record]:
    taken()
    train.state_dict()
    first = taken()
    train.state_dict()
    return [first, taken()]


def setting_rate(train: Program) -> Record:
    train.lr = 0.05
    return called(train)


class OnDevice:
    """An array as CuPy would show it: memory of the device and the stream that writes it."""

    def __init__(self, array: Any, **more: Any) -> None:
        self.memory = array
        self.__cuda_array_interface__ = {
            "shape": array.shape,
            "typestr": array.dtype.str,
            "data": (array.ctypes.data, False),
            "version": 3,
            "strides": None,
            **more,
        }


def foreign() -> dict[str, Any]:
    """The identity of an array on the device: its output, the record, and errors."""
    program = graphc.compile(lambda x: x * 1.0, graphc.spec((5, 7)), device="cuda")
    array = np.arange(35, dtype=np.float32).reshape(5, 7)
    program(OnDevice(array))
    taken()
    program(OnDevice(array, stream=None))
    settled = taken()
    program(OnDevice(array, stream=77))
    busy = taken()
    program(OnDevice(array, version=2))
    silent = taken()
    strided = OnDevice(array, strides=(4, 20))
    return {
        "settled": settled,
        "busy": busy,
        "silent": silent,
        "strided": error_of(lambda: program(strided)),
        "shape": error_of(lambda: program(OnDevice(array[:4]))),
    }


def growing(train: Program, model: Any) -> dict[str, Record]:
    """A program that needs a larger arena, then the smaller one again."""
    taken()
    large = graphc.compile(model, graphc.spec((200, 1, 28, 28)), device="cuda")
    compiled = taken()
    return {
        "compile": compiled,
        "again": called(train),
        "after": called(train),
        "refused": growing_refused(train, model),
        "large": [large.name],
    }


def growing_refused(train: Program, model: Any) -> Record:
    """The next step once the arena has moved again, on a driver that updates no graph."""
    graphc.compile(model, graphc.spec((400, 1, 28, 28)), device="cuda")
    DRIVER.fake_refuse(1)
    record = called(train)
    DRIVER.fake_refuse(0)
    return record


def second_device(model: Any) -> Record:
    taken()
    train = trainer(model, "cuda:1")
    train(*batch())
    return taken()


def too_large() -> dict[str, Any]:
    free, _ = device_memory()
    taken()
    shape = (free // 4 // 4096, 4096)  # the input alone takes all that is free
    message = error_of(
        lambda: graphc.compile(lambda x: graphc.exp(x) @ x[:1].T, graphc.spec(shape), device="cuda")
    )
    return {"message": message, "record": taken()}


def device_memory() -> tuple[int, int]:
    device = find_device("cuda")
    with device.entered():
        free, total = device.driver.mem_get_info()
    return free, total


def in_thread(train: Program) -> Record:
    from threading import Thread

    taken()
    thread = Thread(target=train, args=batch())
    thread.start()
    thread.join()
    return taken()


def in_fork(train: Program) -> str:
    """What a forked child is told."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(write, error_of(lambda: train(*batch())).encode())
        os._exit(0)
    os.waitpid(child, 0)
    return os.read(read, 10000).decode()


def forgotten() -> list[Record]:
    """A program that is let go: what happens then, and at the next call of another."""
    infer = graphc.compile(lambda x: graphc.exp(x), graphc.spec((4, 4)), device="cuda")
    infer(np.zeros((4, 4), np.float32))
    other = graphc.compile(lambda x: graphc.sin(x), graphc.spec((4, 4)), device="cuda")
    other(np.zeros((4, 4), np.float32))
    taken()
    del infer
    gc.collect()
    at_once = taken()
    other(np.zeros((4, 4), np.float32))
    return [at_once, taken()]


def failing(model: Any) -> list[Any]:
    """Errors of a first launch, of a launch in a capture, of a graph; then a call that works."""
    train = trainer(model, "cuda")
    errors = []
    for _ in range(2):
        DRIVER.fake_fail(700)
        errors.append(error_of(lambda: train(*batch())))
        train(*batch())
    DRIVER.fake_fail(0)
    return [*errors, called(train)]


def nothing() -> list[Any]:
    """A program without a launch, one without outputs' elements, one without inputs."""
    x = np.zeros((3, 0), np.float32)
    programs = [
        (graphc.compile(lambda x: x, graphc.spec((2,)), device="cuda"), [np.ones(2, np.float32)]),
        (graphc.compile(lambda x: graphc.exp(x), graphc.spec((3, 0)), device="cuda"), [x]),
        (graphc.compile(lambda: graphc.ones((4,)), device="cuda"), []),
    ]
    shapes = []
    for program, arrays in programs:
        program(*arrays)
        shapes.append(list(program(*arrays).shape))
    return [shapes, programs[0][0](np.ones(2, np.float32)).tolist()]


def error_of(function: Any) -> str:
    try:
        function()
    except (GraphError, RunError) as error:
        return f"{type(error).__name__}: {error}"
    return "no error"


if __name__ == "__main__":
    main()
