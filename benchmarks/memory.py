"""The memory of training steps: `python -m benchmarks.memory mnist-cnn-b100 gpt4-b8`.

For each workload a line of a table: the peak of graphc's work memory on one stream, over the most
bytes that are live at once and over what PyTorch holds at its own peak; and what two and four
streams add. Nothing is built or run of graphc. Of PyTorch a second training step runs with every
storage counted from the operation that makes it until nothing refers to it. On both sides
parameters, the rule's moments and the inputs are left out.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
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
from graphc.runtime.plan.plan import Plan

HEADER = (
    "| workload | peak MB | over live at once | over PyTorch's | 2 streams | 4 streams |",
    "| --- | --- | --- | --- | --- | --- |",
)


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


def planner(workload: Workload) -> Callable[[int], Plan]:
    """The plan of a training step on so many streams, whose kernels are not built."""
    data = workload.data()
    inputs = [graphc.spec(a.shape, a.dtype) for a in (data.x, data.y)]

    def plan(streams: int) -> Plan:
        rule = getattr(optim, str(workload.rule))(**RATES[str(workload.rule)])
        nothing = SimpleNamespace(run=None)
        with patch("graphc.runtime.cpu.executable.load", lambda *_: nothing):
            options: dict[str, Any] = {"device": "cpu", "streams": streams, "update": rule}
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


if __name__ == "__main__":
    print(*HEADER, sep="\n")
    for name in sys.argv[1:]:
        print(line(find(name)), flush=True)
