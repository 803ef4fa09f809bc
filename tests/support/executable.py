"""Helpers of test_executable.py and of tests beside it."""

from __future__ import annotations

from typing import Any

import numpy as np

import graphc
from graphc import optim
from graphc.program import Program
from tests.small_models import MODELS, loss_fn

RULES = {
    "mlp": lambda: optim.Adam(lr=0.01),
    "lenet": lambda: optim.SGD(lr=0.1, momentum=0.9),
    "norm": lambda: optim.SGD(lr=0.1, weight_decay=0.01),
    "recurrent": lambda: optim.Adam(lr=0.01),
}


def batch(name: str) -> tuple[Any, Any]:
    shape = MODELS[name][1]
    random = np.random.default_rng(0)
    x = random.standard_normal(shape).astype(np.float32)
    return x, random.integers(0, 10, shape[0]).astype(np.int32)


def trainer(name: str, device: str = "sim", streams: int = 1, model: Any = None) -> Program:
    graphc.seed(0)
    model_class, shape = MODELS[name]
    specs = graphc.spec(shape), graphc.spec(shape[:1], "int32")
    options = {"update": RULES[name](), "device": device, "streams": streams}
    return graphc.compile(loss_fn, model or model_class(), *specs, **options)
