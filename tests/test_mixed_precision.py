"""Mixed precision: what is computed in two bytes, and that training is as in float32."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphc
from graphc import nn, optim
from graphc.base.errors import GraphError

DEVICES = ("reference", "cpu", "sim")
RNG = np.random.default_rng(0)
X, Y = (RNG.standard_normal((6, 4, 8)).astype(np.float32) for _ in range(2))
SPEC = graphc.spec((6, 4, 8))


def types(fn: Callable[..., Any], *args: Any, mixed: str = "bfloat16") -> dict[str, str]:
    """The dtype of the last result of each op in the trace of a program."""
    program = graphc.compile(fn, *args, mixed=mixed, device="reference")
    return {n.op.name: n.outputs[0].type.dtype for n in program.stages["trace"].nodes}


def test_products_take_two_bytes_and_sums_float32() -> None:
    w = graphc.spec((8, 8))
    assert types(lambda x, w: graphc.tanh(x @ w), SPEC, w)["tanh"] == "bf16"
    assert types(lambda x, w: graphc.tanh(x @ w), SPEC, w, mixed="float16")["tanh"] == "f16"
    found = types(lambda x, w: graphc.sum(graphc.relu(x @ w)), SPEC, w)
    assert (found["matmul"], found["relu"], found["sum"]) == ("bf16", "bf16", "f32")
    found = types(lambda x, w: graphc.exp(x @ w) + x, SPEC, w)
    assert (found["exp"], found["add"]) == ("f32", "f32")
    assert types(lambda x, w: x @ w + x, SPEC, w)["add"] == "f32"
    assert types(lambda x: graphc.tanh(x), SPEC)["tanh"] == "f32"


def test_losses_and_softmax_give_float32_and_norms_the_dtype_of_their_input() -> None:
    w = graphc.spec((8, 8))

    def probabilities(x: Any, w: Any) -> Any:
        return graphc.abs(graphc.softmax(x @ w))

    def normalized(x: Any, w: Any) -> Any:
        return graphc.abs(graphc.layer_norm(x @ w, 8))

    def loss(x: Any, w: Any) -> Any:
        return graphc.abs(graphc.mse_loss(x @ w, x))

    assert types(probabilities, SPEC, w)["abs"] == "f32"
    assert types(normalized, SPEC, w)["abs"] == "bf16"
    assert types(loss, SPEC, w)["abs"] == "f32"


def test_a_linear_layer_adds_its_bias_before_it_rounds() -> None:
    w, b = RNG.standard_normal((5, 8)).astype(np.float32), RNG.standard_normal(5)
    b = b.astype(np.float32)
    specs = graphc.spec((3, 8)), graphc.spec((5, 8)), graphc.spec(5)
    program = graphc.compile(graphc.linear, *specs, mixed="bfloat16", device="reference")

    def rounded(x: Any) -> Any:
        return graphc.compile(
            lambda x: x.astype("bfloat16").astype("float32"),
            graphc.spec(x.shape),
            device="reference",
        )(x)

    x = X[0, :3]
    found = program(x, w, b)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, rounded(rounded(x) @ rounded(w).T + b))


def test_full_precision_leaves_a_part_in_float32() -> None:
    def f(x: Any, w: Any) -> Any:
        with graphc.full_precision():
            y = x @ w
        return y, y @ w

    w = RNG.standard_normal((8, 8)).astype(np.float32)
    whole, narrow = graphc.compile(f, SPEC, graphc.spec((8, 8)), mixed="bfloat16")(X, w)
    exact, _ = graphc.compile(f, SPEC, graphc.spec((8, 8)))(X, w)
    np.testing.assert_array_equal(whole, exact)
    assert (narrow != exact @ w).any()


def test_integers_and_float64_stay_as_they_are() -> None:
    program = graphc.compile(
        lambda a, b: (a @ a, b @ b),
        graphc.spec((2, 2), "int64"),
        graphc.spec((2, 2), "float64"),
        mixed="float16",
    )
    a, b = np.array([[1, 2], [3, 4]]), np.array([[1.1, 2], [3, 4]])
    integers, doubles = program(a, b)
    np.testing.assert_array_equal(integers, a @ a)
    np.testing.assert_allclose(doubles, b @ b, rtol=1e-15)


class Recurrent(nn.Module):
    """A layer's results for all steps."""

    def __init__(self, kind: str) -> None:
        self.layer = getattr(nn, kind)(8, 8)

    def forward(self, x: Any) -> Any:
        return self.layer(x)[0]


