"""The memory of training steps: `python -m benchmarks.memory [--lean] mnist-cnn-b100 gpt4-b8`.

For each workload a line of a table: the peak of graphc's work memory on one stream, over the most
bytes that are live at once and over what PyTorch holds at its own peak; and what two and four
streams add. Nothing is built or run of graphc. Of PyTorch a second training step runs with every
storage counted from the operation that makes it until nothing refers to it. On both sides
parameters, the rule's moments and the inputs are left out.

With --lean a line for each of some limits instead, as shares of what PyTorch holds, and for
`memory="lean"`: the peak, the launches that are made again, and what they add: arithmetic, and time
by the planner's estimate.
"""

from __future__ import annotations

import re
import sys
import weakref
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import graphc
from benchmarks import peer_torch
from benchmarks.measure import Case
from benchmarks.run import Model, loss_fn
from benchmarks.workload import RATES, Workload
from benchmarks.workloads import find
from graphc import optim
from graphc.base.errors import RunError
from graphc.runtime.plan.plan import Launch, Plan, all_steps

HEADER = (
    "| workload | peak MB | over live at once | over PyTorch's | 2 streams | 4 streams |",
    "| --- | --- | --- | --- | --- | --- |",
)
LEAN_HEADER = (
    "| workload | memory= | peak MB | over PyTorch's | over live at once | again | FLOP | time |",
    "| --- | --- | --- | --- | --- | --- | --- | --- |",
)
SHARES = (0.6, 0.45, 0.3)
"""Of what PyTorch holds, asked for as limits."""


class Held(TorchDispatchMode):
    """Counts the bytes of storages that operations make and something refers to."""

    def __init__(self) -> None:
        super().__init__()
        self.known = weakref.WeakSet[Any]()
        self.now = self.peak = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = [t for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)]
        before = {t.untyped_storage().data_ptr() for t in given}
        results = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(results):
            if isinstance(tensor, torch.Tensor):
                storage = tensor.untyped_storage()
                if storage.data_ptr() not in before and storage not in self.known:
                    self.known.add(storage)
                    self.now += storage.nbytes()
                    weakref.finalize(storage, self.forget, storage.nbytes())
        self.peak = max(self.peak, self.now)
        return results

    def forget(self, nbytes: int) -> None:
        self.now -= nbytes


def held_by_pytorch(workload: Workload) -> int:
    """Bytes at the peak of a training step in eager mode."""
    step = peer_torch.prepare(Case(workload, "train", 1, "eager", "cpu"))
    step()
    with Held() as held:
        step()
    return held.peak


def planner(workload: Workload) -> Callable[..., Plan]:
    """The plan of a training step on so many streams, within so much memory, whose kernels are not
    built."""
    data = workload.data()
    inputs = [graphc.spec(a.shape, a.dtype) for a in (data.x, data.y)]

    def plan(streams: int, memory: int | str | None = None) -> Plan:
        rule = getattr(optim, str(workload.rule))(**RATES[str(workload.rule)])
        nothing = SimpleNamespace(run=None)
        with patch("graphc.runtime.cpu.executable.load", lambda *_: nothing):
            options: dict[str, Any] = {"device": "cpu", "streams": streams, "update": rule}
            options |= {"memory": memory, "threads": 1}
            found = graphc.compile(loss_fn, Model(workload, data), *inputs, **options).plan
        assert found is not None
        return found

    return plan


def line(workload: Workload) -> str:
    plan = planner(workload)
    one, *more = (plan(streams) for streams in (1, 2, 4))
    peak = one.peak_bytes
    figures = [
        f"{peak / 1e6:.2f}",
        f"{peak / one.lower_bound_bytes:.3f}",
        f"{peak / held_by_pytorch(workload):.2f}",
        *(f"{other.peak_bytes / peak - 1:+.1%}" for other in more),
    ]
    return f"| {' | '.join((workload.name, *figures))} |"


def lean_lines(workload: Workload) -> Iterator[str]:
    """A line for the usual plan, one for each limit, and one for `memory="lean"`."""
    plan, held = planner(workload), held_by_pytorch(workload)
    usual = plan(1)
    limits: list[tuple[str, int | str]] = [(f"{x:.0%}", int(x * held)) for x in SHARES]
    for name, memory in (("", None), *limits, ("lean", "lean")):
        try:
            found = plan(1, memory)
        except RunError as refused:
            least = re.search(r"takes (\d+) bytes", str(refused))
            assert least is not None
            share = int(least[1]) / held
            yield f"| {workload.name} | {name} | refused: {share:.2f} is the least | | | | | |"
            continue
        more = len(all_steps(found.steps)) - len(all_steps(usual.steps))
        again = sum(" again before " in note for note in found.notes)
        figures = [
            f"{found.peak_bytes / 1e6:.1f}",
            f"{found.peak_bytes / held:.2f}",
            f"{found.peak_bytes / found.lower_bound_bytes:.3f}",
            f"{again}" + (f" + {more - again} updates" if more > again else ""),
            f"{flop(found) / flop(usual) - 1:+.1%}",
            f"{found.estimate.serial / usual.estimate.serial - 1:+.1%}",
        ]
        yield f"| {' | '.join((workload.name, name, *figures))} |"


def flop(plan: Plan) -> int:
    return sum(plan.kernels[s.kernel].flops for s in plan.steps if isinstance(s, Launch))


if __name__ == "__main__":
    lean = "--lean" in sys.argv
    print(*(LEAN_HEADER if lean else HEADER), sep="\n")
    for workload in (find(name) for name in sys.argv[1:] if name != "--lean"):
        for text in lean_lines(workload) if lean else [line(workload)]:
            print(text, flush=True)
