"""Programs that reports are made of, compiled once for all tests."""

from __future__ import annotations

import functools

import graphc
from graphc import optim
from tests.small_models import MODELS, loss_fn
from tests.tools import need_command


@functools.cache
def training(model: str, device: str = "cpu", streams: int = 1) -> graphc.Program:
    """A training step of one of the small models."""
    if device == "cpu":
        need_command("g++", "clang++")
    kind, shape = MODELS[model]
    specs = graphc.spec(shape), graphc.spec(shape[:1], "int32")
    rule = optim.SGD(lr=0.1, momentum=0.9)
    return graphc.compile(loss_fn, kind(), *specs, update=rule, device=device, streams=streams)
