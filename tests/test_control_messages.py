"""What loops and branches say of mistakes, and running results of associative functions."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import graphc
from graphc.base.errors import GraphError
from graphc.ir import Type
from tests.functions.tracing import run
from tests.test_control_flow import root, scalar

LINE = r"\(test_control_messages\.py:\d+\)"


@pytest.mark.parametrize("n", [0, 1, 2, 3, 7, 8, 13])
def test_running_results_of_an_associative_function(n: int) -> None:
    def join(a: Any, b: Any) -> Any:
        return {"f": a["f"] * b["f"], "x": b["f"] * a["x"] + b["x"]}

    def by_loop(f: Any, x: Any) -> Any:
        def step(h: Any, e: Any) -> Any:
            h = e[0] * h + e[1]
            return h, h

        return graphc.scan(step, graphc.zeros(2), (f, x))[1]

    def all_of(f: Any, x: Any) -> Any:
        found = graphc.associative_scan(join, {"f": f, "x": x})["x"]
        back = graphc.associative_scan(graphc.add, x, reverse=True, axis=-1)
        slope = graphc.grad(
            lambda f: graphc.sum(graphc.associative_scan(join, {"f": f, "x": x})["x"] ** 2)
        )(f)
        expected = by_loop(f, x)
        return (
            found,
            expected,
            back,
            slope,
            graphc.grad(lambda f: graphc.sum(by_loop(f, x) ** 2))(f),
        )

    f, x = np.random.default_rng(n).uniform(-1, 1, (2, n, 2)).astype(np.float32)
    found, expected, back, slope, slope_by_loop = run(all_of, f, x)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(back, np.cumsum(x[:, ::-1], 1)[:, ::-1], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(slope, slope_by_loop, rtol=1e-4, atol=1e-5)


def wrong_while(x: Any) -> Any:
    return graphc.while_loop(lambda c: c > 0, lambda c: graphc.stack([c, c]), x[0], 3)


# fmt: off
MESSAGES: list[tuple[Callable[..., Any], str]] = [
    (lambda x: graphc.while_loop(lambda c: c[0] > 0, lambda c: c, x, 2.5),  # type: ignore[arg-type]
     "while_loop: limit expected a number of iterations, got 2.5"),
    (lambda x: graphc.while_loop(lambda c: c > 0, lambda c: c, x, 2),
     "while_loop: cond_fun expected a bool[], got bool[3]"),
    (wrong_while,
     "while_loop: the carry begins as f32[], the function returns f32[2]"),
    (lambda x: graphc.while_loop(lambda c: c[0] > 0, lambda c: [c[0]], (x[0],), 3),
     "while_loop: the carry begins as ('*',), the function returns ['*']"),
    (lambda x: graphc.scan(lambda c, a: (c, a), x, x, until=3),  # type: ignore[arg-type]
     "scan: until expected a function of the carry, got 3"),
    (lambda x: graphc.scan(lambda c, a: (c, a), x, x, until=lambda c: c[0]),
     "scan: until expected a bool[], got f32[]"),
    (lambda x: graphc.fori_loop(0, graphc.argmax(x), lambda i, c: c, x),
     "fori_loop: bounds that are tensors need limit=, the most iterations"),
    (lambda x: graphc.fori_loop(0, x, lambda i, c: c, x, limit=3),
     "fori_loop: expected bounds i32[] or i64[], got f32[3]"),
    (lambda x: graphc.cond(x > 0, graphc.sin, graphc.cos, x),
     "cond: pred expected a bool[], got bool[3]"),
    (lambda x: graphc.cond(x[0] > 0, lambda: (x, x), lambda: x),
     "cond: true_fun returns ('*', '*'), false_fun returns *"),
    (lambda x: graphc.cond(x[0] > 0, lambda: (x, x), lambda: (x, x[0])),
     "cond: true_fun returns f32[3] at 1, false_fun returns f32[]"),
    (lambda x: graphc.associative_scan(graphc.add, x, axis=1),
     "associative_scan: f32[3] has no axis 1"),
    (lambda x: graphc.associative_scan(lambda a, b: a, (x, x[:2])),
     "associative_scan: expected one size along axis 0, got 0 f32[3], 1 f32[2]"),
    (lambda x: graphc.associative_scan(lambda a, b: graphc.sum(a), x),
     "associative_scan: expected the function to return f32[1], got f32[]"),
    (lambda x: graphc.associative_scan(lambda a, b: (b,), x),
     "associative_scan: expected the function to return *, got ('*',)"),
    (lambda x: graphc.associative_scan(lambda a, b: [b[0], b[0][:0]], [x, x]),
     "associative_scan: expected the function to return f32[1] at 1, got f32[0]"),
]
# fmt: on


@pytest.mark.parametrize(("fn", "message"), MESSAGES, ids=[m for _, m in MESSAGES])
def test_a_mistake_is_named_with_its_line(fn: Callable[..., Any], message: str) -> None:
    with pytest.raises(GraphError, match=f"^{re.escape(message)} {LINE}$"):
        graphc.trace(fn, graphc.spec(3), training=True)


def test_a_guard_is_a_bool() -> None:
    graph = graphc.trace(root, scalar)
    (node,) = (n for n in graph.nodes if n.op.name == "scan")
    body = node.op.body  # type: ignore[attr-defined]

    wrong = replace(node.op, body=replace(body, outputs=(*body.outputs[:-1], body.outputs[1])))
    with pytest.raises(GraphError, match=r"^scan: its guard is a bool\[\], got f32\[\]$"):
        wrong.infer(*(v.type for v in node.inputs))
    made = body.nodes[-1].outputs[0]
    assert made.type == Type((), "bool")
    wrong = replace(node.op, body=replace(body, outputs=(*body.outputs[:-1], made)))
    message = f"scan: its guard is an input of the body, got {made}"
    with pytest.raises(GraphError, match=f"^{re.escape(message)}$"):
        wrong.infer(*(v.type for v in node.inputs))
