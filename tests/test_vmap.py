"""vmap of whole functions: with gradients, loops, modules, random numbers, and itself."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphc
from graphc import nn, optim
from graphc.base.errors import GraphError
from graphc.ops.base import REGISTRY, Op, View
from graphc.ops.loops.scan import Scan
from graphc.runtime.plan.plan import Launch
from graphc.trace import emit
from tests.functions.tracing import run
from tests.tools import need_command

Array = np.ndarray


def normal(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def on_reference(fn: Callable[..., Any], *args: Any, **options: Any) -> graphc.Program:
    return graphc.compile(fn, *args, device="reference", **options)


class Net(nn.Module):
    """A recurrent network with a dense end."""

    def __init__(self, hidden: int = 4):
        self.lstm, self.fc = nn.LSTM(3, hidden), nn.Linear(hidden, 2)

    def forward(self, x):
        return self.fc(self.lstm(x)[0][-1])


def squares(model: Any, x: Any, y: Any) -> Any:
    return graphc.mean((model(x) - y) ** 2)


def test_axes_of_arguments_and_results_may_be_any() -> None:
    def weighed(parts: Any, scale: Any, w: Any) -> Any:
        return {"sum": parts["a"] + parts["b"] * scale, "w": w * 2, "both": (parts["a"] @ w,)}

    a, b, scale, w = normal(3, 5), normal(5, 4, seed=1), normal(5, seed=2), normal(3, seed=3)

    def flat(a: Any, b: Any, scale: Any, w: Any) -> Any:
        axes = ({"a": 1, "b": 0}, -1, None)
        out = {"sum": (0), "w": None, "both": (0,)}
        found = graphc.vmap(lambda p, s, w: weighed(p, s, w), axes, out)(
            {"a": a, "b": b[:, :3]}, scale, w
        )
        return found["sum"], found["w"], found["both"][0]

    total, twice, product = run(flat, a, b, scale, w)
    np.testing.assert_allclose(total, a.T + b[:, :3] * scale[:, None], rtol=1e-6)
    np.testing.assert_allclose(twice, w * 2)
    np.testing.assert_allclose(product, a.T @ w, rtol=1e-5)


def test_results_have_their_samples_where_out_axes_says() -> None:
    (got,) = run(graphc.vmap(lambda x: x * 2, 0, -1), normal(4, 2, 3))
    np.testing.assert_array_equal(got, np.moveaxis(normal(4, 2, 3) * 2, 0, -1))
    (got,) = run(graphc.vmap(lambda x: graphc.ones((2,)), 0, 1), normal(4))
    np.testing.assert_array_equal(got, np.ones((2, 4)))


def test_keywords_are_mapped_along_their_first_axis() -> None:
    def both(x: Any, y: Any) -> Any:
        return graphc.vmap(lambda x, *, y: graphc.sum(x * y))(x, y=y)

    (got,) = run(both, normal(4, 3), normal(4, 3, seed=1))
    np.testing.assert_allclose(got, (normal(4, 3) * normal(4, 3, seed=1)).sum(1), rtol=1e-5)


def test_vmap_of_vmap_is_every_pair() -> None:
    def pairs(x: Any, y: Any) -> Any:
        return graphc.vmap(lambda a: graphc.vmap(lambda b: graphc.sum(a * b))(y))(x)

    x, y = normal(4, 3), normal(5, 3, seed=1)
    (got,) = run(pairs, x, y)
    np.testing.assert_allclose(got, x @ y.T, rtol=1e-5)


def test_the_jacobian_is_a_gradient_for_each_row_of_ones() -> None:
    w = normal(4, 3)

    def jacobian(x: Any) -> Any:
        def row(one: Any) -> Any:
            return graphc.grad(lambda x: graphc.sum(graphc.tanh(x @ w) * one))(x)

        return graphc.vmap(row)(graphc.eye(3))

    (got,) = run(jacobian, normal(4, seed=1))
    slope = 1 - np.tanh(normal(4, seed=1) @ w) ** 2
    np.testing.assert_allclose(got, slope[:, None] * w.T, rtol=1e-5)


def test_the_hessian_is_that_of_the_gradient() -> None:
    def hessian(x: Any) -> Any:
        gradient = graphc.grad(lambda x: graphc.sum(x**3) + x[0] * x[1])
        return graphc.vmap(lambda one: graphc.grad(lambda x: graphc.sum(gradient(x) * one))(x))(
            graphc.eye(3)
        )

    (got,) = run(hessian, np.array([1.0, 2.0, 3.0], np.float32))
    np.testing.assert_allclose(got, np.diag([6.0, 12, 18]) + np.eye(3)[[1, 0, 2]] * [[1], [1], [0]])


def test_the_gradient_of_vmap_is_that_of_a_sum_over_samples() -> None:
    def through(x: Any, w: Any) -> Any:
        return graphc.grad(lambda w: graphc.sum(graphc.vmap(lambda r: graphc.tanh(w @ r))(x)))(w)

    x, w = normal(5, 3), normal(2, 3, seed=1)
    (got,) = run(through, x, w)
    np.testing.assert_allclose(got, ((1 - np.tanh(w @ x.T) ** 2) @ x), rtol=1e-4)


def test_gradients_of_each_sample_are_those_of_the_function_alone() -> None:
    model = Net()
    x, y = normal(6, 5, 3), normal(6, 2, seed=1)
    specs = graphc.spec(x.shape), graphc.spec(y.shape)
    alone = graphc.value_and_grad(squares)
    each = on_reference(graphc.vmap(alone, (None, 0, 0)), model, *specs)
    one = on_reference(alone, model, graphc.spec(x.shape[1:]), graphc.spec(y.shape[1:]))
    losses, slopes = each(x, y)
    for i in range(6):
        loss, expected = one(x[i], y[i])
        np.testing.assert_allclose(losses[i], loss, rtol=1e-5)
        for name, slope in expected.items():
            np.testing.assert_allclose(slopes[name][i], slope, rtol=1e-3, atol=1e-6)


def test_gradients_of_each_sample_are_written_once() -> None:
    """The gradient of a dense layer's weight is an outer product for each sample: one kernel that
    writes it, in as many launches as the gradient of their sum."""
    model = nn.Sequential(nn.Linear(12, 16), nn.ReLU(), nn.Linear(16, 10))

    def loss(model: Any, x: Any, y: Any) -> Any:
        return graphc.sum((model(x) - y) ** 2)

    specs = graphc.spec((32, 12)), graphc.spec((32, 10))
    alone = on_reference(graphc.grad(loss), model, *specs)
    each = on_reference(graphc.vmap(graphc.grad(loss), (None, 0, 0)), model, *specs)
    kernels = [n for n in each.graph.nodes if hasattr(n.op, "body")]
    assert len(kernels) <= len([n for n in alone.graph.nodes if hasattr(n.op, "body")])
    weights = [n for n in kernels for v in n.outputs if v.type.size >= 32 * 10 * 16]
    assert len(weights) == 2
    for node in weights:
        assert [n.op.name for n in _body(node) if not isinstance(n.op, View)] == ["multiply"]


def test_a_loop_over_samples_of_which_only_the_carry_differs() -> None:
    def last(start: Any, xs: Any) -> Any:
        def power(s: Any) -> Any:
            return graphc.scan(lambda c, x: ((c[0] * x, c[1] + 1), (c[0], x)), (s, 0), xs)

        return graphc.vmap(power)(start)

    def flat(start: Any, xs: Any) -> Any:
        (carry, count), (stack, same) = last(start, xs)
        return carry, count, stack, same

    start, xs = normal(4), normal(3, seed=1)
    carry, count, stack, same = run(flat, start, xs)
    powers = start[:, None] * np.concatenate([[1], np.cumprod(xs)])
    np.testing.assert_allclose(stack, powers[:, :3], rtol=1e-5)
    np.testing.assert_allclose(carry, powers[:, 3], rtol=1e-5)
    np.testing.assert_array_equal(count, [3] * 4)
    np.testing.assert_array_equal(same, [xs] * 4)


def test_vmap_within_a_loop() -> None:
    def steps(start: Any, xs: Any) -> Any:
        def step(carry: Any, x: Any) -> Any:
            new = graphc.vmap(lambda c: graphc.tanh(c * x))(carry)
            return new, graphc.grad(lambda x: graphc.sum(graphc.vmap(lambda c: c * x)(carry)))(x)

        return graphc.scan(step, start, xs)

    start, xs = normal(4), normal(3, seed=1)
    last, slopes = run(steps, start, xs)
    for x, slope in zip(xs, slopes, strict=True):
        np.testing.assert_allclose(slope, start.sum(), rtol=1e-5)
        start = np.tanh(start * x)
    np.testing.assert_allclose(last, start, rtol=1e-5)


def test_the_gradient_inside_a_loop_of_what_is_outside_it() -> None:
    def slopes(w: Any, xs: Any) -> Any:
        step = lambda c, x: (c, graphc.grad(lambda w: graphc.sum(w * w * x))(w))  # noqa: E731
        return graphc.scan(step, graphc.zeros(()), xs)[1]

    (got,) = run(slopes, np.float32(3.0), normal(4))
    np.testing.assert_allclose(got, 6 * normal(4), rtol=1e-6)


def test_a_backward_loop_repeats_the_forward_one_for_all_samples() -> None:
    """The gradient's loop reads the forward one's stacks, so that it need not compute their values
    again."""
    x, y = graphc.spec((6, 5, 8, 3)), graphc.spec((6, 8, 2))
    model = Net()
    program = on_reference(graphc.vmap(graphc.grad(squares), (None, 0, 0)), model, x, y)
    traced = [n for n in program.stages["trace"].nodes if isinstance(n.op, Scan)]
    assert len(traced) == 2
    assert set(traced[0].outputs) & set(traced[1].inputs)
    scans = [n.op for n in program.graph.nodes if isinstance(n.op, Scan)]
    sigmoids = [sum(n.op.name == "sigmoid" for k in s.body.nodes for n in _body(k)) for s in scans]
    assert sigmoids == [3, 0]


def _body(node: Any) -> Any:
    return node.op.body.nodes if hasattr(node.op, "body") else (node,)


def test_many_models_are_trained_as_one() -> None:
    models = [Net() for _ in range(3)]
    x, y = normal(3, 5, 8, 3), normal(8, 2, seed=1)
    together = nn.stack_modules(models)

    def total(models: Any, x: Any, y: Any) -> Any:
        return graphc.sum(graphc.vmap(squares, (0, 0, None))(models, x, y))

    specs = graphc.spec(x.shape), graphc.spec(y.shape)
    train = on_reference(total, together, *specs, update=optim.Adam(lr=0.01))
    losses = [train(x, y) for _ in range(4)]
    singly = np.zeros(4)
    for i, model in enumerate(models):
        own = on_reference(
            squares, model, graphc.spec(x.shape[1:]), specs[1], update=optim.Adam(lr=0.01)
        )
        singly += [own(x[i], y) for _ in range(4)]
    np.testing.assert_allclose(losses, singly, rtol=1e-4)
    for model, found in zip(models, nn.unstack_modules(together), strict=True):
        for name, array in model.state_dict().items():
            np.testing.assert_allclose(found.state_dict()[name], array, rtol=1e-3, atol=1e-5)


@pytest.mark.slow
def test_64_lstms_are_one_program_of_as_many_launches_as_two() -> None:
    need_command("g++", "clang++")

    def total(models: Any, x: Any, y: Any) -> Any:
        return graphc.sum(graphc.vmap(squares, (0, None, None))(models, x, y))

    x, y = normal(12, 16, 3), normal(16, 2, seed=1)
    specs = graphc.spec(x.shape), graphc.spec(y.shape)
    models = [Net(16) for _ in range(64)]
    together = nn.stack_modules(models)
    few = nn.stack_modules(models[:2])
    rule = {"update": optim.SGD(lr=0.1), "device": "cpu"}
    train = graphc.compile(total, together, *specs, **rule)
    for _ in range(5):
        train(x, y)
    for model in models:
        own = graphc.compile(squares, model, *specs, **rule)
        for _ in range(5):
            own(x, y)
    for model, found in zip(models, nn.unstack_modules(together), strict=True):
        for name, array in model.state_dict().items():
            np.testing.assert_allclose(found.state_dict()[name], array, rtol=1e-3, atol=1e-5)
    of_two = graphc.compile(total, few, *specs, **rule)
    counts = [sum(isinstance(s, Launch) for s in p.plan.steps) for p in (train, of_two)]
    assert counts[0] == counts[1]


class Filters(nn.Module):
    """Convolutions, pooling, a norm, an embedding and attention over places."""

    def __init__(self):
        self.conv, self.norm = nn.Conv2d(2, 4, 3, padding=1), nn.GroupNorm(2, 4)
        self.names, self.attend = nn.Embedding(5, 4), nn.MultiheadAttention(4, 2, batch_first=True)

    def forward(self, image, name):
        x = graphc.max_pool2d(graphc.relu(self.norm(self.conv(image))), 2)
        x = graphc.permute_dims(graphc.reshape(x, (*x.shape[:2], -1)), (0, 2, 1))
        x = x + graphc.expand_dims(self.names(name), 1)
        return self.attend(x, x, x)[0]


@pytest.mark.parametrize("device", ["cpu", "sim"])
@pytest.mark.parametrize("mapped", [0, None])
def test_kernels_compute_what_the_reference_does(mapped: int | None, device: str) -> None:
    """Gradients of each sample, and of each of some models."""
    need_command("g++", "clang++")
    model = Filters() if mapped is None else nn.stack_modules([Filters() for _ in range(3)])
    images = normal(3, 2, 2, 6, 6)
    names = np.random.default_rng(0).integers(0, 5, (3, 2)).astype(np.int32)

    def loss(model: Any, image: Any, name: Any) -> Any:
        return graphc.sum(graphc.square(model(image, name)))

    each = graphc.vmap(graphc.grad(loss), (mapped, 0, 0))
    specs = graphc.spec(images.shape), graphc.spec(names.shape, "int32")
    expected = on_reference(each, model, *specs)(images, names)
    got = graphc.compile(each, model, *specs, device=device)(images, names)
    for name, slope in expected.items():
        np.testing.assert_allclose(got[name], slope, rtol=1e-3, atol=1e-4)


def test_running_statistics_of_mapped_models_are_updated() -> None:
    norms = nn.stack_modules([nn.BatchNorm1d(3) for _ in range(2)])
    x = normal(2, 8, 3)
    program = on_reference(
        graphc.vmap(lambda norm, x: norm(x)), norms, graphc.spec(x.shape), training=True
    )
    program(x)
    np.testing.assert_allclose(norms.running_mean.numpy(), 0.1 * x.mean(1), rtol=1e-4, atol=1e-6)


def test_each_sample_drops_what_one_draw_of_all_says() -> None:
    dropped = graphc.vmap(lambda x: graphc.dropout(x, 0.5, training=True))
    program = on_reference(dropped, graphc.spec((4, 64)), seed=5)
    drop = lambda x: graphc.dropout(x, 0.5, training=True)  # noqa: E731
    whole = on_reference(drop, graphc.spec((4, 64)), seed=5)
    x = np.ones((4, 64), np.float32)
    first = program(x)
    np.testing.assert_array_equal(first, whole(x))
    assert len({row.tobytes() for row in first}) == 4
    assert not np.array_equal(first, program(x))


def test_random_numbers_that_no_sample_asks_for_differ_too() -> None:
    drawn = on_reference(graphc.vmap(lambda x: graphc.rand((5,))), graphc.spec((3,)))
    assert len(np.unique(drawn(np.zeros(3, np.float32)))) == 15


def test_an_op_without_a_rule_is_computed_for_one_sample_after_the_other() -> None:
    class Halves(Op):
        name = "halves"

        def infer(self, *inputs: Any) -> Any:
            return inputs

        def reference(self, *inputs: Array) -> tuple[Array, ...]:
            return tuple(np.sort(x)[::-1] / 2 for x in inputs)

    try:
        (got,) = run(graphc.vmap(lambda x: emit(Halves(), x)), normal(4, 3))
    finally:
        REGISTRY.pop("halves")
    np.testing.assert_array_equal(got, np.sort(normal(4, 3), 1)[:, ::-1] / 2)


# fmt: off
MISTAKES: list[tuple[Callable[..., Any], str]] = [
    (lambda x, y: graphc.vmap(lambda a, b: a + b)(x, y),
     "vmap: expected one number of samples, got 0 3, 1 4"),
    (lambda x, y: graphc.vmap(lambda a: a, 2)(x),
     "vmap: axis 2 is out of range for 0 f32[3,5]"),
    (lambda x, y: graphc.vmap(lambda a: a, None)(x),
     "vmap: in_axes maps no argument"),
    (lambda x, y: graphc.vmap(lambda a, b: a, (0,))(x, y),
     "vmap: in_axes expected axes for 2 items, got (0,)"),
    (lambda x, y: graphc.vmap(lambda a: a, ((0, 0),))(x),
     "vmap: in_axes at 0 expected an axis or None, got (0, 0)"),
    (lambda x, y: graphc.vmap(lambda a: a, ({"b": 0},))({"a": x}),
     "vmap: in_axes at 0 expected axes for a, got {'b': 0}"),
    (lambda x, y: graphc.vmap(lambda a: a, "0")(x),
     "vmap: in_axes expected an axis or None, got '0'"),
    (lambda x, y: graphc.vmap(lambda a: a, 0, 2)(x),
     "vmap: out_axes 2 is out of range for the result, f32[5] for each sample"),
    (lambda x, y: graphc.vmap(lambda a: (a, a), 0, (0, None))(x),
     "vmap: out_axes is None for the result at 1, which samples change"),
    (lambda x, y: graphc.vmap(lambda a: a)(x[:0]),
     "vmap: 0 has no samples"),
    (lambda x, y: graphc.vmap(lambda a: nn.BatchNorm1d(1)(a[:, None]))(x),
     "vmap: its function expected no side effects, got an update of state that differs from sample "
     "to sample (running statistics of a norm layer?)"),
]
# fmt: on


@pytest.mark.parametrize(("function", "message"), MISTAKES, ids=[m for _, m in MISTAKES])
def test_mistakes_are_named(function: Callable[..., Any], message: str) -> None:
    with pytest.raises(GraphError, match=rf"^{re.escape(message)} \(test_vmap\.py:\d+\)$"):
        run(function, normal(3, 5), normal(4, 5), training=True)
