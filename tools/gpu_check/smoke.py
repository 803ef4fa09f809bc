"""A smoke test to run first on a GPU: `python -m tools.gpu_check.smoke cuda`.

It compiles one file and tries once, with graphc's driver alone, what plans consist of: copies, a
launch, shuffles and shared memory, two streams with an event, a captured graph that is launched
again and updated, launches that begin early; and it tests the operand layouts of tensor cores. The
last line is JSON: check -> "ok" or what was wrong.
"""

from __future__ import annotations

import json
import struct
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from graphc.runtime.cuda import find_device

SOURCE = Path(__file__).with_name("smoke.cu")
COUNT = 100_000
DISABLE_TIMING = 2


class Smoke:
    """The kernels of smoke.cu on one device, whose context is current, and the streams `one` and
    `two`."""

    def __init__(self, device: str) -> None:
        self.driver: Any = find_device(device).driver
        ordinal = int(device.partition(":")[2] or 0)
        self.context = self.driver.Device(ordinal).retain_primary_context()
        self.context.push()
        image = self.driver.compile(SOURCE.read_text(), "smoke", str(SOURCE.name))
        self.image, self.module = image, self.driver.module_from_buffer(image)
        self.one, self.two = self.driver.Stream(1), self.driver.Stream(1)

    def close(self) -> None:
        """Free everything that needs the context, then the context, as PyCUDA requires."""
        del self.module, self.one, self.two
        self.context.pop()

    def put(self, array: np.ndarray[Any, Any]) -> Any:
        """A copy on the device."""
        memory = self.driver.mem_alloc(array.nbytes)
        self.driver.memcpy_htod(memory, np.ascontiguousarray(array))
        return memory

    def get(self, memory: Any, like: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        array = np.empty_like(like)
        self.driver.memcpy_dtoh(array, memory)
        return array

    def launch(
        self, name: str, stream: Any, blocks: int, threads: int, kinds: str, *values: Any
    ) -> None:
        """Launch a kernel whose arguments are `values`, packed as `struct` packs `kinds`."""
        function = self.module.get_function(name)
        packed = struct.pack(
            kinds, *(int(v) if k == "P" else v for k, v in zip(kinds, values, strict=True))
        )
        function._launch_kernel((blocks, 1, 1), (threads, 1, 1), packed, 0, stream)

    def add(self, stream: Any, y: Any, x: Any, a: float) -> None:
        """y += a * x."""
        self.launch("add", stream, 32, 256, "PPfi", y, x, a, COUNT)


def copies(smoke: Smoke) -> None:
    x = np.arange(COUNT, dtype=np.float32)
    expect(smoke.get(smoke.put(x), x), x)
    locked = smoke.driver.pagelocked_empty((COUNT,), np.float32)
    locked[:] = x
    memory, back = (
        smoke.driver.mem_alloc(x.nbytes),
        smoke.driver.pagelocked_empty(COUNT, np.float32),
    )
    smoke.driver.memcpy_htod_async(memory, locked, smoke.one)
    smoke.driver.memcpy_dtoh_async(back, memory, smoke.one)
    smoke.one.synchronize()
    expect(back, x)


def a_launch(smoke: Smoke) -> None:
    x, ones = np.arange(COUNT, dtype=np.float32), np.ones(COUNT, np.float32)
    y, on_device = smoke.put(ones), smoke.put(x)
    smoke.add(smoke.one, y, on_device, 2.0)
    smoke.one.synchronize()
    expect(smoke.get(y, ones), 1 + 2 * x)


def a_block(smoke: Smoke) -> None:
    x, y = np.arange(256, dtype=np.float32), np.zeros(1, np.float32)
    on_device, result = smoke.put(x), smoke.put(y)
    smoke.launch("sum", smoke.one, 1, 256, "PP", on_device, result)
    smoke.one.synchronize()
    expect(smoke.get(result, y), x.sum(keepdims=True))


def fork(smoke: Smoke, y: Any, x: Any) -> None:
    """y += x on the first stream, then on the second, then on the first."""
    for here, there in ((smoke.one, smoke.two), (smoke.two, smoke.one)):
        smoke.add(here, y, x, 1.0)
        event = smoke.driver.Event(DISABLE_TIMING)
        event.record(here)
        there.wait_for_event(event)
    smoke.add(smoke.one, y, x, 1.0)


def two_streams(smoke: Smoke) -> None:
    x = np.arange(COUNT, dtype=np.float32)
    y, on_device = smoke.put(np.zeros_like(x)), smoke.put(x)
    fork(smoke, y, on_device)
    smoke.one.synchronize()
    expect(smoke.get(y, x), 3 * x)


def a_graph(smoke: Smoke) -> None:
    x = np.arange(COUNT, dtype=np.float32)
    y, on_device = smoke.put(np.zeros_like(x)), smoke.put(x)
    smoke.driver.begin_capture(smoke.one)
    fork(smoke, y, on_device)
    graph = smoke.driver.end_capture(smoke.one)
    for _ in range(4):
        graph.launch(smoke.one)
    smoke.one.synchronize()
    expect(smoke.get(y, x), 12 * x)


def an_update(smoke: Smoke) -> None:
    """A graph that is captured again with other addresses is updated."""
    x = np.arange(COUNT, dtype=np.float32)
    one, two, on_device = smoke.put(np.zeros_like(x)), smoke.put(np.zeros_like(x)), smoke.put(x)
    graph = None
    for y in (one, two):
        smoke.driver.begin_capture(smoke.one)
        fork(smoke, y, on_device)
        before, graph = graph, smoke.driver.end_capture(smoke.one, graph)
        graph.launch(smoke.one)
    smoke.one.synchronize()
    if graph is not before:
        raise AssertionError("the driver made another graph")
    for y in (one, two):
        expect(smoke.get(y, x), 3 * x)


def early_launches(smoke: Smoke) -> None:
    """Each of many launches in a graph reads what other blocks of the one before wrote."""
    if not smoke.driver.begins_early:
        return
    x, launches = np.arange(COUNT, dtype=np.int32), 50
    places, count = [smoke.put(x), smoke.put(x)], smoke.put(np.array([COUNT], np.int32))
    first = smoke.module.get_function("follow")
    behind = smoke.driver.early(smoke.image, "follow")
    smoke.driver.begin_capture(smoke.one)
    for number in range(launches):
        source, target = places[number % 2], places[(number + 1) % 2]
        packed = struct.pack("PPP", int(target), int(source), int(count))
        function = behind if number else first
        function._launch_kernel((200, 1, 1), (128, 1, 1), packed, 0, smoke.one)
    graph = smoke.driver.end_capture(smoke.one)
    for _ in range(5):
        graph.launch(smoke.one)
    smoke.one.synchronize()
    calls = 5 * launches
    expect(smoke.get(places[0], x), np.roll(x, -calls * (COUNT // 2 + 1)) + np.int32(calls))


def tensor_cores(name: str, depth: int) -> Callable[[Smoke], None]:
    """Check that lanes hold the operands of an instruction as smoke.cu states, with integers, so
    that every order of addition gives the same."""

    def check(smoke: Smoke) -> None:
        if int(smoke.driver.arch.strip("sm_af")) < 80:  # which has neither type
            return
        random = np.random.default_rng(depth)
        a = random.integers(-9, 10, (16, depth)).astype(np.float32)
        b = random.integers(-9, 10, (depth, 8)).astype(np.float32)
        c = np.full((16, 8), np.nan, np.float32)
        operands = [bf16(a), bf16(b)] if name == "mma_bf16" else [a, b]
        memory = [smoke.put(array) for array in (*operands, c)]
        smoke.launch(name, smoke.one, 1, 32, "PPP", *memory)
        smoke.one.synchronize()
        expect(smoke.get(memory[2], c), a @ b)

    return check


def load_matrices(smoke: Smoke) -> None:
    x = np.arange(256, dtype=np.uint16).reshape(4, 8, 8)
    y = np.zeros((32, 4), np.uint32)
    on_device, result = smoke.put(x), smoke.put(y)
    smoke.launch("load_matrices", smoke.one, 1, 32, "PP", on_device, result)
    smoke.one.synchronize()
    pairs = np.ascontiguousarray(x).view(np.uint32).reshape(4, 32)  # of matrix j, lane l
    expect(smoke.get(result, y), pairs.T)


def bf16(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The upper halves of float32 numbers that are exact in bf16."""
    return (np.ascontiguousarray(x).view(np.uint32) >> 16).astype(np.uint16)


def expect(got: np.ndarray[Any, Any], want: np.ndarray[Any, Any]) -> None:
    np.testing.assert_array_equal(got, want)


CHECKS: dict[str, Callable[[Smoke], None]] = {
    "copies": copies,
    "launch": a_launch,
    "block": a_block,
    "streams": two_streams,
    "graph": a_graph,
    "graph update": an_update,
    "early launches": early_launches,
    "mma bf16": tensor_cores("mma_bf16", 16),
    "mma tf32": tensor_cores("mma_tf32", 8),
    "ldmatrix": load_matrices,
}


def main(arguments: Sequence[str]) -> None:
    found = {}
    try:
        smoke = Smoke(*arguments)
    except Exception:
        print(json.dumps({"compile": traceback.format_exc()}))
        sys.exit(1)
    for name, check in CHECKS.items():
        try:
            check(smoke)
            found[name] = "ok"
        except Exception:
            found[name] = traceback.format_exc()
    smoke.close()
    print(json.dumps(found))
    sys.exit(any(text != "ok" for text in found.values()))


if __name__ == "__main__":
    main(sys.argv[1:])
