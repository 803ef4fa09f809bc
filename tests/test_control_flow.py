"""Loops that end by what they compute, and branches: values, gradients, samples, devices."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import graphc
from graphc import nn, optim
from graphc.runtime.plan.plan import Loop
from tests.functions.tracing import run
from tests.tools import first_quick, need_module

DEVICES = ("reference", "cpu", "sim")
X = np.array([0.25, -0.5, 0.75], np.float32)
scalar = graphc.spec(())


def halved(x: Any) -> Any:
    """(x halved until it is at most 1, how often)."""
    return graphc.while_loop(
        lambda s: s["x"] > 1, lambda s: {"x": s["x"] / 2, "n": s["n"] + 1}, {"x": x, "n": 0}, 20
    )


def root(a: Any) -> Any:
    """The square root by Newton's method, in as many steps as it needs."""
    return graphc.while_loop(
        lambda y: graphc.abs(y * y - a) > 1e-3 * a, lambda y: (y + a / y) / 2, a, limit=6
    )


def log_or_less(x: Any) -> Any:
    return graphc.cond(x > 0, graphc.log, lambda x: x - 1, x)


@pytest.mark.parametrize("device", DEVICES)
def test_a_loop_ends_when_its_condition_is_false(device: str) -> None:
    def all_of(x: Any, many: Any) -> Any:
        return (
            halved(x),
            graphc.vmap(halved)(many),
            graphc.grad(lambda a: halved(a)["x"])(x),
            graphc.vmap(graphc.grad(lambda a: halved(a)["x"] ** 2))(many),
            graphc.grad(lambda a: graphc.sum(graphc.vmap(halved)(a)["x"] ** 2))(many),
        )

    many = np.array([0.5, 3, 40], np.float32)
    program = graphc.compile(all_of, scalar, graphc.spec(3), device=device)
    one, each, slope, *slopes = program(np.float32(12), many)
    assert one["x"] == 0.75 and one["n"] == 4 and slope == 1 / 16
    np.testing.assert_array_equal(each["x"], [0.5, 0.75, 0.625])
    np.testing.assert_array_equal(each["n"], [0, 2, 6])
    for found in slopes:
        np.testing.assert_allclose(found, 2 * each["x"] / 2.0 ** each["n"])


def test_a_loop_may_run_never_or_up_to_its_limit() -> None:
    program = graphc.compile(
        lambda x, n: [
            graphc.while_loop(lambda c: c < n, lambda c: c + x, 0.0, limit) for limit in (0, 1, 5)
        ],
        scalar, scalar, device="reference",
    )  # fmt: skip
    assert [float(y) for y in program(np.float32(2), np.float32(0))] == [0, 0, 0]
    assert [float(y) for y in program(np.float32(2), np.float32(3))] == [0, 2, 4]
    assert [float(y) for y in program(np.float32(2), np.float32(100))] == [0, 2, 10]


@pytest.mark.parametrize("device", DEVICES)
def test_a_branch_that_is_not_taken_has_no_part_in_results_and_gradients(device: str) -> None:
    def all_of(x: Any, many: Any) -> Any:
        slope = graphc.grad(log_or_less)
        return (
            log_or_less(x),
            slope(x),
            graphc.grad(slope)(x),
            graphc.vmap(log_or_less)(many),
            graphc.vmap(slope)(many),
            graphc.grad(lambda a: graphc.sum(graphc.vmap(log_or_less)(a)))(many),
        )

    program = graphc.compile(all_of, scalar, graphc.spec(3), device=device)
    many = np.array([2, -4, 0], np.float32)
    y, slope, second, each, *slopes = program(np.float32(0.5), many)
    np.testing.assert_allclose([y, slope, second], [np.log(0.5), 2, -4], rtol=1e-6)
    np.testing.assert_allclose(each, [np.log(2), -5, -1], rtol=1e-6)
    for found in slopes:
        np.testing.assert_array_equal(found, [0.5, 1, 1])
    y, slope, second, *_ = program(np.float32(0), many)
    assert (y, slope, second) == (-1, 1, 0)  # log(0) and its gradients are not finite


class Pair(NamedTuple):
    first: Any
    second: Any


