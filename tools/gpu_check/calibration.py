"""Measure the constants of the model: `python -m tools.gpu_check.calibration cuda`.

It launches the micro-kernels of micro.cu, each repeated in one graph, and fits the constants to
their times. The last line is JSON: `us` by micro-kernel, the fitted `constants`, and `explained`, a
time over the sum of its fitted costs, which is 1 where the fit holds. On the simulated GPU small
launches check the kernels' results, and the times are those of the model.
"""

from __future__ import annotations

import json
import struct
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import pairwise
from statistics import median
from typing import Any

import numpy as np

from benchmarks.kernel_times import repeated
from graphc.runtime.cuda import Device, find_device
from tools.gpu_check.micro import COPIED, RINGS, SIZES, SOURCE, STEP, Micro, Ring, micros
from tools.gpu_model.fit import constants, costs, explained
from tools.gpu_model.machine import H200, Machine, machine_called
from tools.gpu_model.micro_times import ModelClock

BLOCKS, STRIDE = 2, 128
"""Blocks of a launch on the simulated GPU, and bytes from pointer to pointer, at most."""
COLD = 5
"""Launches of a chase through memory, each timed by itself."""


def main(device: str) -> None:
    print(json.dumps(calibrated(find_device(device))))


def calibrated(place: Device) -> dict[str, Any]:
    with place.entered():
        machine = machine_of(place)
        each = list(micros(machine))
        kernels = MicroKernels(place, machine)
        us = {micro.name: kernels.microseconds(micro) for micro in each}
        kernels.check()
        kernels.close()
    if is_simulated(place):
        us = {name: 1e6 * s for name, s in ModelClock(machine).seconds(each).items()}
    seconds = {name: time / 1e6 for name, time in us.items()}
    found = costs(each, seconds)
    return {
        "us": rounded(us),
        "constants": rounded(constants(found)),
        "explained": rounded(explained(each, seconds, found)),
    }


def rounded(found: dict[str, float]) -> dict[str, float]:
    return {name: float(f"{value:.5g}") for name, value in found.items()}


def is_simulated(place: Device) -> bool:
    return place.name.startswith("sim")


def machine_of(place: Device) -> Machine:
    """The model of the GPU, with its own number of multiprocessors; an H200 if it is simulated."""
    if is_simulated(place):
        return H200
    found, driver = place.driver.Device(place.ordinal), place.driver
    count = found.get_attribute(driver.device_attribute.MULTIPROCESSOR_COUNT)
    known = machine_called(found.name())
    return replace(known, arch=driver.arch, multiprocessors=float(count))


