"""A model's results through graphc beside the truth, and how much of it graphc has compiled."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import torch
from torch._dynamo.utils import counters
from torch.fx import GraphModule, Node

from benchmarks.torch_models.kinks import on_their_sides
from benchmarks.torch_models.models import build
from benchmarks.torch_models.truth import results, truth
from graphc.torch.backend import with_compiler
from graphc.torch.partition import Offered


@dataclass
class Counts:
    """What of Dynamo's graphs is compiled: operators, those that only take a result of several or
    compute with sizes not counted."""

    graphs: int = 0
    taken: int = 0
    refused: Counter[str] = field(default_factory=Counter)

    def watch(self, module: GraphModule, offered: Offered) -> None:
        self.graphs += 1
        self.taken += sum(map(_is_operator, offered.taken))
        for node, reason in offered.refused.items():
            if _is_operator(node):
                self.refused[f"{node.target}: {reason}"] += 1


def check(name: str) -> dict[str, Any]:
    """What is `wrong` with a model's results (a list of lines), the `share` of its operators that
    graphc has compiled, and how many seconds it took from the first call until all was computed
    the first time (`first_s`)."""
    subject = build(name)
    expected = truth(subject)
    counts = Counts()
    torch._dynamo.reset()
    counters.clear()
    begin = time.perf_counter()
    found = results(
        subject.module,
        subject,
        torch.clone,
        lambda module: torch.compile(module, backend=with_compiler(counts.watch)),
    )
    first = time.perf_counter() - begin
    turned = 0
    if expected.differences(found):
        expected, turned = on_their_sides(subject, expected, found)
    whole = counts.taken + counts.refused.total()
    return {
        "wrong": expected.differences(found),
        "use": max(expected.use(n, a) for n, a in found.items() if n in expected.results),
        "turned": turned,
        "results": len(found),
        "operators": whole,
        "share": counts.taken / whole if whole else 0.0,
        "refused": dict(counts.refused.most_common()),
        "graphs": counts.graphs,
        "breaks": dict(counters["graph_break"]),
        "parameters": sum(p.numel() for p in subject.module.parameters()),
        "first_s": first,
    }


def _is_operator(node: Node) -> bool:
    return isinstance(node.target, torch._ops.OpOverload)
