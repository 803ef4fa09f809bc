"""Record why fusion joins nodes or keeps them apart, for `explain`.

A pass is a function of a graph, so nothing is kept from a compile: who wants to know runs it once
more on the graph that it was given, within `reasons()`. Elsewhere saying so costs next to nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

from graphc.ir import Node, Value


@dataclass
class Reasons:
    """What has been said. Values and nodes go by names, a node by that of its first output."""

    joined: dict[str, str] = field(default_factory=dict)
    """A node -> why it is in the kernel that it is in."""
    apart: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    """(a value, a node that reads it) -> the rules that kept the node from the value's kernel."""


_asked: ContextVar[Reasons | None] = ContextVar("reasons", default=None)


@contextmanager
def reasons() -> Iterator[Reasons]:
    """Record the reasons that passes give inside."""
    kept = Reasons()
    token = _asked.set(kept)
    try:
        yield kept
    finally:
        _asked.reset(token)


def record_join(node: Node, why: str) -> None:
    """Record why a pass takes `node` into a kernel."""
    if (kept := _asked.get()) is not None:
        kept.joined[node.outputs[0].name] = why


def record_separation(value: Value, reader: Node, rule: str) -> None:
    """Record which rule keeps `reader` out of the kernel that makes `value`."""
    if (kept := _asked.get()) is not None:
        rules = kept.apart.setdefault((value.name, reader.outputs[0].name), [])
        if rule not in rules:
            rules.append(rule)
