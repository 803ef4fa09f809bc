"""Traces a module or a rule and runs the graph in NumPy, writing the state back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from graphc import nn
from graphc.ir import Graph, Type, dtype_name, verify
from graphc.ir.interpret import evaluate
from graphc.trace import Builder, Tensor

Array = np.ndarray[Any, np.dtype[Any]]


def traced(
    fn: Callable[..., Any], *arrays: Array, model: nn.Module | None = None, training: bool = False
) -> tuple[Graph, Builder]:
    """The graph of `fn(*arrays)` and its builder; state is named as in `model`."""
    builder = Builder("test")
    builder.training = training
    owner = model or fn
    for name, parameter in owner.named_parameters() if isinstance(owner, nn.Module) else ():
        builder.name_state(parameter.state, name)
    with builder.building():
        types = [Type(a.shape, dtype_name(a.dtype)) for a in arrays]
        inputs: list[Tensor] = [builder.input(f"x{i}", type) for i, type in enumerate(types)]
        results = fn(*inputs)
    outputs = results if isinstance(results, tuple) else (results,)
    graph = builder.graph(outputs)
    verify(graph)
    return graph, builder


def play(graph: Graph, builder: Builder, *arrays: Array) -> tuple[Array, ...]:
    """The outputs of one call; the state's buffers get their new contents."""
    before = {name: buffer.numpy() for name, buffer in builder.buffers.items()}
    outputs, after = evaluate(graph, arrays, before)
    for name, buffer in builder.buffers.items():
        buffer.assign(after[name], name)
    return outputs


def run(module: nn.Module, *arrays: Array, training: bool = False) -> Array:
    """The module's only output."""
    graph, builder = traced(module, *arrays, training=training)
    (output,) = play(graph, builder, *arrays)
    return output


def random(*shape: int, seed: int = 0) -> Array:
    """Standard normal f32[shape]."""
    return np.random.default_rng(seed).standard_normal(shape, np.float32)
