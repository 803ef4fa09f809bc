"""What is asked of a driver that records while PyTorch captures a CUDA graph, as JSON.

test_torch_capture.py runs this in a process of its own, with the recording driver in place of
libcuda. PyTorch needs no CUDA: its tensors only say that they are on a GPU, its allocator gives
memory of the host, and a capture begins on its current stream.
"""

from __future__ import annotations

import gc
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

import graphc
from graphc import optim
from graphc.base.errors import RunError
from graphc.ir.state import aligned_empty
from graphc.runtime.cuda import find_device
from graphc.runtime.cuda.driver import PycudaDriver
from tests.cuda.recording import DRIVER, MODELS, compiled, loss_fn, taken
from tests.cuda.recording_torch import OnGpu, from_dlpack, function, fused

CURRENT = 55
"""The handle of PyTorch's current stream."""
ALLOCATED: list[Any] = []
"""What PyTorch's allocator has given and was not given back."""
STATE = SimpleNamespace(captures=False, device=0)


class Memory:
    """A tensor of bytes."""

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes
        self.array = np.zeros(nbytes + 512, np.uint8)
        ALLOCATED.append(nbytes)

    def data_ptr(self) -> int:
        return int(-(-self.array.ctypes.data // 512) * 512)

    def __del__(self) -> None:
        ALLOCATED.remove(self.nbytes)


def main() -> None:
    PycudaDriver.products = PycudaDriver.convolutions = None  # type: ignore[assignment]
    PycudaDriver.compile = compiled  # type: ignore[method-assign]
    DRIVER.fake_machine(2, 1 << 30)
    torch.utils.dlpack.from_dlpack = from_dlpack
    torch.cuda.is_initialized = lambda: True
    torch.cuda.is_current_stream_capturing = lambda: STATE.captures
    torch.cuda.current_device = lambda: STATE.device
    torch.cuda.current_stream = lambda device=None: SimpleNamespace(cuda_stream=CURRENT)
    found = {
        "rules": rules(),
        "backend": backend(),
        "model": model(),
        "lying": lying(),
        "chain": chain(),
        "forgotten": forgotten(),
        "refused": refused(),
        "after": after(),
        "depth": DRIVER.fake_depth(),
    }
    print(json.dumps(found))


@contextmanager
def capture() -> Iterator[dict[str, Any]]:
    """What PyTorch does around the calls that it captures; then the record of these."""
    DRIVER.fake_begin_capture(CURRENT)
    plain, torch.empty = torch.empty, lambda nbytes, dtype, device: Memory(nbytes)
    STATE.captures = True
    taken()
    seen: dict[str, Any] = {}
    try:
        yield seen
    finally:
        STATE.captures, torch.empty = False, plain
        seen["record"] = taken()
        seen["status"] = DRIVER.fake_end_capture(CURRENT)


def rules() -> dict[str, int]:
    """What the driver that records answers to what breaks a capture, and to one in order."""
    device, found = find_device("cuda"), {}
    record, wait = DRIVER.cuEventRecord, DRIVER.cuStreamWaitEvent
    with device.entered():
        for name, act in {
            "waiting within": lambda: DRIVER.cuStreamSynchronize(90),
            "not joined": lambda: (record(1, 90), wait(91, 1, 0), DRIVER.fake_node(91)),
            "from outside": lambda: (record(2, 92), wait(90, 2, 0))[1],
            "two captures": lambda: merged(record, wait),
            "event of a capture": lambda: record(3, 90),
            "in order": lambda: (record(4, 90), wait(91, 4, 0), DRIVER.fake_node(91),
                                 record(5, 91), wait(90, 5, 0)),
        }.items():  # fmt: skip
            DRIVER.fake_begin_capture(90)
            answer = act()
            status = DRIVER.fake_end_capture(90)
            found[name] = status if name in ("not joined", "in order") else answer
            if name == "waiting within":
                found["after that"] = status
        found["event of a capture"] = wait(93, 3, 0)
    return found


def merged(record: Any, wait: Any) -> int:
    """What a stream of one capture is told that waits for another."""
    DRIVER.fake_begin_capture(94)
    record(6, 94)
    answer = wait(90, 6, 0)
    DRIVER.fake_end_capture(94)
    return int(answer)


def backend() -> dict[str, Any]:
    """A graph of torch.compile, called once and then captured."""
    program = fused(function, "cuda:0")
    tensors = [on_gpu((4, 3), np.float32), on_gpu((3, 5), np.float32)]
    program(*tensors)
    with capture() as seen:
        y, s = program(*tensors)
    seen["shapes"] = [list(t.shape) for t in (y, s)]
    seen["addresses"] = [t.array.ctypes.data for t in tensors]
    return seen


def model() -> dict[str, Any]:
    """The forward pass and the gradients of a model on two streams, called once and then
    captured."""
    net, shape, *_ = MODELS["lenet"]

    def passes(net: Any, x: Any, y: Any) -> Any:
        return graphc.value_and_grad(loss_fn)(net, x, y)

    specs = graphc.spec(shape), graphc.spec(shape[:1], "int32")
    program = graphc.compile(
        passes, net(), *specs, device="cuda", streams=2, out="device", disable=("join_launches",)
    )
    tensors = [on_gpu(shape, np.float32), on_gpu(shape[:1], np.int32)]
    taken()
    program(*tensors)
    first = taken()
    before = list(ALLOCATED)
    with capture() as seen:
        results = program(*tensors)
        seen["allocated"] = list(ALLOCATED)
    held = list(ALLOCATED)
    del results
    device = find_device("cuda")
    seen |= {
        "first": first,
        "before": before,
        "held": held,
        "given back": list(ALLOCATED),
        "forks": [int(stream.handle) for stream in device.forks],
        "streams": [int(stream.handle) for stream in device.streams],
        "arena": [device.arena.address, device.arena.address + device.arena.nbytes],
        "peak": program.plan.peak_bytes,
    }
    with capture() as again:
        program.submit(*tensors).result()
    taken()
    program(*tensors)
    seen["turn"] = taken()
    return {**seen, "again": again}


def lying() -> dict[str, Any]:
    """Tensors that lie at no multiple of 64 bytes, and the addresses of a launch."""
    program = identity()
    whole = np.zeros(200, np.float32)
    start = -whole.ctypes.data % 64 // 4
    records = {}
    for name, offset in (("aligned", 0), ("shifted", 1)):
        part = whole[start + offset : start + offset + 35].reshape(5, 7)
        program(OnGpu(part))
        with capture() as seen:
            result = program(OnGpu(part))
        records[name] = {**seen, "from": part.ctypes.data, "to": result.address}
    return records


def chain() -> dict[str, Any]:
    """A call with the result of another in one capture, and readers of results."""
    program = identity()
    x = on_gpu((5, 7), np.float32)
    program(x)
    with capture() as seen:
        first = program(x)
        second = program(first)
        taken()
        second.__dlpack__(stream=CURRENT)
        seen["same stream"] = taken()
        second.__dlpack__(stream=77)
        seen["other stream"] = taken()
        seen["host"] = error_of(second.numpy)
        seen["stream"] = second.__cuda_array_interface__["stream"]
    taken()
    array = second.numpy()
    seen["later"] = taken()
    return {**seen, "shape": list(array.shape)}


def forgotten() -> dict[str, Any]:
    """A captured program that is let go, with another's calls within a capture and after it."""
    program, other = identity(), identity()
    x = on_gpu((5, 7), np.float32)
    lost = graphc.compile(graphc.exp, graphc.spec((5, 7)), device="cuda")
    program(x), other(x), lost(np.zeros((5, 7), np.float32))
    with capture():
        program(x)
    del program, lost
    gc.collect()
    with capture() as seen:
        other(x)
    taken()
    other(x)
    return {**seen, "later": taken()}


def refused() -> dict[str, Any]:
    """What is said of calls that cannot be captured, and of a capture that goes on behind it."""
    x, host = on_gpu((5, 7), np.float32), np.zeros((5, 7), np.float32)
    program, stays = identity(), graphc.nn.Linear(7, 3)
    plain = graphc.compile(lambda x: x * 1.0, graphc.spec((5, 7)), device="cuda")
    step = graphc.compile(
        lambda m, x: graphc.mean(m(x) ** 2),
        graphc.nn.Linear(7, 3),
        graphc.spec((5, 7)),
        update=optim.SGD(lr=0.1),
        device="cuda",
        out="device",
    )
    layer = graphc.compile(stays, graphc.spec((5, 7)), device="cuda", out="device")
    new = identity()
    for each in (program, plain, step, layer):
        each(x)
    result = program(x)
    stays.weight.assign(np.ones(stays.weight.shape, np.float32))
    found = {}
    calls: dict[str, Callable[[], Any]] = {
        "to the host": lambda: plain(x),
        "state": lambda: step(x),
        "argument": lambda: program(host),
        "first call": lambda: new(x),
        "stale": lambda: layer(x),
        "device": lambda: elsewhere(program, x),
        "compile": lambda: identity(),
        "messages": lambda: sending(program, x),
        "profile": lambda: program.profile(host),
        "reading": lambda: result.numpy(),
    }
    with capture() as seen:
        for name, call in calls.items():
            found[name] = error_of(call)
        program(x)
    return {**found, **seen}


def sending(program: Any, x: Any) -> None:
    """A call of a program that says that it sends messages."""
    player = program._executable
    player.sends = True
    try:
        program(x)
    finally:
        player.sends = False


def elsewhere(program: Any, x: Any) -> None:
    """A call while PyTorch's current device is another one."""
    STATE.device = 1
    try:
        program(x)
    finally:
        STATE.device = 0


def after() -> dict[str, Any]:
    """A call after all captures, whose results are taken by PyTorch."""
    program = identity()
    x = on_gpu((5, 7), np.float32)
    program(x)
    taken()
    program(x)
    return {"record": taken(), "streams": [int(find_device("cuda").streams[0].handle)]}


def identity() -> Any:
    return graphc.compile(
        lambda x: x * 1.0, graphc.spec((5, 7)), device="cuda", streams=1, out="device"
    )


def on_gpu(shape: tuple[int, ...], dtype: Any) -> OnGpu:
    """A tensor of zeros that lies as those of PyTorch's allocator do."""
    array = aligned_empty(shape, dtype)
    array[...] = 0
    return OnGpu(array)


def error_of(function: Any) -> str:
    try:
        function()
    except RunError as error:
        return str(error)
    return "no error"


if __name__ == "__main__":
    main()
