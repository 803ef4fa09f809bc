"""Tracing a function and running its graph in NumPy, for tests of functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from graphc.gradients.reverse import gradients
from graphc.ir import FLOATS, Graph, Type, dtype_name, verify
from graphc.ir.interpret import evaluate
from graphc.trace import Builder, Tensor

Array = np.ndarray


def traced(
    function: Callable[..., Any], *arrays: Array, training: bool = False, slopes: bool = False
) -> tuple[Graph, Builder]:
    """The graph of `function` on inputs of these arrays' types. With `slopes`, the outputs are
    followed by the gradient of their sum with respect to each float input, or by zeros."""
    builder = Builder("test")
    builder.training = training
    with builder.building():
        inputs = [
            builder.input(f"x{i}", Type(a.shape, dtype_name(a.dtype))) for i, a in enumerate(arrays)
        ]
        found = function(*inputs)
        outputs = list(found) if isinstance(found, tuple | list) else [found]
        if slopes:
            outputs += _slopes(outputs, inputs, builder)
    graph = builder.graph(outputs)
    verify(graph)
    return graph, builder


def _slopes(outputs: list[Tensor], inputs: list[Tensor], builder: Builder) -> list[Tensor]:
    from graphc import functions as f

    floats = [t for t in outputs if t.dtype in FLOATS]
    seeds = [f.ones_like(t) for t in floats]
    wanted = [t for t in inputs if t.dtype in FLOATS]
    found = gradients(floats, seeds, wanted, builder)
    return [f.zeros_like(t) if g is None else g for t, g in zip(wanted, found, strict=True)]


def run(function: Callable[..., Any], *arrays: Array, **options: Any) -> list[Array]:
    """The outputs of `function` in NumPy; options as of `traced`."""
    graph, builder = traced(function, *arrays, **options)
    state = {name: buffer.numpy() for name, buffer in builder.buffers.items()}
    outputs, _ = evaluate(graph, arrays, state)
    for value, array in zip(graph.outputs, outputs, strict=True):
        assert (array.shape, dtype_name(array.dtype)) == (value.type.shape, value.type.dtype)
    return list(outputs)
