"""Report which operators of a PyTorch model graphc supports."""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx import GraphModule

from graphc import functions
from graphc.torch.aten.rules import names
from graphc.torch.backend import with_compiler
from graphc.torch.partition import Offered

_MARKS = re.compile(r"^(linalg|special|native)_|_(ex|cpu|backward|forward|forward_only)$")
"""Parts of operators' names that say how, not what."""


@dataclass
class Report:
    """How often each operator occurs in a model's forward and backward graphs; prints as a table.

    Attributes:
        taken: Operators that become part of programs, with their counts.
        refused: Operators that are left to PyTorch, with the reasons.
    """

    taken: Counter[str] = field(default_factory=Counter)
    refused: Counter[tuple[str, str]] = field(default_factory=Counter)
    graphs: int = 0

    @property
    def share(self) -> float:
        """The fraction of operators that graphc takes, 0 to 1."""
        taken, refused = sum(self.taken.values()), sum(self.refused.values())
        return taken / (taken + refused) if taken + refused else 1.0

    def __str__(self) -> str:
        lines = [
            f"{self.graphs} graphs, {sum(self.taken.values())} operators taken, "
            f"{sum(self.refused.values())} left to PyTorch ({self.share:.1%} taken)"
        ]
        for (name, reason), count in self.refused.most_common():
            near = nearest(name)
            hint = f"; the nearest that graphc has is {near}" if near else ""
            lines.append(f"  {count:5} {name}: {reason}{hint}")
        return "\n".join(lines)


def report(model: Callable[..., Any], *inputs: Any) -> Report:
    """Report what graphc takes of `model(*inputs)` and of its gradient, if a result has one.

    The model runs once in PyTorch; its buffers and gradients change as in one training step.

    Args:
        model: A PyTorch module or function.
        *inputs: PyTorch tensors.

    Returns:
        A `Report`.
    """
    found = Report()

    def watch(module: GraphModule, offered: Offered) -> None:
        found.graphs += 1
        found.taken.update(str(node.target) for node in offered.taken)
        found.refused.update((str(n.target), why) for n, why in offered.refused.items())

    torch._dynamo.reset()
    results = torch.compile(model, backend=with_compiler(watch, build=False))(*inputs)
    loss = sum(t.float().sum() for t in _tensors(results) if t.requires_grad)
    if isinstance(loss, torch.Tensor):
        loss.backward()  # type: ignore[no-untyped-call]
    torch._dynamo.reset()
    return found


def nearest(name: str) -> str:
    """Return the function of graphc, or else its rule, with the name nearest to an operator's."""
    own = _MARKS.sub("", name.removeprefix("aten.").split(".")[0]).strip("_")
    rules = {n.removeprefix("aten.").split(".")[0] for n in names()}
    close = (difflib.get_close_matches(own, sorted(known), 1) for known in (_functions(), rules))
    return next((found[0] for found in close if found), "")


def _functions() -> set[str]:
    return {name for name in vars(functions) if not name.startswith("_")}


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, tuple | list):
        return [t for v in value for t in _tensors(v)]
    return []