def error_of(model: Any, x: Any, y: Any) -> Any:
    return graphc.mse_loss(model(x), y)


def scanned(model: Any, x: Any, y: Any) -> Any:
    """A recurrence whose carry begins as float32, while the body makes two bytes of it."""

    def step(h: Any, element: Any) -> tuple[Any, Any]:
        h = graphc.tanh(model(h + element))
        return h, h

    return graphc.mse_loss(graphc.scan(step, graphc.zeros((4, 8)), x)[1], y)


def branched(model: Any, x: Any, y: Any) -> Any:
    """Branches of two dtypes, and a loop whose carry is float32."""
    h = graphc.cond(graphc.sum(x) > 0, model, lambda x: 2 * x, x)
    h, _ = graphc.while_loop(lambda s: s[1] < 2, lambda s: (model(s[0]), s[1] + 1), (h, 0), limit=3)
    return graphc.mse_loss(h, y)


def mapped(model: Any, x: Any, y: Any) -> Any:
    return graphc.mean(graphc.vmap(lambda a, b: error_of(model, a, b))(x, y))


def penalized(model: Any, x: Any, y: Any) -> Any:
    """A loss that differentiates: its gradient is a second gradient."""
    loss, slopes = graphc.value_and_grad(error_of)(model, x, y)
    return loss + 0.1 * sum(graphc.sum(graphc.square(g)) for g in slopes.values())


def custom(model: Any, x: Any, y: Any) -> Any:
    product = graphc.custom_vjp(
        lambda a, w: (a @ w, (a, w)),
        lambda known, d: (d @ known[1].T, graphc.sum(known[0].mT @ d, 0)),
    )
    return graphc.mse_loss(product(x, model.weight), y)


def in_chunks(model: Any, x: Any, y: Any) -> Any:
    rows = graphc.reshape(model(x), (24, 8))
    return graphc.linear_cross_entropy(rows, model.weight, np.arange(24) % 8, chunk=8)


CASES: dict[str, tuple[Callable[[], Any], Callable[..., Any]]] = {
    "mlp": (lambda: nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8)), error_of),
    "lstm": (lambda: Recurrent("LSTM"), error_of),
    "gru": (lambda: Recurrent("GRU"), error_of),
    "rnn": (lambda: Recurrent("RNN"), error_of),
    "attention": (lambda: nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0), error_of),
    "scan": (lambda: nn.Linear(8, 8), scanned),
    "branches": (lambda: nn.Linear(8, 8), branched),
    "vmap": (lambda: nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 8)), mapped),
    "second gradient": (lambda: nn.Linear(8, 8), penalized),
    "custom_vjp": (lambda: nn.Linear(8, 8), custom),
    "linear_cross_entropy": (lambda: nn.Linear(8, 8), in_chunks),
}


def losses(name: str, device: str, mixed: str | None) -> list[float]:
    make, loss = CASES[name]
    graphc.seed(0)
    program = graphc.compile(
        loss, make(), SPEC, SPEC, update=optim.SGD(lr=0.1), device=device, mixed=mixed
    )
    return [float(program(X, Y)) for _ in range(3)]


@pytest.mark.parametrize("name", CASES)
def test_training_is_near_float32_and_equal_on_all_devices(name: str) -> None:
    expected = losses(name, "reference", None)
    narrow = losses(name, "reference", "bfloat16")
    assert narrow != expected
    np.testing.assert_allclose(narrow, expected, rtol=3e-3)
    for device in ("cpu", "sim"):
        np.testing.assert_allclose(losses(name, device, "bfloat16"), narrow, rtol=1e-5)