def test_branches_take_trees_and_modules_and_return_trees() -> None:
    model = nn.Linear(3, 2)

    def either(p: Any, model: Any, x: Any) -> Any:
        def one(model: Any, pair: Pair, name: str) -> Any:
            return {name: model(pair.first), "rest": Pair(graphc.argmax(pair.second), None)}

        def other(model: Any, pair: Pair, name: str) -> Any:
            return {name: pair.second[:2], "rest": Pair(graphc.as_tensor(7), None)}

        return graphc.cond(p, one, other, model, Pair(x, 2 * x), "y")

    program = graphc.compile(either, graphc.spec((), "bool"), model, graphc.spec(3))
    expected = model.weight.numpy() @ X + model.bias.numpy()
    found, rest = program(np.bool_(True), X).values()
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert rest.first == 2 and rest.second is None
    found, rest = program(np.bool_(False), X).values()
    np.testing.assert_array_equal(found, 2 * X[:2])
    assert rest.first == 7


@pytest.mark.parametrize("device", ["reference", "cpu"])
def test_a_parameter_of_a_branch_is_trained_when_it_is_taken(device: str) -> None:
    class Gated(nn.Module):
        def __init__(self) -> None:
            self.up, self.down = nn.Parameter(np.float32(2)), nn.Parameter(np.float32(3))

        def forward(self, x: Any) -> Any:
            return graphc.cond(x > 0, lambda: self.up * x, lambda: self.down * x * x)

    model = Gated()
    step = graphc.compile(model, scalar, update=optim.SGD(lr=1.0), device=device)
    assert step(np.float32(0.5)) == 1 and step(np.float32(-1)) == 3
    assert model.up.numpy() == 1.5 and model.down.numpy() == 2


def test_a_python_bool_decides_while_tracing() -> None:
    graph = graphc.trace(lambda x: graphc.cond(True, graphc.sin, None, x), scalar)  # type: ignore[arg-type]
    assert [node.op.name for node in graph.nodes] == ["sin"]


def counted(x: Any, until: Any) -> Any:
    return graphc.scan(lambda c, a: (c + a, (c, a)), 0.0, x, until=until)


def test_a_scan_ends_early_and_leaves_zeros() -> None:
    x = np.arange(1, 7, dtype=np.float32)
    total, before, same = run(lambda x: [*_flat(counted(x, lambda c: c > 5))], x)
    assert total == 6
    np.testing.assert_array_equal(before, [0, 1, 3, 0, 0, 0])
    np.testing.assert_array_equal(same, [1, 2, 3, 0, 0, 0])
    whole = run(lambda x: [*_flat(counted(x, lambda c: c > 100))], x)
    for found, expected in zip(whole, run(lambda x: [*_flat(counted(x, None))], x), strict=True):
        np.testing.assert_array_equal(found, expected)
    (slope,) = run(graphc.grad(lambda x: graphc.sum(counted(x, lambda c: c > 5)[1][0] ** 2)), x)
    np.testing.assert_array_equal(slope, [8, 6, 0, 0, 0, 0])


def test_a_scan_from_the_end_ends_early_too() -> None:
    def f(x: Any) -> Any:
        return graphc.scan(
            lambda c, a: (c + a, c), 0.0, x, reverse=True, until=lambda c: c > 5
        )  # fmt: skip

    total, stack = run(lambda x: [*f(x)], np.arange(1, 5, dtype=np.float32))
    assert total == 7
    np.testing.assert_array_equal(stack, [0, 0, 4, 0])


def _flat(found: Any) -> Any:
    carry, (a, b) = found
    return carry, a, b


def test_bounds_may_be_numbers_or_tensors() -> None:
    def f(x: Any, n: Any) -> Any:
        fixed = graphc.fori_loop(2, 5, lambda i, y: y * x + i, 1.0)
        none = graphc.fori_loop(5, 2, lambda i, y: y * x + i, 1.0)
        free = graphc.fori_loop(2, n, lambda i, y: y * x + i, 1.0, limit=9)
        return (
            fixed,
            none,
            free,
            graphc.grad(lambda a: graphc.fori_loop(2, n, lambda i, y: y * a + i, 1.0, limit=9))(x),
        )

    program = graphc.compile(f, scalar, graphc.spec((), "int32"), device="reference")
    assert [float(v) for v in program(np.float32(2), np.int32(5))] == [26, 1, 26, 23]
    assert [float(v) for v in program(np.float32(2), np.int32(1))][2:] == [1, 0]


