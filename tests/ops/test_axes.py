"""Every op on its samples: where its axes go, and what it becomes with one axis more, each against
NumPy's reference."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import pytest

from graphc.gradients.vocabulary import Vocabulary
from graphc.ir import Type, dtype_name, verify
from graphc.ir.interpret import evaluate
from graphc.ops import Op, PhiloxUniform, Reduction
from graphc.ops.axes import SUMMED
from graphc.ops.base import REGISTRY
from graphc.trace import Builder
from tests.ops.sample import for_each_op
from tests.ops.samples import CORE, MANY, SAMPLES, Sample

SIZE = 3
OF_BODIES = {"kernel", "custom_gradient"}
"""What holds a graph made by passes, or only for gradients: nothing looks at its axes from
outside."""


@pytest.mark.parametrize("name", sorted(REGISTRY))
def test_every_op_says_what_it_does_to_axes(name: str) -> None:
    op = REGISTRY[name]
    if op.__module__.startswith("graphc.") and name not in OF_BODIES:
        assert op.axis_map is not Op.axis_map
        assert op.batched is not Op.batched or name == "relayout" or op.communicates


def same(got: np.ndarray, expected: np.ndarray) -> None:
    """Equal but for the order of sums."""
    if got.dtype.kind != "f":
        np.testing.assert_array_equal(got, expected)
        return
    tolerance = 64 * np.finfo(got.dtype).eps
    np.testing.assert_allclose(got, expected, rtol=tolerance, atol=tolerance * 64)


@for_each_op(MANY)
def test_an_axis_goes_where_its_elements_go(sample: Sample) -> None:
    """Turning all axes that go to one axis of an output turns that axis; turning those that are
    summed changes nothing."""
    op, arrays = sample.op, sample.arrays()
    maps = op.axis_map(*sample.inputs)
    assert [[len(axes) for axes in each] for each in maps] == [
        [t.rank for t in sample.inputs] for _ in op.infer(*sample.inputs)
    ]
    results = op.evaluate(*arrays)
    for number, (each, result) in enumerate(zip(maps, results, strict=True)):
        for d in range(result.ndim):
            if any(d in axes for axes in each):
                turned = [turn(a, axes, d) for a, axes in zip(arrays, each, strict=True)]
                same(op.evaluate(*turned)[number], np.roll(result, 1, d))
        for turned in without_order(op, arrays, each):
            same(op.evaluate(*turned)[number], result)


def turn(array: np.ndarray, axes: tuple[int | None, ...], place: int) -> np.ndarray:
    own = tuple(a for a, d in enumerate(axes) if d == place)
    return np.roll(array, [1] * len(own), own) if own else array


def without_order(op: Op, arrays: tuple[np.ndarray, ...], maps: object) -> Iterator[list]:
    """The arrays with summed axes turned: one of a reduction, of all operands together else."""
    if isinstance(op, Reduction):
        for a in op.axes:
            yield [np.roll(arrays[0], 1, a)]
    elif any(SUMMED in axes for axes in maps):
        yield [turn(a, axes, SUMMED) for a, axes in zip(arrays, maps, strict=True)]


def test_the_axes_of_a_convolution() -> None:
    convolution = next(s for s in SAMPLES if s.op.name == "conv2d" and s.op.groups == 1)
    assert convolution.op.axis_map(*convolution.inputs) == (
        ((0, SUMMED, None, None), (1, SUMMED, None, None)),
    )


def choices(sample: Sample) -> Iterator[tuple[bool, ...]]:
    """Which inputs have samples: each alone and all together, of three or more."""
    count = len(sample.inputs)
    if count < 3:
        yield from (c for c in itertools.product((True, False), repeat=count) if any(c))
    else:
        yield from (tuple(i == j for i in range(count)) for j in range(count))
        yield (True,) * count


@for_each_op(CORE)
def test_the_batched_op_is_the_op_for_each_sample(sample: Sample) -> None:
    if sample.op.draws:
        return
    for stacked in choices(sample):
        kinds = [
            Type((SIZE, *t.shape), t.dtype) if s else t
            for t, s in zip(sample.inputs, stacked, strict=True)
        ]
        arrays = Sample(sample.op, tuple(kinds), sample.ranges).arrays()
        builder = Builder("batched")
        with builder.building():
            inputs = [builder.input(f"x{i}", t) for i, t in enumerate(kinds)]
            outputs = sample.op.batched(Vocabulary(), inputs, stacked, SIZE)
        graph = builder.graph(outputs)
        verify(graph)
        got, _ = evaluate(graph, arrays)
        expected = [
            sample.op.evaluate(*(a[i] if s else a for a, s in zip(arrays, stacked, strict=True)))
            for i in range(SIZE)
        ]
        for result, parts in zip(got, zip(*expected, strict=True), strict=True):
            assert result.shape == (SIZE, *parts[0].shape)
            assert dtype_name(result.dtype) == dtype_name(parts[0].dtype)
            same(result, np.stack(parts))
        assert not any(n.op.name == "scan" for n in graph.nodes), "one sample after the other"


def test_each_sample_draws_numbers_of_its_own() -> None:
    op = PhiloxUniform(seed=7, number=2, shape=(4, 5))
    builder = Builder("draws")
    with builder.building():
        counter = builder.input("counter", Type((), "i32"))
        outputs = op.batched(Vocabulary(), [counter], [False], SIZE)
    (drawn,), _ = evaluate(builder.graph(outputs), [np.int32(11)])
    assert drawn.shape == (SIZE, 4, 5) and len(np.unique(drawn)) == drawn.size
    np.testing.assert_array_equal(drawn[0], op.reference(np.int32(11))[0])


def test_samples_with_counters_of_their_own_draw_by_these() -> None:
    op = PhiloxUniform(seed=7, number=2, shape=(4, 5))
    builder = Builder("draws")
    with builder.building():
        counters = builder.input("counters", Type((SIZE,), "i32"))
        outputs = op.batched(Vocabulary(), [counters], [True], SIZE)
    steps = np.array([3, 1, 2], np.int32)
    (drawn,), _ = evaluate(builder.graph(outputs), [steps])
    np.testing.assert_array_equal(drawn, np.stack([op.reference(c)[0] for c in steps]))
