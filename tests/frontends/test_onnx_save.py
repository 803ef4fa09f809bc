"""Modules as ONNX files: the checker accepts them, ONNX Runtime computes the same, and so does what
is loaded again."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphc
from benchmarks.workloads import FOR_CPU
from graphc import nn
from graphc.base.errors import GraphError
from graphc.ir import tree
from tests.frontends.onnx_models import onnx, run
from tests.support.examples import load as load_example
from tests.tools import need_module

runtime = need_module("onnxruntime")
S = graphc.spec
HEAVY = ("resnet50", "h1024", "h256", "b1000", "resnet18-b8", "gpt4-b8", "pw-")


class Of(nn.Module):
    """A workload's forward pass with its own weights."""

    def __init__(self, workload: Any, data: Any) -> None:
        self.workload = workload
        for name, array in (data.parameters | data.statistics).items():
            vars(self)[name] = nn.Parameter(array)

    def forward(self, x: Any) -> Any:
        names = dict(self.named_parameters())
        return self.workload.forward(graphc, names, x, False)


def filled(spec: Any, seed: int) -> Any:
    random = np.random.default_rng(seed)
    if spec.dtype.startswith("f"):
        return random.standard_normal(spec.shape).astype(spec.numpy_dtype)
    return random.integers(0, 2, spec.shape).astype(spec.numpy_dtype)


def results(found: Any) -> list[Any]:
    if isinstance(found, tuple | list):
        return [array for part in found for array in results(part)]
    return [found]


def check(source: Any, *arrays: Any, path: Path, again: bool = True) -> None:
    """The file is accepted, and computes what the reference computes; loaded, it does too."""
    import graphc.onnx

    graphc.onnx.save(source, path, *arrays)
    model = onnx.load(path)
    onnx.checker.check_model(model, full_check=True)
    options = runtime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 3
    session = runtime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_inputs()]
    flat = results(arrays)
    found = session.run(None, dict(zip(names, flat, strict=True)))
    expected = results(run(source, *arrays))
    compare(found, expected)
    if again:
        loaded = graphc.onnx.load(path)
        compare(results(run(loaded, *flat)), expected)
        if isinstance(source, nn.Module):
            own = {name: p.shape for name, p in source.named_parameters() if p.dtype == "f32"}
            assert {name: p.shape for name, p in loaded.named_parameters()}.items() <= own.items()


def compare(found: list[Any], expected: list[Any]) -> None:
    assert len(found) == len(expected)
    for a, b in zip(found, expected, strict=True):
        assert a.dtype == b.dtype
        scale = float(np.abs(b).max(initial=0)) if b.dtype.kind == "f" else 0.0
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5 * max(scale, 1e-3))


slow = pytest.mark.slow


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=slow if any(h in n for h in HEAVY) else ()) for n in FOR_CPU],
)
def test_a_workload(name: str, tmp_path: Path) -> None:
    workload = FOR_CPU[name]
    data = workload.data()
    check(Of(workload, data), data.x, path=tmp_path / "model.onnx", again="resnet" not in name)