class MicroKernels:
    """The kernels of micro.cu on a device that is entered, with what they read and write."""

    def __init__(self, place: Device, machine: Machine) -> None:
        self.place, self.driver, self.stream = place, place.driver, place.streams[0]
        self.simulated = is_simulated(place)
        self.image = self.driver.compile(SOURCE.read_text(), "micro", SOURCE.name)
        self.module = self.driver.module_from_buffer(self.image)
        blocks = 2 * int(machine.multiprocessors) if not self.simulated else BLOCKS
        copied = max(SIZES.values()) * COPIED if not self.simulated else 1 << 20
        self.order = (np.arange(64, dtype=np.int32) + 5) % 64 * 4
        self.lanes = np.arange(32, dtype=np.int32)
        self.memory = {
            "end": self.put(self.lanes),
            "next": self.put(self.order),
            "jumps": self.put(np.zeros(1, np.int32)),
            "word": self.put(np.zeros(1, np.uint32)),
            "count": self.put(np.array([blocks * 512 * 8], np.int32)),
            "values": self.put(np.ones(blocks * 512 * 8 * 4, np.float32)),
            "numbers": self.put(np.array([0.5, 1.0, 0, 0, 0, 0], np.float32)),
            "copies": self.driver.mem_alloc(2 * copied),
        }
        self.copied = copied
        self.cursors = {name: self.linked(ring) for name, ring in RINGS.items()}
        self.followed = dict.fromkeys(RINGS, 0)

    def close(self) -> None:
        """Free everything that needs the context."""
        del self.module
        self.memory.clear()
        self.cursors.clear()

    def put(self, array: np.ndarray[Any, Any]) -> Any:
        memory = self.driver.mem_alloc(array.nbytes)
        self.driver.memcpy_htod(memory, array)
        return memory

    def get(self, memory: Any, like: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        self.stream.synchronize()
        array = np.empty_like(like)
        self.driver.memcpy_dtoh(array, memory)
        return array

    def linked(self, ring: Ring) -> tuple[Any, Any, int]:
        """A cursor at the beginning of a new ring, the ring, and the bytes from pointer to
        pointer."""
        stride = min(ring.stride, STRIDE) if self.simulated else ring.stride
        first = self.driver.mem_alloc(ring.count * stride)
        spec = self.put(np.array([ring.count, stride, STEP], np.int64))
        self.call("link", BLOCKS, 256, first, spec)()
        self.stream.synchronize()
        return self.put(np.array([int(first)], np.uint64)), first, stride

    def call(
        self, symbol: str, blocks: int, threads: int, *pointers: Any, cooperative: bool = False
    ) -> Callable[[], object]:
        """Issues a launch."""
        if cooperative:
            function = self.driver.cooperative(self.image, symbol)
            blocks = min(blocks, function.blocks(threads, 0, 1))
        else:
            function = self.module.get_function(symbol)
        packed = struct.pack(f"{len(pointers)}P", *map(int, pointers))
        shape = (blocks, 1, 1), (threads, 1, 1)
        return partial(function._launch_kernel, *shape, packed, 0, self.stream)

    def issue(self, micro: Micro) -> Callable[[], object]:
        memory = self.memory
        if micro.copied:
            nbytes = min(micro.copied, self.copied)
            first = int(memory["copies"])
            copy = self.driver.memcpy_dtod_async
            return partial(copy, first + self.copied, first, nbytes, self.stream)
        blocks = min(micro.blocks, BLOCKS) if self.simulated else micro.blocks
        kind = micro.symbol.rpartition("_")[0] or micro.symbol
        if micro.ring:
            pointers = [self.cursors[micro.ring][0]]
        else:
            names = POINTERS.get(kind, ("end",))
            pointers = [memory[name] for name in names]
        shape = micro.symbol, blocks, micro.threads
        return self.call(*shape, *pointers, cooperative=micro.cooperative)

    def microseconds(self, micro: Micro) -> float:
        """Of a launch; on the simulated GPU it is played once."""
        issue = self.issue(micro)
        count = 1 if self.simulated else COLD
        if micro.ring == "memory":
            self.followed["memory"] += count * int(micro.costs["memory"])
            return self.cold(issue, count)
        if not self.simulated:
            return repeated([issue], self.place)
        issue()
        if micro.ring:
            steps = micro.costs.get("l1", 0) + micro.costs["l2"]
            self.followed[micro.ring] += int(steps)
        self.stream.synchronize()
        return 0.0

    def cold(self, issue: Callable[[], object], count: int) -> float:
        """The median of so many launches, each of which reads memory that none has read, once a
        copy has filled L2."""
        first = int(self.memory["copies"])
        copy = partial(self.driver.memcpy_dtod_async, first + self.copied, first, self.copied)
        marks = [self.driver.Event() for _ in range(count + 1)]
        copy(self.stream)
        for mark in marks:
            mark.record(self.stream)
            if mark is not marks[-1]:
                issue()
        self.stream.synchronize()
        return 1000 * float(median(b.time_since(a) for a, b in pairwise(marks)))

    def check(self) -> None:
        """Raise AssertionError if a kernel did not do its work: chases must end where they should,
        a chase in shared memory by fives from 0, and shuffles give all lanes their own again."""
        for name, ring in RINGS.items():
            cursor, first, stride = self.cursors[name]
            (at,) = self.get(cursor, np.zeros(1, np.uint64))
            place, rest = divmod(int(at) - int(first), stride)
            steps = self.followed[name]
            right = place == steps * STEP % ring.count if self.simulated else place < ring.count
            if rest or not right:
                raise AssertionError(f"the chase through {name} ended at pointer {place}")
        (jump,) = self.get(self.memory["jumps"], np.zeros(1, np.int32))
        if jump != 5 * 1024 * max(SIZES.values()) % 64 * 4:
            raise AssertionError(f"the chase through shared memory ended at byte {jump}")
        if (self.get(self.memory["end"], self.lanes) != self.lanes).any():
            raise AssertionError("shuffles gave lanes what is another's")


POINTERS = {
    "waits": ("word",),
    "chase_shared": ("next", "jumps"),
    "read": ("values", "count", "numbers"),
    "adds": ("numbers", "numbers"),
    "bfloats": ("numbers", "numbers"),
    "tf32": ("numbers", "numbers"),
    "groups": ("numbers",),
}
"""What kernels are given; others the numbers of lanes."""

if __name__ == "__main__":
    main(sys.argv[1])
