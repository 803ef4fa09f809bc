"""A plan on a GPU: played, checked for NaN, or measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from graphc.base.dtypes import Array
from graphc.base.errors import RunError
from graphc.base.locks import refuse_reentry
from graphc.ir import Graph
from graphc.ir.state import StateBuffer
from graphc.runtime.cuda import measure
from graphc.runtime.cuda.device import find_device
from graphc.runtime.cuda.player import CudaPlayer, Input
from graphc.runtime.plan.plan import Plan
from graphc.runtime.tuning.timing import Timing


def load(
    plan: Plan,
    state: Mapping[str, StateBuffer],
    device: str,
    graph: Graph | None = None,
    check: bool = False,
) -> CudaExecutable | Unavailable:
    """Compile the kernels of `plan`, or find them in the cache, and make room for it on the device
    called "cuda", "cuda:N" or "sim". Where that device is missing, calls say so, not this.

    `check` lets the simulated device check every access. Raises CompileError, and RunError if the
    device's memory is too small.
    """
    try:
        found = find_device(device, check)
    except RunError as error:
        return Unavailable(device, str(error))
    return CudaExecutable(plan, state, found, graph)


class Unavailable:
    """Stands for a device that is not here: kernels are printed and planned, but not run."""

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


class CudaExecutable(CudaPlayer):
    """A plan on a GPU, ready to play, and to be looked into while it plays."""

    threads = 1
    """Of the host."""

    def run_checked(self, inputs: Sequence[Input]) -> list[Array]:
        """As `run`, one launch at a time; RunError at the first NaN in an input, in state or in
        a value that a kernel writes. Then the state is what it was before the call."""
        refuse_reentry(self.plan.name)
        with self.device.entered():
            measure.run_checked(self, inputs)
            return self.fetch(self.collect())

    def profile(self, inputs: Sequence[Input], repeats: int = 20) -> list[Timing]:
        """What each launch and copy takes by the device's events, in the plan's order.

        After one call that is not counted the launches of all streams are played one after
        another, `repeats` times. The state is left as it was.
        """
        refuse_reentry(self.plan.name)
        with self.device.entered():
            return measure.profile(self, inputs, repeats)

    def calls(self, inputs: Sequence[Input], repeats: int = 20) -> list[float]:
        """Microseconds of each of `repeats` calls, played as `run` does, after one that is not
        counted. The state is left as it was."""
        refuse_reentry(self.plan.name)

        def play() -> None:
            self.prepare(inputs)
            self._play()
            self.fetch(self.collect())

        with self.device.entered():
            return measure.calls(self, play, repeats)

    def replays(self, inputs: Sequence[Input], repeats: int, rounds: int = 1) -> list[float]:
        """Microseconds of the device that a step takes in each of `rounds`: by events around
        `repeats` steps one behind another, whose inputs lie there and whose results are not
        fetched. One step before them is not counted. The state is left as it was."""
        refuse_reentry(self.plan.name)
        with self.device.entered():
            return measure.replays(self, inputs, self._play, repeats, rounds)

    def timeline(self, inputs: Sequence[Input]) -> list[tuple[int, float, float]]:
        """(index of the step, start, end) of each launch and copy in one call, in microseconds
        from the first start, as the streams really ran. The state is left as it was."""
        refuse_reentry(self.plan.name)
        with self.device.entered():
            return measure.timeline(self, inputs)
