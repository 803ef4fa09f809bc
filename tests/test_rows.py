"""What keeps a call from being padded: functions whose rows depend on each other, and why."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphc
from graphc import nn
from graphc.base.errors import GraphError
from graphc.ir.interpret import evaluate
from graphc.program.rows import mixing
from graphc.program.tracing import Common, trace_function

PRIMES = np.random.default_rng(0).integers(-9, 9, 200)
TABLE = np.arange(48, dtype=np.float32).reshape(16, 3)
BUFFER = nn.Buffer(np.zeros(3, np.float32))
WEIGHT = nn.Parameter(np.arange(60, dtype=np.float32).reshape(20, 3))
ONE, OTHER = nn.Parameter(np.ones(3, np.float32)), nn.Parameter(np.ones(3, np.float32))


def why(fn: Callable[..., Any], small: int, large: int, axis: int = 0) -> str:
    def spec(n: int) -> Any:
        return graphc.spec((n, 3) if axis == 0 else (3, n))

    common = Common.of([], 0)
    one, other = (trace_function(fn, [spec(n)], True, 0, common=common) for n in (small, large))
    return mixing(one, other, small, large)


def carried(x: Any) -> Any:
    return graphc.scan(lambda c, row: (c + row, c), graphc.zeros(3), x)[1]


def updated(x: Any) -> Any:
    class Counts(nn.Module):
        def __init__(self) -> None:
            self.mean = BUFFER

        def forward(self, x: Any) -> Any:
            self.mean = graphc.mean(x, axis=0)
            return x

    return Counts()(x)


def one_of_two(x: Any) -> Any:
    first, second = x + 1, x * 2
    both = first + second
    return (both, first) if x.shape[0] < 6 else (both, second)


APART: dict[str, Callable[[Any], Any]] = {
    "pointwise": lambda x: graphc.exp(x) + 1,
    "a sum of each row": lambda x: x.sum(axis=1),
    "a sort of each row": lambda x: graphc.sort(x, axis=1),
    "a parameter": lambda x: x * ONE,
    "a product": lambda x: x @ TABLE[:3],
    "the axis moved": lambda x: graphc.permute_dims(x, (1, 0)),
    "an axis more": lambda x: x[:, None, :] * TABLE[:4],
    "rows merged with axes behind": lambda x: graphc.reshape(graphc.reshape(x, (-1,)), (-1, 3)),
    "rows merged with axes around": lambda x: graphc.reshape(
        graphc.reshape(graphc.stack([x, x]), (-1, 3)) @ TABLE[:3], (2, -1, 3)
    )[1],
    "merged rows and what is alike for all": lambda x: graphc.reshape(
        graphc.reshape(graphc.stack([x, x]), (-1, 3)) + graphc.zeros((2 * x.shape[0], 3)),
        (2, -1, 3),
    )[0],
    "zeros for each row": lambda x: graphc.concat([x, graphc.zeros((x.shape[0], 2))], axis=1),
    "the numbers of rows": lambda x: x * graphc.arange(x.shape[0])[:, None],
    "the first rows of a table": lambda x: x + TABLE[: x.shape[0]],
    "the first rows of a parameter": lambda x: x + WEIGHT[: x.shape[0]],
    "columns": lambda x: x[:, 1:],
    "a lookup": lambda x: graphc.take(graphc.asarray(TABLE), x.astype("int32"), axis=0),
    "a loop over columns": lambda x: graphc.scan(
        lambda c, e: (c + e, c * e), graphc.zeros(x.shape[0]), graphc.permute_dims(x, (1, 0))
    ),
    "what nothing reads": lambda x: (x.sum(), x)[1],
    "the same draw for all rows": lambda x: x * graphc.dropout(graphc.ones(3), 0.5, True),
}


@pytest.mark.parametrize("name", APART)
def test_rows_apart(name: str) -> None:
    assert why(APART[name], 5, 8) == ""


MIXED: dict[str, tuple[Callable[[Any], Any], str]] = {
    "a sum": (lambda x: x.sum(axis=0, keepdims=True) + x, "%sum = sum: it combines rows"),
    "a mean of all": (lambda x: x - graphc.mean(x), "%sum = sum: it combines rows"),
    "a product of rows": (lambda x: (graphc.permute_dims(x, (1, 0)) @ x) + x[:, :, None],
                          "%matmul = matmul: it combines rows"),
    "rows turned": (lambda x: graphc.flip(x, 0), "%flip = flip: its rows may depend on each other"),
    "rows rolled": (lambda x: graphc.roll(x, 1, 0), "%slice = slice: its starts differs"),
    "one row": (lambda x: x - x[0], "%slice = slice: its rows may depend on each other"),
    "the last row": (lambda x: x - x[-1], "%slice = slice: its starts differs from size to size"),
    "a running sum": (lambda x: graphc.cumsum(x, axis=0),
                      "%cumsum = cumsum: its rows may depend on each other"),
    "a loop over rows": (carried, "%scan.1 = scan: its length differs from size to size"),
    "the number of rows": (lambda x: x / x.shape[0],
                           "%constant = constant: its value differs from size to size"),
    "other elements": (lambda x: x * np.linspace(0, 1, x.shape[0], dtype=np.float32)[:, None],
                       "%constant = constant: its elements differ from size to size"),
    "other rows of a parameter": (lambda x: x * WEIGHT[20 - x.shape[0] :],
                                  "%slice = slice: its starts differs from size to size"),
    "merged rows and those of a parameter": (
        lambda x: graphc.reshape(
            graphc.reshape(graphc.stack([x, x]), (-1, 3)) + WEIGHT[: 2 * len(x)], (2, -1, 3))[1],
        "%add = add: its rows may depend on each other"),
    "draws": (lambda x: graphc.dropout(x, 0.5, True),
              "%philox_uniform = philox_uniform: it draws random numbers for each row"),
    "every pair": (lambda x: x[:, None] - x[None], "%subtract = subtract: %subtract is f32[5,5,3]"),
    "a result of all": (lambda x: (x, ONE + 1), "output 1 f32[3] has no such axis"),
    "rows as the faster part": (
        lambda x: graphc.reshape(graphc.permute_dims(x, (1, 0)), (-1,)),
        "output 0 f32[15] has no such axis"),
    "rows cut through": (lambda x: graphc.reshape(graphc.permute_dims(x, (1, 0)), (-1, 3)),
                         "%reshape = reshape: its rows may depend on each other"),
    "rows of two ways to merge": (
        lambda x: graphc.reshape(graphc.stack([x, x]), (-1, 3))
        + graphc.reshape(graphc.stack([x, x], axis=1), (-1, 3)),
        "%add = add: its rows may depend on each other"),
    "rows merged and cut elsewhere": (
        lambda x: graphc.reshape(graphc.reshape(graphc.stack([x] * 4), (-1, 3)), (2, -1, 3))[0],
        "output 0 f32[10,3] has no such axis"),
    "rows merged in a loop": (
        lambda x: graphc.scan(
            lambda c, e: (c, graphc.reshape(graphc.stack([x, x]), (-1, 3))), 0.0, TABLE)[1],
        "%scan.1 = scan: its rows may depend on each other"),
    "a running statistic": (updated, "%sum = sum: it combines rows"),
    "another constant": (lambda x: x + 1 if x.shape[0] < 6 else x * 2,
                         "%constant = constant: its value differs from size to size"),
    "another function": (lambda x: x + 2 if x.shape[0] < 6 else x * 2,
                         "%add = add: the function computes something else for another size"),
    "more nodes": (lambda x: x + 1 if x.shape[0] < 6 else x * 2 + 1,
                   "the function computes something else for another size"),
    "another result": (one_of_two, "the function returns something else for another size"),
    "other state": (lambda x: x * (ONE if x.shape[0] < 6 else OTHER),
                    "it reads other state for another size"),
    "columns by the number of rows": (
        lambda x: graphc.concat([x] * 4, 1)[:, x.shape[0] - 5 :][:, :9], "%slice = slice: "),
    "a value that is looked at": (lambda x: graphc.tap(x, "x"), "it shows or taps values"),
}  # fmt: skip


@pytest.mark.parametrize("name", MIXED)
def test_rows_that_may_depend_on_each_other(name: str) -> None:
    fn, reason = MIXED[name]
    assert why(fn, 5, 8).startswith(reason)


def test_a_single_row_is_apart_from_what_is_added() -> None:
    assert why(lambda x: graphc.softmax(x @ TABLE[:3], 1), 1, 8) == ""
    assert why(lambda x: x - graphc.mean(x, axis=0), 1, 8).startswith(
        "%sum = sum: it combines rows"
    )


def test_rows_cut_through_by_a_reshape_of_the_same_extents() -> None:
    def fn(x: Any) -> Any:
        return graphc.reshape(graphc.stack([x, x], axis=2), (2, -1))

    found = why(fn, 4, 8, axis=1)
    assert "reshape: its rows may depend on each other" in found


def test_rows_along_another_axis() -> None:
    assert why(lambda x: graphc.mean(x, axis=0), 2, 9, axis=1) == ""
    assert "combines rows" in why(lambda x: graphc.softmax(x, axis=1), 2, 9, axis=1)


def step(rng: np.random.Generator, x: Any, size: int) -> Any:
    """A random function of x, which may mix rows in any way; `size` is the number of rows."""
    axis = int(rng.integers(x.ndim))
    whole = int(np.prod(x.shape))
    kinds = [
        lambda: x * 3 + 1,
        lambda: graphc.permute_dims(x, tuple(rng.permutation(x.ndim).tolist())),
        lambda: graphc.stack([x, x + 1], axis=axis),
        lambda: graphc.concat([x, x * 2], axis=axis),
        lambda: graphc.sum(x, axis=axis, keepdims=bool(rng.integers(2))) if x.ndim > 1 else x,
        lambda: x + graphc.max(x, axis=axis, keepdims=True),
        lambda: graphc.cumsum(x, axis=axis),
        lambda: graphc.sort(x, axis=axis),
        lambda: graphc.flip(x, axis),
        lambda: graphc.reshape(x, (-1, x.shape[-1])),
        lambda: graphc.reshape(x, (x.shape[0], -1)),
        lambda: graphc.reshape(x, (-1,)),
        lambda: graphc.reshape(x, (2, -1, *x.shape[1:])) if x.shape[0] % 2 == 0 else x,
        lambda: graphc.reshape(x, (size, -1)),
        lambda: graphc.reshape(x, (-1, size, whole // size // 2)) if whole // size % 2 == 0 else x,
        lambda: x[(slice(None),) * axis + (slice(0, None, int(rng.integers(1, 3))),)],
        lambda: x[(slice(None),) * axis + (slice(1, None) if x.shape[axis] > 1 else slice(None),)],
        lambda: x + graphc.astype(graphc.arange(x.shape[axis]), "int64")[
            (slice(None),) + (None,) * (x.ndim - 1 - axis)],
        lambda: x @ graphc.full((x.shape[-1], 3), 2, dtype="int64") if x.ndim > 1 else x,
        lambda: graphc.scan(lambda c, e: (c + e, c * 2 - e), x[0] * 0, x)[1],
        lambda: x - graphc.zeros(x.shape, "int64"),
        lambda: x * graphc.broadcast_to(graphc.asarray(PRIMES), (3, 200))[0, : x.shape[axis]][
            (slice(None),) + (None,) * (x.ndim - 1 - axis)] if x.shape[axis] <= 200 else x,
    ]  # fmt: skip
    return kinds[rng.integers(len(kinds))]()


def test_random_functions_whose_rows_are_said_to_be_apart() -> None:
    """In integers, so that a row that depends on no other is equal to the bit."""
    apart = mixed = 0
    for seed in range(400):
        small, large = (3, 7) if seed % 2 else (2, 6)
        axis = seed % 3 % 2

        def fn(x: Any, seed: int = seed, axis: int = axis) -> Any:
            rng, size = np.random.default_rng(seed), x.shape[axis]
            for _ in range(rng.integers(1, 6)):
                x = step(rng, x, size)
            return x

        shapes = [(n, 4) if axis == 0 else (4, n) for n in (small, large)]
        specs = [graphc.spec(shape, "int64") for shape in shapes]
        try:
            traces = [trace_function(fn, [s], False, 0, common=Common.of([], 0)) for s in specs]
        except GraphError:  # it takes no such size
            continue
        if mixing(*traces, small, large):
            mixed += 1
            continue
        apart += 1
        whole = np.random.default_rng(seed).integers(-50, 50, shapes[1])
        part = np.ascontiguousarray(whole[tuple(map(slice, shapes[0]))])
        graphs = [t.builder.graph([t.outputs]) for t in traces]
        (few,), (many,) = (evaluate(g, [x])[0] for g, x in zip(graphs, (part, whole), strict=True))
        np.testing.assert_array_equal(few, many[tuple(map(slice, few.shape))], str(graphs[0]))
    print(apart, mixed)
    assert apart > 60 and mixed > 100