EXAMPLES: dict[str, tuple[str, tuple[Any, ...], tuple[Any, ...]]] = {
    "char_lstm": (
        "Writer",
        (16,),
        (S((7, 3), "int32"), (S((2, 3, 16)), S((2, 3, 16)))),
    ),
    "digits": ("LeNet", (), (S((5, 1, 28, 28)),)),
    "inspect_stages": ("Net", (), (S((4, 1, 12, 12)),)),
    "mlp": ("MLP", (), (S((6, 2)),)),
    "own_layer": ("Model", (), (S((6, 8)),)),
    "two_streams": ("Net", (), (S((4, 1, 28, 28)),)),
    "vmap": ("Net", (), (S((6, 1)),)),
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_model_of_an_example(name: str, tmp_path: Path) -> None:
    kind, arguments, specs = EXAMPLES[name]
    model = getattr(load_example(name), kind)(*arguments)
    arrays = tree.map_leaves(lambda path, spec: filled(spec, len(path)), specs)
    check(model, *arrays, path=tmp_path / "model.onnx")


class Recurrent(nn.Module):
    """Layers in both directions, over sequences that end apart."""

    def __init__(self, layer: Any) -> None:
        self.layer = layer(3, 4, num_layers=2, bidirectional=True)

    def forward(self, x: Any, lengths: Any) -> Any:
        return self.layer(x, None, lengths)


@pytest.mark.parametrize("layer", [nn.RNN, nn.LSTM, nn.GRU])
def test_recurrent_layers_are_a_scan(layer: Any, tmp_path: Path) -> None:
    x = filled(S((6, 2, 3)), 0)
    check(Recurrent(layer), x, np.array([6, 3]), path=tmp_path / "model.onnx")
    names = [node.op_type for node in onnx.load(tmp_path / "model.onnx").graph.node]
    assert names.count("Scan") == 4


X, V, P = S((3, 4)), S((5,)), filled(S((3, 4)), 1) ** 2 + 0.1
FUNCTIONS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    name: (getattr(graphc, name), (P + 1 if name in ("acosh", "log", "rsqrt", "sqrt") else X,))
    for name in (
        "abs acosh asinh atan ceil cos cosh erf erfc exp exp2 expm1 floor log log1p rsqrt "
        "isnan negative relu round sigmoid sign signbit sin sinh sqrt square tan tanh trunc gelu "
        "silu softplus mish hardswish softmax log_softmax tril triu argmax argsort flip"
    ).split()
} | {
    name: (getattr(graphc, name), (X, P))
    for name in (
        "add subtract multiply divide maximum minimum hypot copysign fmod remainder floor_divide "
        "less less_equal greater greater_equal equal not_equal pow"
    ).split()
}
FUNCTIONS |= {
    "log1p": (graphc.log1p, (P,)),
    "cumsum": (lambda x: graphc.cumsum(graphc.flip(graphc.cumsum(x, 0)), 1), (X,)),
    "pow": (graphc.pow, (P, X)),
    "integers": (
        lambda i, j: (i // j, i % j, i & j, i | j, ~i, graphc.fmod(i, j), i < j),
        (np.array([-7, 7, 5]), np.array([3, -3, 5])),
    ),
    "casts": (lambda x: (x.astype("int32"), x > 0, (x > 0).astype("float64")), (X,)),
    "reductions": (
        lambda x: (graphc.sum(x, axis=1), graphc.max(x), graphc.min(x, axis=0), graphc.prod(x)),
        (X,),
    ),
    "shapes": (lambda x: graphc.concat([x[:, ::-1], x[1:, 1:3].T.reshape(1, 4)]), (X,)),
    "padded between": (lambda x: graphc.pad(x, 2, 1.5), (X,)),
    "taken": (
        lambda x, i: (graphc.take(x, i, 1), x[i - 3], graphc.take_along_axis(x, i[None], 1)),
        (X, np.array([3, 0, 2, 7])),
    ),
    "scattered": (
        lambda x, i: (graphc.scatter_add(x, 0, i, x * 2), graphc.scatter(x, 1, i, x)),
        (X, np.array([[2, 1, 0, 9], [1, 2, 2, 0], [0, 0, 1, 2]])),
    ),
    "sorted": (lambda x: (graphc.sort(x, 1), *graphc.topk(x, 2, 0)), (X,)),
    "one hot": (lambda i: graphc.one_hot(i, 5), (np.array([4, 0, 2]),)),
    "convolved": (
        lambda x, w: graphc.conv2d(x, w, None, (2, 1), (1, 2), (1, 2), 2),
        (S((2, 4, 7, 8)), S((6, 2, 3, 3))),
    ),
    "transposed": (
        lambda x, w: graphc.conv_transpose2d(x, w, None, 2, 1, 1, 2),
        (S((2, 4, 5, 4)), S((4, 3, 3, 3))),
    ),
    "pooled": (
        lambda x: (graphc.avg_pool2d(x, 3, 2, 1), graphc.max_pool2d(x, 2, ceil_mode=True)),
        (S((1, 2, 7, 7)),),
    ),
    "attention": (
        lambda q, k, m: (
            graphc.scaled_dot_product_attention(q, k, k, is_causal=True, enable_gqa=True),
            graphc.scaled_dot_product_attention(q, q, q, m),
        ),
        (S((2, 4, 5, 6)), S((2, 2, 5, 6)), S((5, 5))),
    ),
    "gradient": (
        graphc.grad(lambda x, w: graphc.sum(graphc.relu(x @ w) ** 2)),
        (S((3, 4)), S((4, 5))),
    ),
    "constants": (lambda x: (x, x, graphc.arange(4) + x, graphc.ones((2,))), (X,)),
    "loop without elements": (
        lambda x: graphc.scan(lambda c, _: (c * 1.5, c), x, length=4, reverse=True),
        (X,),
    ),
}


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if i % 3 == 0 else slow) for i, n in enumerate(FUNCTIONS)]
)
def test_functions(name: str, tmp_path: Path) -> None:
    function, given = FUNCTIONS[name]
    arrays = [a if isinstance(a, np.ndarray) else filled(a, i) for i, a in enumerate(given)]
    check(function, *arrays, path=tmp_path / "model.onnx")


def refusal(*arguments: Any) -> str:
    import graphc.onnx

    with pytest.raises(GraphError) as caught:
        graphc.onnx.save(*arguments)
    return re.sub(r" \(test_onnx_save\.py:\d+\)$", "", str(caught.value))


def test_a_graph_without_state_is_written_as_it_is(tmp_path: Path) -> None:
    import graphc.onnx

    path = tmp_path / "model.onnx"
    graph = graphc.trace(lambda x: x * 2, X)
    graphc.onnx.save(graph, path)
    x = filled(X, 0)
    np.testing.assert_array_equal(run(graphc.onnx.load(path), x), x * 2)
    with_state = graphc.trace(nn.Linear(4, 2), X)
    message = "onnx.save: a graph with state has no values: give the module"
    assert refusal(with_state, path) == message


def test_what_cannot_be_written(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    norm = nn.BatchNorm2d(2).train()
    assert refusal(norm, path, S((2, 2, 3, 3))).startswith(
        "onnx.save: an ONNX model changes no state, but this one updates num_batches_tracked, "
        "running_mean, running_var"
    )
    found = refusal(lambda x: graphc.digamma(graphc.lgamma(x)) + graphc.lgamma(x), path, X)
    assert re.sub(r"test_onnx_save.py:\d+", "LINE", found) == (
        "onnx.save: function has ops that are not offered\n  lgamma (2): LINE, LINE\n  "
        "digamma (1): LINE"
    )
    places = refusal(lambda x: graphc.max_pool2d(x, 2, return_indices=True), path, S((1, 1, 4, 4)))
    assert places == "onnx.save: places in windows of max_pool2d are not offered"

    assert not path.exists()
    nowhere = tmp_path / "none" / "model.onnx"
    message = f"onnx.save: cannot write {nowhere}: No such file or directory"
    assert refusal(lambda x: x + 1, nowhere, X) == message
