"""Random functions and their gradients, through the passes: every kernel equals its reference."""

from __future__ import annotations

import numpy as np
import pytest

from graphc import functions as f
from graphc.base.errors import GraphError
from graphc.gradients.reverse import gradients
from graphc.ir import FLOATS, Graph, Node, Type
from graphc.passes.pipeline import AFTER_GRADIENT, BEFORE_GRADIENT
from graphc.passes.rewriting.runner import run_passes
from graphc.runtime.compilers.shared_objects import cpu_target
from graphc.trace import Builder, Tensor
from tests.kernels.harness import Built, build

SEEDS = range(30)
SHAPES = ((5, 7), (3, 4, 6, 5), (17, 3, 4, 4), (1, 9), (33, 10), (2, 3, 4), (33, 2, 5, 7))


def weight(*shape: int) -> np.ndarray:
    return np.random.default_rng(3).normal(size=shape).astype(np.float32)


def step(random: np.random.Generator, x: Tensor, y: Tensor) -> Tensor | None:
    """One random operation on x, and perhaps y; None if x has not the axes for it."""
    axis = int(random.integers(0, max(x.ndim, 1)))
    keep = bool(random.integers(0, 2))
    anywhere = (
        lambda: f.exp(x * 0.3),
        lambda: f.relu(x),
        lambda: f.sigmoid(x) * f.tanh(x),
        lambda: x + y * 0.5,
        lambda: x * y,
        lambda: f.where(x > 0.1, x, x * x),
        lambda: f.mean(x),
        lambda: f.reshape(x, (-1,)),
    )
    with_axes = (
        lambda: f.sum(x, axis=axis, keepdims=keep) * 0.3,
        lambda: f.max(x, axis=axis, keepdims=keep),
        lambda: f.softmax(x, axis=axis),
        lambda: f.permute_dims(x, tuple(int(i) for i in random.permutation(x.ndim))),
        lambda: x[::-1],
        lambda: x[..., ::2],
        lambda: x[-3:],
        lambda: f.concat([x, x * 2.0], axis=axis),
        lambda: f.layer_norm(x, (x.shape[-1],)),
        lambda: f.take(x, np.array([0, 0], np.int32), axis=axis),
    )
    images = (
        lambda: f.max_pool2d(x, 2),
        lambda: f.avg_pool2d(x, 2, padding=1),
        lambda: f.flatten(x),
        lambda: f.conv2d(x, weight(4, x.shape[1], 3, 3), padding=1),
    )
    choices = anywhere + with_axes * (x.ndim > 0) + images * 2 * (x.ndim == 4)
    try:
        return choices[int(random.integers(0, len(choices)))]()
    except GraphError:  # the shapes do not fit: another draw will
        return None


def program(seed: int) -> Graph:
    """A few random operations on two inputs, their gradients, and the passes."""
    random = np.random.default_rng(seed)
    shape = SHAPES[int(random.integers(0, len(SHAPES)))]
    builder = Builder(f"random{seed}")
    inputs = [builder.input(name, Type(shape)) for name in "ab"]
    with builder.building():
        values = list(inputs)
        for _ in range(int(random.integers(3, 9))):
            x, y = (values[int(i)] for i in random.integers(0, len(values), 2))
            values += [z for z in (step(random, x, y),) if z is not None]
        loss = sum((f.mean(f.tanh(v)) for v in values[-3:]), start=0.0)
        found = gradients([loss], [f.ones_like(loss)], inputs, builder) if seed % 2 else []
        results = [loss, values[-1] + 1.0, *(g for g in found if g is not None)]
    graph = builder.graph(results)
    for pipeline in (BEFORE_GRADIENT, AFTER_GRADIENT):
        graph = run_passes(graph, cpu_target(), pipeline, lambda *_: None)
    return graph


@pytest.fixture(scope="module")
def kernels() -> list[Built]:
    nodes: list[Node] = []
    for seed in SEEDS:
        nodes += [n for n in program(seed).nodes if n.op.name != "reshape"]
    return build(nodes)


def test_every_kernel_of_random_programs_equals_its_reference(kernels: list[Built]) -> None:
    assert {b.kernel.template for b in kernels} >= {"pointwise", "reduce", "contract"}
    assert len(kernels) > len(SEEDS)
    for built in kernels:
        random = np.random.default_rng(0)
        inputs = [draw(random, v.type) for v in built.node.inputs]
        want = built.node.op.reference(*inputs)
        length = max((v.type.size for v in built.node.inputs), default=1)
        for inplace in (False, True):
            for y, exact in zip(built.run(inputs, inplace=inplace), want, strict=True):
                assert y.shape == exact.shape and y.dtype == exact.dtype
                unit = float(np.finfo(np.float32).eps) if y.dtype.kind == "f" else 0.0
                scale = float(np.max(np.abs(exact), initial=1.0))
                close = 16 * unit * scale + length**0.5 * unit * scale
                message = f"{built.kernel.name}\n{built.kernel.source}"
                np.testing.assert_allclose(y, exact, rtol=32 * unit, atol=close, err_msg=message)


def draw(random: np.random.Generator, kind: Type) -> np.ndarray:
    if kind.dtype in FLOATS:
        return np.asarray(random.normal(size=kind.shape)).astype(kind.numpy_dtype)
    return random.integers(0, 2, kind.shape).astype(kind.numpy_dtype)
