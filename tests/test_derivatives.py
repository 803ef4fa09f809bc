"""Derivatives by the names of JAX: against PyTorch over random functions, and what they take."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest

import graphc
from graphc import nn
from graphc.base.errors import GraphError
from tests.functions.tracing import run
from tests.tools import first_quick, need_module

LINE = r"\(test_derivatives\.py:\d+\)"
X = np.array([0.25, -0.5, 0.75], np.float32)
W = np.array([[1, 2, 0.5], [-1, 0.5, 2]], np.float32)


UNARY: list[Callable[[Any, Any], Any]] = [
    lambda f, x: f.tanh(x),
    lambda f, x: f.sin(x),
    lambda f, x: f.exp(-x * x),
    lambda f, x: f.sigmoid(x) * x,
    lambda f, x: f.softmax(x, -1),
    lambda f, x: f.cumsum(x, -1),
    lambda f, x: f.abs(x) * x,
    lambda f, x: f.where(x > 0, x, 0.5 * x * x),
    lambda f, x: f.concat([x[..., 1:], x[..., :1] * x[..., 1:2]], -1),
    lambda f, x: x / (1 + f.sum(x * x)),
    lambda f, x: f.log(2 + f.cos(x)),
    lambda f, x: f.flip(x, (-1,)) * x,
]
BINARY: list[Callable[[Any, Any, Any], Any]] = [
    lambda f, x, y: x * y,
    lambda f, x, y: x - y * y,
    lambda f, x, y: f.maximum(x, y) * x,
    lambda f, x, y: (x.reshape((1, 3)) @ (y.reshape((3, 1)) * x)).reshape((3,)),
    lambda f, x, y: x / (2 + f.cos(y)),
]


@dataclass(frozen=True)
class Random:
    """A random function of three tensors [3] to a tensor [3], of graphc or PyTorch."""

    seed: int

    def __call__(self, library: Any, *inputs: Any) -> Any:
        draw, values = random.Random(self.seed), list(inputs)
        for _ in range(draw.randint(2, 5)):
            if draw.random() < 0.5:
                values.append(draw.choice(UNARY)(library, draw.choice(values[-2:])))
            else:
                values.append(draw.choice(BINARY)(library, values[-1], draw.choice(values)))
        return values[-1]


@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
@pytest.mark.parametrize("seed", first_quick(12, range(100)))
def test_random_functions_have_the_derivatives_that_torch_gives(seed: int) -> None:
    torch = need_module("torch")
    func, function = need_module("torch.func"), Random(seed)
    arrays = list(np.random.default_rng(seed).standard_normal((5, 3)))

    def ours(*inputs: Any) -> Any:
        return function(graphc, *inputs)

    def theirs(*inputs: Any) -> Any:
        return function(torch, *inputs)

    def all_of(library: Any, fn: Any, x: Any, y: Any, z: Any, v: Any, w: Any) -> list[Any]:
        out, slope = library.jvp(fn, (x, y, z), (v, w, v))
        pulled = library.vjp(fn, x, y, z)[1](v)
        forward, backward = library.jacfwd(fn, (0, 1)), library.jacrev(fn, (1, 2))
        second = library.hessian(lambda a: library.sum(fn(a, y, z) * w))
        both = library.vmap(lambda a: library.jvp(lambda b: fn(b, y, z), (a,), (v,))[1])
        third = library.jacfwd(library.hessian(lambda a: library.sum(fn(a, y, z))))
        return [
            out,
            slope,
            *pulled,
            *forward(x, y, z),
            *backward(x, y, z),
            second(x),
            both(library.stack([x, v])),
            third(x),
        ]

    class Torch:
        def __getattr__(self, name: str) -> Any:
            return getattr(func, name, None) or getattr(torch, name)

    expected = all_of(Torch(), theirs, *map(torch.tensor, arrays))
    specs = [graphc.spec(3, "float64")] * 5
    program = graphc.compile(
        lambda *given: all_of(graphc, ours, *given), *specs, device="reference"
    )
    found = program(*arrays)
    for got, want in zip(found, expected, strict=True):
        np.testing.assert_allclose(got, want.numpy(force=True), rtol=1e-7, atol=1e-9)


def through_loop(x: Any) -> Any:
    def step(carry: Any, element: Any) -> Any:
        carry = graphc.tanh(carry + element * x[0])
        return carry, carry * element

    return graphc.scan(step, 0.0, x)[1]


def unrolled(x: Any) -> Any:
    carry, found = graphc.as_tensor(0.0), []
    for i in range(3):
        carry = graphc.tanh(carry + x[i] * x[0])
        found.append(carry * x[i])
    return graphc.stack(found)


@pytest.mark.parametrize("device", ["reference", "cpu", "sim"])
def test_loops_have_the_derivatives_of_what_they_unroll_to(device: str) -> None:
    def all_of(fn: Callable[..., Any]) -> Callable[..., Any]:
        return lambda x, v: [
            graphc.jvp(fn, (x,), (v,))[1],
            graphc.vjp(fn, x)[1](v)[0],
            graphc.jacfwd(fn)(x),
            graphc.jacrev(fn)(x),
            graphc.hessian(lambda a: graphc.sum(fn(a)))(x),
            graphc.hvp(lambda a: graphc.sum(fn(a) ** 2), (x,), (v,))[0],
        ]

    specs = graphc.spec(3), graphc.spec(3)
    of_loop = graphc.compile(all_of(through_loop), *specs, device=device)(X, X + 1)
    expected = graphc.compile(all_of(unrolled), *specs, device="reference")(X, X + 1)
    for got, want in zip(of_loop, expected, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-6)


class Pair(NamedTuple):
    first: Any
    second: Any


def test_jacobians_have_the_structures_of_outputs_and_arguments() -> None:
    def fn(pair: Pair, scale: Any) -> Any:
        return {"sum": graphc.sum(pair.first), "both": [pair.second * scale]}

    def found(name: str) -> Any:
        def of(a: Any, b: Any) -> Any:
            return getattr(graphc, name)(fn, (0, 1))(Pair(a, b), 3.0)

        return graphc.compile(of, graphc.spec(3), graphc.spec(2), device="reference")(X, X[:2])

    for jacobian in (found("jacfwd"), found("jacrev")):
        of_sum, (of_both,) = jacobian["sum"], jacobian["both"]
        assert isinstance(of_sum[0], Pair)
        np.testing.assert_array_equal(of_sum[0].first, np.ones(3))
        np.testing.assert_array_equal(of_sum[0].second, np.zeros(2))
        np.testing.assert_array_equal(of_both[0].first, np.zeros((2, 3)))
        np.testing.assert_array_equal(of_both[0].second, 3 * np.eye(2))
        np.testing.assert_array_equal(of_both[1], X[:2])


def test_a_module_is_a_dict_of_its_parameters() -> None:
    model = nn.Linear(3, 2)
    change = {"weight": W, "bias": None}

    def fn(model: Any, x: Any) -> Any:
        return (
            graphc.jacrev(lambda m: m(x))(model),
            graphc.jacfwd(lambda m: m(x))(model),
            graphc.jvp(lambda m, x: m(x), (model, x), (change, None))[1],
            graphc.hvp(lambda m: graphc.sum(m(x) ** 2), (model,), (change,))[0],
        )

    rows, columns, slope, product = graphc.compile(fn, model, graphc.spec(3), device="reference")(X)
    eye = np.eye(2, dtype=np.float32)
    np.testing.assert_allclose(rows["weight"], eye[:, :, None] * X, rtol=1e-6)
    for name in rows:
        np.testing.assert_array_equal(rows[name], columns[name])
    np.testing.assert_allclose(slope, W @ X, rtol=1e-6)
    np.testing.assert_allclose(product["weight"], 2 * np.outer(W @ X, X), rtol=1e-5)
    np.testing.assert_allclose(product["bias"], 2 * W @ X, rtol=1e-5)


def test_a_pullback_may_be_called_in_a_vmap_and_in_a_scan() -> None:
    def rows(x: Any) -> Any:
        _, pullback = graphc.vjp(through_loop, x)
        eye = graphc.eye(3)
        by_loop = graphc.scan(lambda c, row: (c, pullback(row)[0]), 0.0, eye)[1]
        _, push = graphc.linearize(through_loop, x)
        pushed = graphc.scan(lambda c, column: (c, push(column)), 0.0, eye)[1]
        return graphc.vmap(pullback)(eye)[0], by_loop, pushed.T, graphc.jacrev(unrolled)(x)

    *found, expected = run(rows, X)
    for got in found:
        np.testing.assert_allclose(got, expected, rtol=1e-5)


def test_what_does_not_depend_on_an_argument_has_zeros() -> None:
    def fn(x: Any) -> Any:
        return graphc.jvp(lambda a: (graphc.ones(2), a, graphc.argmax(a)), (x,), (x,))

    (one, same, place), (zero, slope, none) = graphc.compile(
        fn, graphc.spec(3), device="reference"
    )(X)
    assert none is None and place == 2
    np.testing.assert_array_equal(one, [1, 1])
    np.testing.assert_array_equal(zero, [0, 0])
    np.testing.assert_array_equal(same, X)
    np.testing.assert_array_equal(slope, X)


def test_jacobians_of_nothing_are_empty() -> None:
    empty = np.zeros((0, 2), np.float32)
    for jacobian in (graphc.jacrev, graphc.jacfwd):
        (found,) = run(jacobian(lambda a: a * 2), empty)
        assert found.shape == (0, 2, 0, 2)


def test_a_direction_costs_no_more_than_two_gradients() -> None:
    """What only the first of the two gradients computes is dead code."""

    def layers(w: Any, x: Any) -> Any:
        for _ in range(4):
            x = graphc.tanh(x @ w)
        return x

    def count(fn: Callable[..., Any]) -> int:
        specs = [graphc.spec((8, 8))] * 2
        graph = graphc.compile(fn, *specs, device="reference").stages["clean"]
        return sum(node.op.contracts for node in graph.nodes)

    assert count(layers) == 4
    assert count(lambda w, x: graphc.jvp(layers, (w, x), (None, w))) == 8
    assert count(lambda w, x: graphc.jvp(layers, (w, x), (x, w))) == 12


# fmt: off
MESSAGES: list[tuple[Callable[..., Any], str]] = [
    (lambda x: graphc.jvp(graphc.sin, x, (x,)),
     "jvp: primals expected a tuple, one item for each argument, got Tensor"),
    (lambda x: graphc.jvp(graphc.sin, (x,), (x, x)),
     "jvp: expected 1 tangents, one for each argument, got 2"),
    (lambda x: graphc.jvp(graphc.sin, (x,), (x[:2],)),
     "jvp: the tangent 0: expected f32[3], got f32[2]"),
    (lambda x: graphc.jvp(lambda d: d["a"], ({"a": x},), ({"b": x},)),
     "jvp: the tangent 0: 'a' is missing"),
    (lambda x: graphc.jvp(lambda d: d[0], ([x, x],), (x,)),
     "jvp: the tangent 0: expected list of 2 or None, got Tensor"),
    (lambda x: graphc.jvp(graphc.sin, (x,), ((x, x),)),
     "jvp: the tangent 0: expected f32[3], got tuple of 2"),
    (lambda x: graphc.jvp(lambda a, i: a[i], (x, graphc.argmax(x)), (x, x)),
     "jvp: the tangent 1: expected None for i64[]"),
    (lambda x: graphc.vjp(graphc.sin, x)[1](x[0]),
     "vjp: the gradient of the output: expected f32[3], got f32[]"),
    (lambda x: graphc.vjp(lambda a: (a, a), x)[1]((x, x[0])),
     "vjp: the gradient of the output 1: expected f32[3], got f32[]"),
    (lambda x: graphc.hvp(graphc.sum, (x,), ()),
     "hvp: expected 1 tangents, one for each argument, got 0"),
    (lambda x: graphc.hvp(graphc.sum, (x,), (x[:1],)),
     "hvp: the tangent 0: expected f32[3], got f32[1]"),
    (lambda x: graphc.hvp(graphc.sin, (x,), (x,)),
     "the loss is a scalar of a float dtype, got f32[3]"),
    (lambda x: graphc.jacrev(graphc.argmax)(x),
     "jacrev: expected outputs of a float dtype, got i64[]"),
    (lambda x: graphc.jacfwd(lambda i: x[i])(graphc.argmax(x)),
     "jacfwd: expected arguments of a float dtype, got i64[]"),
    (lambda x: graphc.jacfwd(graphc.sin, 1)(x),
     "argnums: expected 0 to 0, got 1"),
]
# fmt: on


@pytest.mark.parametrize(("fn", "message"), MESSAGES, ids=[m for _, m in MESSAGES])
def test_a_mistake_is_named_with_its_line(fn: Callable[..., Any], message: str) -> None:
    with pytest.raises(GraphError, match=f"^{re.escape(message)} {LINE}$"):
        graphc.trace(fn, graphc.spec(3))
