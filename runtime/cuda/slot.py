"""Page-locked memory of one call of a program, for its small inputs and its outputs."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np

from graphc.base.dtypes import Array
from graphc.runtime.cuda.device import Device
from graphc.runtime.cuda.reservation import input_span, output_span
from graphc.runtime.plan.plan import Binding, Plan

SMALL = 1 << 20
"""Bytes of inputs up to which they are gathered and copied as one. Gathering more takes longer than
separate copies, which the device may begin before the next is ready."""


class Slot:
    """Page-locked memory for one call.

    `outputs` are arrays in `memory`, to which all outputs are copied as one; without `collects`
    there are none. `inputs` are arrays for all inputs; empty if those are not small. Between the
    recording of `done` and `finish` the slot is `busy`, and objects in `keep` stay alive.
    """

    def __init__(self, plan: Plan, device: Device, collects: bool = True) -> None:
        driver = device.driver
        self._driver = driver
        start, stop = output_span(plan)
        size = stop - start if collects else 0
        self.memory: Array = driver.pagelocked_empty(max(size, 1), np.uint8)
        self.outputs = [_view(self.memory, b, start) for b in (plan.outputs if collects else ())]
        self._start, stop = input_span(plan)
        gathers = 0 < stop - self._start <= SMALL
        size = stop - self._start if gathers else 0
        self._staged: Array = driver.pagelocked_empty(max(size, 1), np.uint8)
        self.inputs = [_view(self._staged, b, self._start) for b in plan.inputs] if gathers else []
        self.done = driver.Event(driver.event_flags.DISABLE_TIMING)
        self.busy = self._filled = False
        self.keep: tuple[Any, ...] = ()
        self.results: weakref.ref[Any] | None = None
        """The object that reads the outputs, while anyone holds it."""

    def upload(self, arrays: Sequence[Any], arena: int, stream: Any) -> None:
        """Copy the inputs of a call to the arena, in the order of `stream`. The slot must not be
        busy; the arrays may be changed as soon as this returns."""
        if self._filled:  # by what was never collected: a profile, a call that failed
            stream.synchronize()
        for place, array in zip(self.inputs, arrays, strict=True):
            place[...] = array
        self._filled = True
        self._driver.memcpy_htod_async(arena + self._start, self._staged, stream)

    def ended(self) -> bool:
        """Return whether the call has ended."""
        return not self.busy or bool(self.done.query())

    def finish(self) -> None:
        """Wait for the end of the call."""
        if self.busy:
            self.done.synchronize()
            self._end()

    def finish_again(self) -> None:
        """As `finish`, of a call before the last one, which has most likely ended."""
        if self.busy and self.done.query():
            self._end()
        self.finish()

    def _end(self) -> None:
        self.busy = self._filled = False
        self.keep = ()


def _view(memory: Array, binding: Binding, first: int) -> Array:
    """The value's elements in memory whose first byte has the offset `first`."""
    content = memory[binding.place.start - first : binding.place.stop - first]
    return content.view(binding.value.type.numpy_dtype).reshape(binding.value.type.storage_shape)