def random_program(seed: int, twin: bool) -> Callable[..., Any]:
    """Loops and branches in each other over two scalars; the twin is of Python and NumPy."""

    def block(draw: random.Random, depth: int) -> Callable[[Any, Any], Any]:
        kind = draw.choice(["cond", "while", "fori", "scan"] if depth else ["line"])
        a, b, c = (draw.uniform(-1, 1) for _ in range(3))
        if kind == "line":
            return lambda x, y: (np.float32(a) * x + np.float32(b) * y, x * y * np.float32(c))
        one, other = block(draw, depth - 1), block(draw, depth - 1)
        count, at = draw.randint(1, 4), np.float32(draw.uniform(-0.5, 0.5))

        def python(x: Any, y: Any) -> Any:
            if kind == "cond":
                return one(x, y) if x > at else other(x, y)
            for _ in range(count):
                if kind == "while" and not abs(x) > abs(at):
                    break
                x, y = one(x, y)
                if kind == "scan" and y > at:
                    break
            return x, y

        def traced(x: Any, y: Any) -> Any:
            if kind == "cond":
                return graphc.cond(x > at, one, other, x, y)
            if kind == "while":
                return graphc.while_loop(
                    lambda s: graphc.abs(s[0]) > abs(at), lambda s: one(*s), (x, y), count
                )
            if kind == "fori":
                return graphc.fori_loop(0, count, lambda _, s: one(*s), (x, y))
            return graphc.scan(
                lambda s, _: (one(*s), None), (x, y), length=count, until=lambda s: s[1] > at
            )[0]

        return python if twin else traced

    return block(random.Random(seed), 2)


