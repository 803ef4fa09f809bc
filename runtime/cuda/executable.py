"""A plan on a GPU: run, checked for NaN, or measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from graphc.base.dtypes import Array
from graphc.base.errors import RunError
from graphc.base.locks import refuse_reentry
from graphc.ir import Graph
from graphc.ir.state import StateBuffer
from graphc.parallel.group import Group
from graphc.runtime.cuda import measure
from graphc.runtime.cuda.device import find_device
from graphc.runtime.cuda.player import Input
from graphc.runtime.cuda.torch_capture import CapturedPlayer
from graphc.runtime.plan.plan import Plan
from graphc.runtime.tuning.timing import Timing


def load(
    plan: Plan,
    state: Mapping[str, StateBuffer],
    device: str,
    graph: Graph | None = None,
    check: bool = False,
    group: Group | None = None,
) -> CudaExecutable | Unavailable:
    """Compile the kernels of `plan`, or find them in the cache, and reserve its memory on the
    device called "cuda", "cuda:N" or "sim".

    If that device is missing, calls raise the error, not this. `check` lets the simulated device
    check every access. Messages go to the ranks of `group`. Raises CompileError, and RunError if
    the device's memory is too small.
    """
    try:
        found = find_device(device, check)
    except RunError as error:
        return Unavailable(device, str(error))
    return CudaExecutable(plan, state, found, graph, group=group)


class Unavailable:
    """Stands for a device that is not present: kernels are printed and planned, but cannot run."""

    threads = 1

    def __init__(self, device: str, reason: str) -> None:
        self._message = (
            f"device {device!r}: {reason}. The kernels are generated and planned "
            "(program.kernels, program.plan), not run; the state is unchanged. device='sim' plays "
            "them without a GPU"
        )

    def run(self, inputs: Sequence[Any]) -> list[Array]:
        raise RunError(self._message)

    run_checked = run

    def profile(self, inputs: Sequence[Any], repeats: int = 20) -> list[Timing]:
        raise RunError(self._message)

    def calls(self, inputs: Sequence[Any], repeats: int = 20) -> list[float]:
        raise RunError(self._message)


class CudaExecutable(CapturedPlayer):
    """A plan on a GPU with functions that check and measure it."""

    threads = 1
    """Threads of the host."""

    def run_checked(self, inputs: Sequence[Input]) -> list[Any]:
        """As `run`, one launch at a time; raises RunError at the first NaN in an input, in state or
        in a value that a kernel writes. Then the state is as before the call."""
        refuse_reentry(self.plan.name)
        with self.device.entered():
            block = self.new_block()
            measure.run_checked(self, inputs)
            return self.results(self.collect(), block)

    def profile(self, inputs: Sequence[Input], repeats: int = 20) -> list[Timing]:
        """The times of each launch and copy by the device's events, in the plan's order.

        After one uncounted call, the launches of all streams run one after another, `repeats`
        times. The state is restored.
        """
        refuse_reentry(self.plan.name)
        with self.device.entered():
            return measure.profile(self, inputs, repeats)

    def calls(self, inputs: Sequence[Input], repeats: int = 20) -> list[float]:
        """Microseconds of each of `repeats` calls as by `run`, after one uncounted call. The state
        is restored."""
        refuse_reentry(self.plan.name)

        def play() -> None:
            block = self.new_block()
            self.prepare(inputs)
            self._play()
            self.results(self.collect(), block)

        with self.device.entered():
            return measure.calls(self, play, repeats)

    def replays(self, inputs: Sequence[Input], repeats: int, rounds: int = 1) -> list[float]:
        """Microseconds of device time per step in each of `rounds`, by events around `repeats`
        successive steps whose inputs are on the device and whose results are not fetched. One step
        before is not counted. The state is restored."""
        refuse_reentry(self.plan.name)
        with self.device.entered():
            return measure.replays(self, inputs, self._play, repeats, rounds)

    def timeline(self, inputs: Sequence[Input]) -> list[tuple[int, float, float]]:
        """(step number, start, end) of each launch and copy in one call, in microseconds from the
        first start, as the streams ran. The state is restored."""
        refuse_reentry(self.plan.name)
        with self.device.entered():
            return measure.timeline(self, inputs)
