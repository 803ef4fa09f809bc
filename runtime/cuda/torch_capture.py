"""Calls while PyTorch captures a CUDA graph: their work becomes part of that graph.

Such a call runs nothing. It forks streams of its own from PyTorch's current stream by an event,
issues the plan's launches on them and joins them again, so that PyTorch's graph holds the plan's
nodes. They read tensors where they lie. Results and work memory come from PyTorch's allocator, and
so from the memory of the capture, which stays valid for as long as its graph does.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

from graphc.base.errors import RunError
from graphc.ir.state import ALIGNMENT
from graphc.runtime.cuda.blocks import Block, Holder
from graphc.runtime.cuda.device import Device
from graphc.runtime.cuda.device_array import arrays_in
from graphc.runtime.cuda.foreign import ForeignArray
from graphc.runtime.cuda.launches import Addresses, Places
from graphc.runtime.cuda.player import CudaPlayer, Input, Results
from graphc.runtime.cuda.reservation import output_span
from graphc.runtime.plan.plan import Plan


class CapturedPlayer(CudaPlayer):
    """A plan on a GPU whose calls become part of a graph while PyTorch captures one.

    Its launches in such a graph and those of later calls use the same counters and state, so the
    calls take turns with what PyTorch's current stream is given.
    """

    def run(self, inputs: Sequence[Input]) -> list[Any]:
        """As by `CudaPlayer`."""
        if "torch" in sys.modules:
            if self.device.torch_captures():
                return recorded(self, inputs)
            if self.is_captured:
                with self._turn():
                    return super().run(inputs)
        return super().run(inputs)

    def submit(self, inputs: Sequence[Input]) -> Results:
        """As by `CudaPlayer`."""
        if "torch" in sys.modules:
            if self.device.torch_captures():
                return Results(self, None, recorded(self, inputs))
            if self.is_captured:
                with self._turn():
                    return super().submit(inputs)
        return super().submit(inputs)

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Let the calls within follow what PyTorch's current stream was given before, and what it
        is given next follow them."""
        device, stream = self.device, _current_stream(self.device)
        with device.entered():
            device.driver.wait_for_stream(device.streams[0], stream.handle)
        yield
        with device.entered():
            device.driver.wait_for_stream(stream, int(device.streams[0].handle))


def recorded(player: CudaPlayer, inputs: Sequence[Input]) -> list[Any]:
    """The outputs of a call that PyTorch captures: arrays that each launch of its graph writes.

    Raises RunError, before anything is recorded, for a call that cannot be part of a graph.
    """
    plan, device = player.plan, player.device
    if problem := _problem(player, inputs):
        raise RunError(f"{plan.name}: PyTorch is capturing a CUDA graph, and {problem}")
    stream = _current_stream(device)
    start, stop = output_span(plan)
    given = [x for x in inputs if isinstance(x, ForeignArray)]
    results = _allocated(device, stop - start)
    with device.entered(in_capture=True):
        forks, driver = device.forks, device.driver
        driver.wait_for_stream(forks[0], stream.handle)
        work, io, owners = _allocated(device, plan.peak_bytes), [], []
        for array, must_copy in zip(given, _copied(plan, given), strict=True):
            address = array.address
            if must_copy and array.nbytes:
                owners.append(_allocated(device, array.nbytes))
                address = owners[-1].data_ptr()
                driver.memcpy_dtod_async(address, array.address, array.nbytes, forks[0])
            io.append(address)
        io += [results.data_ptr() + b.place.start - start for b in plan.outputs]
        state = [copy.address for copy in player.copies]
        for issue, _ in player.bound(Addresses(plan, state, io, work.data_ptr()), forks):
            issue()
        driver.wait_for_stream(stream, int(forks[0].handle))
        player.keep_forever()
    holder = Holder(Block(results, stop - start, results.data_ptr()))
    return arrays_in(device, holder, player.results_within, stream.handle)


def _problem(player: CudaPlayer, inputs: Sequence[Input]) -> str:
    """Why a call cannot be part of a graph that PyTorch captures; "" if it can."""
    plan, device = player.plan, player.device
    current = _torch().cuda.current_device()
    places = zip(plan.inputs, inputs, strict=True)
    host = [b.value.name for b, x in places if not isinstance(x, ForeignArray)]
    stale = [b.value.name for b, x in zip(plan.state, player.stale, strict=True) if x]
    if current != device.ordinal:
        return f"this program is on {device.name}, PyTorch's current device is cuda:{current}"
    if not device.captures:
        return "graphc needs cuda-bindings for that: pip install cuda-bindings"
    if not player.keeps:
        return "this program's results would go to the host: compile it with out='device'"
    if player.updated:
        return (
            "this program updates state, which would change unnoticed whenever the graph is "
            "launched: call it outside, where it is a graph of its own"
        )
    if player.sends:
        return "this program sends messages, for which its ranks meet on the host before each call"
    if host:
        return f"{host[0]} is on the host: arguments must be tensors on the GPU"
    if not player.has_run:
        return "this program has not run before: call it once first, which loads its kernels"
    if stale:
        return f"{stale[0]} has changed on the host since the last call: call it once first"
    return ""


def _copied(plan: Plan, inputs: Sequence[ForeignArray]) -> list[bool]:
    """Whether each input is read in a copy: where no vector may lie, or if it is overwritten."""
    places = Places((*plan.inputs, *plan.outputs))
    written = set(places.written(plan, "io"))
    return [x.address % ALIGNMENT > 0 or number in written for number, x in enumerate(inputs)]


def _allocated(device: Device, nbytes: int) -> Any:
    """Memory of PyTorch's allocator, as a tensor of bytes."""
    torch = _torch()
    place = f"cuda:{device.ordinal}"
    return torch.empty(max(nbytes, 1), dtype=torch.uint8, device=place)


def _current_stream(device: Device) -> Any:
    """PyTorch's current stream."""
    return SimpleNamespace(handle=int(_torch().cuda.current_stream(device.ordinal).cuda_stream))


def _torch() -> Any:
    return sys.modules["torch"]
