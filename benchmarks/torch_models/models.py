"""The models by name, each with the inputs that it is run with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

BATCH, IMAGE, TOKENS, WORDS = 4, 64, 16, 96
"""Examples, pixels along an edge, symbols of a text, and symbols that there are."""


@dataclass(frozen=True)
class Subject:
    """A module and its inputs, by name or in order."""

    module: torch.nn.Module
    arguments: tuple[Any, ...] = ()
    named: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Entry:
    name: str
    package: str
    build: Callable[[], Subject]


ENTRIES: dict[str, Entry] = {}
"""The models that are listed, by name."""


def add(package: str, name: str, build: Callable[[], Subject]) -> None:
    assert name not in ENTRIES, name
    ENTRIES[name] = Entry(name, package, build)


def build(name: str, seed: int = 0) -> Subject:
    """The model with weights and inputs that are the same each time, and with nothing dropped:
    libraries draw what they drop in other orders."""
    torch.manual_seed(seed)
    subject = ENTRIES[name].build()
    for module in subject.module.modules():
        if isinstance(module, torch.nn.modules.dropout._DropoutNd):
            module.p = 0.0
        if type(module).__name__ in ("StochasticDepth", "DropPath"):
            for chance in ("p", "drop_prob"):
                if hasattr(module, chance):
                    setattr(module, chance, 0.0)
    _spread(subject.module)
    return subject


def images(size: int = IMAGE, batch: int = BATCH, channels: int = 3) -> torch.Tensor:
    return torch.randn(batch, channels, size, size)


def text(batch: int = BATCH, length: int = TOKENS) -> torch.Tensor:
    return torch.randint(3, WORDS, (batch, length))


def _spread(module: torch.nn.Module) -> None:
    """Vary what layers begin with as all zeros or ones, so that nothing is multiplied by 0."""
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.ndim <= 1 or not parameter.any():
                parameter.add_(torch.empty_like(parameter).uniform_(-0.1, 0.1))
