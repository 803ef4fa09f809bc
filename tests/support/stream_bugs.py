"""Helpers of test_stream_bugs.py and of tests beside it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from graphc.runtime.sim import Simulator
from graphc.runtime.sim.objects import DeviceAllocation, Event, Stream
from tests.sim.playing import packed, simulator, whole

COUNT, NBYTES = 1000, 4000


X = np.arange(COUNT, dtype=np.float32)


TEXT = """
extern "C" __global__ void scale(const float* x, float* y, int count, float a) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) y[i] = a * x[i];
}
extern "C" __global__ void add(const float* a, const float* b, float* c, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) c[i] = a[i] + b[i];
}
"""


@dataclass
class Setting:
    """A device with x, y, z and the sum on it, two streams, events, and arrays of the host."""

    device: Simulator
    x: DeviceAllocation
    y: DeviceAllocation
    z: DeviceAllocation
    sum: DeviceAllocation
    first: Stream
    second: Stream
    events: list[Event]
    given: np.ndarray
    got: np.ndarray
    module: Any

    def scale(self, stream: Stream, source: DeviceAllocation, to: DeviceAllocation, factor: float):
        buffer = packed(source, to, COUNT, factor)
        self._launch("scale", stream, buffer, reads=[self.span(source)], writes=[self.span(to)])

    def add(self, stream: Stream, count: int = COUNT, **declared: Any):
        buffer = packed(self.y, self.z, self.sum, count)
        usual = {"reads": [self.span(self.y), self.span(self.z)], "writes": [self.span(self.sum)]}
        self._launch("add", stream, buffer, **(usual | declared))

    def span(self, allocation: DeviceAllocation) -> tuple[int, int, str]:
        names = {int(a): n for n, a in vars(self).items() if isinstance(a, DeviceAllocation)}
        return whole(allocation, NBYTES, names[int(allocation)])

    def _launch(self, name: str, stream: Stream, buffer: bytes, **declared: Any):
        function = self.module.get_function(name)
        function._launch_kernel((8, 1, 1), (128, 1, 1), buffer, 0, stream, **declared)

    def upload(self, stream: Stream):
        self.device.memcpy_htod_async(self.x, self.given, stream)

    def download(self, stream: Stream):
        self.device.memcpy_dtoh_async(self.got, self.sum, stream)

    def forked(self, without: str = ""):
        """All three kernels and the copies; one of the events may be missing."""
        self.upload(self.first)
        if without != "fork":
            self.events[0].record(self.first)
            self.second.wait_for_event(self.events[0])
        self.scale(self.first, self.x, self.y, 2.0)
        self.scale(self.second, self.x, self.z, 3.0)
        if without != "join":
            self.events[1].record(self.second)
            self.first.wait_for_event(self.events[1])
        self.add(self.first)
        self.download(self.first)


def setting(seed: int = 0, policy: str = "random") -> Setting:
    device = simulator(seed=seed, policy=policy, check=True)
    module = device.module_from_buffer(device.compile(TEXT, "scale_add"))
    memory = [device.mem_alloc(NBYTES) for _ in range(4)]
    streams = [device.Stream(1) for _ in range(2)]
    events = [device.Event(2) for _ in range(3)]
    arrays = [device.pagelocked_empty(COUNT, np.float32) for _ in range(2)]
    arrays[0][:] = X
    return Setting(device, *memory, *streams, events, *arrays, module)