@pytest.mark.parametrize("seed", first_quick(8, range(60)))
def test_random_programs_do_what_python_does(seed: int) -> None:
    traced, python = random_program(seed, False), random_program(seed, True)
    points = np.random.default_rng(seed).uniform(-1, 1, (6, 2)).astype(np.float32)

    def all_of(points: Any) -> Any:
        def slope(p: Any) -> Any:
            return graphc.grad(lambda q: traced(q[0], q[1])[0])(p)

        return (
            [graphc.stack([*traced(points[i, 0], points[i, 1])]) for i in range(6)],
            graphc.stack([*graphc.vmap(traced, (0, 0))(points[:, 0], points[:, 1])], axis=1),
            [slope(points[i]) for i in range(6)],
            graphc.vmap(slope)(points),
            graphc.grad(lambda p: graphc.sum(graphc.vmap(traced, (0, 0))(p[:, 0], p[:, 1])[0]))(
                points
            ),
        )

    program = graphc.compile(all_of, graphc.spec((6, 2)), device="reference")
    each, together, *slopes = program(points)
    expected = np.array([python(*p) for p in points])
    np.testing.assert_allclose(each, expected, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(together, expected, rtol=1e-4, atol=1e-6)
    for found in slopes[1:]:
        np.testing.assert_allclose(found, slopes[0], rtol=1e-3, atol=1e-5)
    wide = points.astype(np.float64)
    steps = 1e-6 * np.eye(2)
    differences = np.array(
        [[(python(*p + s)[0] - python(*p - s)[0]) / 2e-6 for s in steps] for p in wide]
    )
    np.testing.assert_allclose(slopes[0], differences, rtol=2e-3, atol=2e-4)


@pytest.mark.parametrize("seed", first_quick(2, range(10)))
def test_streams_and_threads_change_no_bit(seed: int) -> None:
    traced = random_program(seed, False)

    def step(x: Any, y: Any) -> Any:
        return graphc.vmap(graphc.value_and_grad(lambda a, b: traced(a, b)[0], (0, 1)))(x, y)

    x, y = np.random.default_rng(seed).uniform(-1, 1, (2, 33)).astype(np.float32)
    specs = graphc.spec(33), graphc.spec(33)
    found = [
        graphc.compile(step, *specs, device="cpu", streams=s, threads=t)(x, y)
        for s, t in ((1, 1), (2, 2), (3, 1))
    ]
    for value, slopes in found[1:]:
        np.testing.assert_array_equal(value, found[0][0])
        np.testing.assert_array_equal(slopes, found[0][1])


@pytest.mark.parametrize("device", ["cpu", "sim"])
def test_the_meaning_of_passes_is_proved(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPHC_CHECK", "meaning")
    program = graphc.compile(
        lambda x: graphc.grad(lambda a: log_or_less(a) * root(a))(x), scalar, device=device
    )
    assert "meaning: 1 of 1 results proved equal" in program.plan.notes
    np.testing.assert_allclose(program(np.float32(4)), 0.5 + np.log(4) / 4, rtol=1e-2)


def test_a_trace_is_written_and_parsed() -> None:
    graph = graphc.trace(lambda x: graphc.grad(root)(x), scalar)
    assert "guarded=True" in str(graph)
    assert graphc.text.parse(str(graph)) == graph


def test_what_is_shown_in_a_loop_is_of_the_iterations_that_run() -> None:
    seen: list[Any] = []

    def f(x: Any) -> Any:
        def double(c: Any) -> Any:
            return graphc.tap(graphc.show(2 * c, "c", seen.append), "all")

        return graphc.while_loop(lambda c: c < 10, double, x, 6)

    program = graphc.compile(f, scalar, device="reference")
    assert program(np.float32(1)) == 16
    (one,) = seen
    assert (one.mean, one.min, one.max, one.count) == (7.5, 2, 16, 4)
    np.testing.assert_array_equal(program.taps["all"], [2, 4, 8, 16, 0, 0])
    assert program(np.float32(20)) == 20 and len(seen) == 1


@pytest.mark.parametrize("device", DEVICES)
def test_what_is_shown_in_a_branch_without_results_is_seen(device: str) -> None:
    seen: list[Any] = []

    def f(x: Any) -> Any:
        graphc.cond(x > 0, lambda: [graphc.show(2 * x, "x", seen.append)][1:], lambda: [])
        return x

    program = graphc.compile(f, scalar, device=device)
    assert program(np.float32(3)) == 3 and [one.max for one in seen] == [6]
    assert program(np.float32(-1)) == -1 and len(seen) == 1


def test_what_has_no_results_is_no_node() -> None:
    def f(x: Any) -> Any:
        graphc.scan(lambda c, a: ((), (2 * a, None)[1:]), (), x)
        return graphc.cond(x[0] > 0, lambda: (None, []), lambda: (None, [])), x

    graph = graphc.trace(f, graphc.spec(3))
    assert not any(node.op.name == "scan" for node in graph.nodes)
    assert graphc.text.parse(str(graph)) == graph


def test_a_program_is_saved_and_loaded(tmp_path: Path) -> None:
    program = graphc.compile(lambda x: (log_or_less(x), root(x)), scalar, device="cpu")
    program.save(tmp_path / "program")
    loaded = graphc.load(tmp_path / "program")
    assert str(loaded.plan.text()).count("guard ") == program.plan.text().count("guard ") > 2
    for x in (np.float32(-2), np.float32(9)):
        np.testing.assert_array_equal(loaded(x)[0], program(x)[0])
        np.testing.assert_array_equal(loaded(x)[1], program(x)[1])


def test_an_onnx_model_selects(tmp_path: Path) -> None:
    need_module("onnx")
    import graphc.onnx

    path = tmp_path / "root.onnx"
    graphc.onnx.save(lambda x: (log_or_less(x), root(x)), path, scalar)
    model = graphc.onnx.load(path)
    for x in (np.float32(-2), np.float32(9)):
        found = graphc.compile(model, scalar, device="reference")(x)
        expected = run(lambda x: [log_or_less(x), root(x)], x)
        np.testing.assert_allclose(found[0], expected[0], rtol=1e-6)
        if x > 0:
            np.testing.assert_allclose(found[1], expected[1], rtol=1e-6)


def test_a_report_and_explanations_tell_of_guarded_loops(tmp_path: Path) -> None:
    program = graphc.compile(graphc.grad(root), scalar, device="cpu")
    program.report(tmp_path / "page.html")
    assert "guard" in str(program.plan)
    for step in program.plan.steps:
        if isinstance(step, Loop):
            assert step.name in str(program.explain(step))