def test_convolutions_of_all_ranks_take_two_bytes() -> None:
    images = {1: (2, 4, 9), 2: (2, 4, 6, 7), 3: (2, 4, 3, 6, 5)}
    for rank, shape in images.items():
        for kind in ("Conv", "ConvTranspose"):
            layer = getattr(nn, f"{kind}{rank}d")(4, 6, 3, padding=1)
            x = RNG.standard_normal(shape).astype(np.float32)
            spec = graphc.spec(shape)
            narrow, exact = (
                graphc.compile(layer, spec, mixed=mixed, device="reference")(x)
                for mixed in ("bfloat16", None)
            )
            assert (narrow != exact).any()
            np.testing.assert_allclose(narrow, exact, atol=0.03)
            trace = graphc.compile(layer, spec, mixed="bfloat16").stages["trace"]
            assert any(v.type.dtype == "bf16" for n in trace.nodes for v in n.outputs)


def test_parameters_and_moments_stay_float32() -> None:
    model, rule = nn.Linear(8, 8), optim.Adam()
    step = graphc.compile(error_of, model, SPEC, SPEC, update=rule, mixed="bfloat16")
    step(X, Y)
    moments = {n: t for n, t in rule.state_types().items() if "weight" in n}
    assert {t.dtype for t in moments.values()} == {"f32"} and model.weight.dtype == "f32"
    assert step.loss_scale is None and step.skipped_steps == 0


class Convolutions(nn.Module):
    """Two convolutions with a batch norm between."""

    def __init__(self) -> None:
        self.first, self.norm = nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16)
        self.second = nn.Conv2d(16, 16, 3, padding=1, bias=False)

    def forward(self, x: Any) -> Any:
        return graphc.mean(self.second(graphc.relu(self.norm(self.first(x)))), (2, 3))


def images_loss(model: Any, x: Any, y: Any) -> Any:
    return graphc.cross_entropy(model(x), y)


def test_work_memory_falls() -> None:
    """Values between layers take half the memory; what backward repeats is not stored as f32."""
    specs = graphc.spec((64, 3, 16, 16)), graphc.spec(64, "int64")
    peaks = [
        graphc.compile(
            images_loss,
            Convolutions(),
            *specs,
            update=optim.SGD(lr=0.1),
            mixed=mixed,
            streams=1,
            device="cpu",
        ).plan.peak_bytes
        for mixed in (None, "bfloat16")
    ]
    assert peaks[1] < 0.8 * peaks[0]


def test_bits_depend_on_neither_streams_nor_threads() -> None:
    x = RNG.standard_normal((20, 3, 9, 9)).astype(np.float32)
    y = np.arange(20) % 16
    found = []
    for streams, threads in ((1, 1), (3, 2)):
        graphc.seed(0)
        model = Convolutions()
        step = graphc.compile(
            images_loss,
            model,
            graphc.spec(x.shape),
            graphc.spec(20, "int64"),
            update=optim.Adam(),
            mixed="float16",
            streams=streams,
            threads=threads,
            device="cpu",
        )
        for _ in range(2):
            step(x, y)
        found.append(model.state_dict())
    for name, array in found[0].items():
        np.testing.assert_array_equal(array, found[1][name], err_msg=name)


def test_sized_programs_keep_the_precision() -> None:
    program = graphc.compile(
        nn.Linear(8, 8), graphc.spec(("batch", 8)), mixed="bfloat16", batch=graphc.Buckets(4, 8)
    )
    assert program(X[0]).dtype == np.float32
    trace = program.at(batch=4).stages["trace"]
    assert any(v.type.dtype == "bf16" for n in trace.nodes for v in n.outputs)


def test_an_unknown_precision_is_named() -> None:
    with pytest.raises(GraphError) as caught:
        graphc.compile(nn.Linear(8, 8), SPEC, mixed="fp16")
    assert str(caught.value).startswith("mixed: expected 'bfloat16', 'float16' or None, got 'fp16'")
