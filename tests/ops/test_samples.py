"""Every op on its samples: the type rule, the gradient, and the index maps that lowering relies on,
each against what NumPy makes of the op's reference."""

from __future__ import annotations

import numpy as np

from graphc.gradients.reverse import gradients
from graphc.ir import FLOATS, Graph, dtype_name, verify
from graphc.ir.interpret import evaluate
from graphc.ops.base import REGISTRY, Affine, Contraction, Operand, View
from graphc.trace import Builder
from tests.ops.sample import for_each_op
from tests.ops.samples import SAMPLES, Sample
from tools.write_ops_page import MADE_BY_PASSES

BY_GRAPHS = {"scan", "custom_gradient"}
"""Ops whose body is a graph: their tests have files of their own."""
WITHOUT_SLOPE = {"nextafter", "stop_gradient"}
"""Ops whose gradient is 0 by definition, whatever their reference says."""


def of_family(family: type) -> list[Sample]:
    return [s for s in SAMPLES if isinstance(s.op, family)]


def test_every_op_has_a_sample() -> None:
    ops = {name: op for name, op in REGISTRY.items() if op.__module__.startswith("graphc.")}
    ours = {name for name, op in ops.items() if not op.communicates}  # see tests/parallel
    assert {s.op.name for s in SAMPLES} == ours - MADE_BY_PASSES - BY_GRAPHS


@for_each_op(SAMPLES)
def test_the_reference_has_the_inferred_types_at_any_float_width(sample: Sample) -> None:
    for wide in dict.fromkeys(map(sample.with_floats, FLOATS)):
        inferred = [(t.shape, t.dtype) for t in wide.op.infer(*wide.inputs)]
        results = wide.op.evaluate(*wide.arrays())
        assert [(r.shape, dtype_name(r.dtype)) for r in results] == inferred, wide
        assert all(type(r) is np.ndarray for r in results), wide


@for_each_op([s for s in SAMPLES if sum(t.dtype in FLOATS for t in s.inputs) > 1])
def test_one_operand_of_float32_does_not_narrow_the_reference(sample: Sample) -> None:
    """Constants stay as they are where a graph of float32 is evaluated in float64."""
    wide = sample.with_floats("f64")
    for narrow, kind in enumerate(wide.inputs):
        if kind.dtype == "f64":
            arrays = list(wide.arrays())
            arrays[narrow] = arrays[narrow].astype(np.float32)
            found = [dtype_name(r.dtype) for r in wide.op.evaluate(*arrays)]
            assert found == [t.dtype for t in wide.op.infer(*wide.inputs)], (wide, narrow)


def gradient_graph(sample: Sample) -> tuple[Graph, list[int]]:
    """Inputs: those of the op, then a seed per float output. Outputs: the float outputs, then the
    gradients of the float inputs whose numbers are returned too."""
    builder = Builder("gradient")
    with builder.building():
        inputs = [builder.input(f"x{i}", t) for i, t in enumerate(sample.inputs)]
        outputs = [t for t in builder.emit(sample.op, *inputs) if t.dtype in FLOATS]
        seeds = [builder.input(f"seed{i}", t.value.type) for i, t in enumerate(outputs)]
        found = gradients(outputs, seeds, inputs, builder)
    numbers = [i for i, g in enumerate(found) if g is not None]
    graph = builder.graph([*outputs, *(found[i] for i in numbers)])
    verify(graph)
    for i in numbers:
        assert found[i].value.type == sample.inputs[i]
    return graph, numbers


SLOPES = [s.with_floats("f64") for s in SAMPLES if s.differentiable]


@for_each_op(s for s in SLOPES if s.op.name not in WITHOUT_SLOPE)
def test_the_gradient_equals_central_differences(sample: Sample) -> None:
    """Along random directions: d sum(seed * y) / d step = sum over the inputs of gradient * v."""
    graph, numbers = gradient_graph(sample)
    random = np.random.default_rng(1)
    arrays = list(sample.arrays(seed=1))
    seeds = [random.normal(size=v.type.shape) for v in graph.inputs[len(arrays) :]]
    outputs, _ = evaluate(graph, [*arrays, *seeds])
    slopes = dict(zip(numbers, outputs[len(seeds) :], strict=True))
    step = 1e-6
    for _ in range(2):
        direction = {
            i: random.normal(size=t.shape) for i, t in enumerate(sample.inputs) if t.dtype in FLOATS
        }

        def total(sign: float, direction: dict[int, np.ndarray] = direction) -> float:
            moved = [
                a + sign * step * direction[i] if i in direction else a
                for i, a in enumerate(arrays)
            ]
            values = sample.op.reference(*moved)
            floats = [v for v in values if v.dtype.kind == "f"]
            return sum(float(np.sum(s * v)) for s, v in zip(seeds, floats, strict=True))

        expected = (total(1) - total(-1)) / (2 * step)
        got = sum(float(np.sum(g * direction[i])) for i, g in slopes.items())
        size = 1 + sum(float(np.sum(np.abs(g * direction[i]))) for i, g in slopes.items())
        assert abs(got - expected) < 1e-7 * size


NO_SECOND_GRADIENT: dict[str, str] = {}
"""Ops whose gradient has none itself, and why."""


@for_each_op(SLOPES)
def test_the_gradient_has_a_gradient(sample: Sample) -> None:
    builder = Builder("second")
    with builder.building():
        inputs = [builder.input(f"x{i}", t) for i, t in enumerate(sample.inputs)]
        outputs = [t for t in builder.emit(sample.op, *inputs) if t.dtype in FLOATS]
        squares = [t * t for t in outputs]
        first = [g for g in gradients(squares, squares, inputs, builder) if g is not None]
        floats = [t for t in inputs if t.dtype in FLOATS]
        gradients(first, first, floats, builder)
    verify(builder.graph(first))


def test_no_gradient_flows_through_stop_gradient() -> None:
    for sample in SLOPES:
        if sample.op.name == "stop_gradient":
            assert gradient_graph(sample)[1] == []


def evaluated(maps: tuple[Affine, ...], coordinates: np.ndarray) -> list[np.ndarray]:
    """Each affine map at the coordinates [axis, point]."""
    points = coordinates.shape[1]
    return [
        sum(
            (c * coordinates[d] for d, c in enumerate(m.coefficients)),
            start=np.full(points, m.offset),
        )
        for m in maps
    ]


def coordinates_of(extents: tuple[int, ...]) -> np.ndarray:
    return np.indices(extents).reshape(len(extents), int(np.prod(extents)))


@for_each_op(of_family(View))
def test_the_index_of_a_view_names_the_input_element(sample: Sample) -> None:
    (source,), (x,) = sample.inputs, sample.arrays()
    (y,) = sample.op.reference(x)
    maps = sample.op.index(source)
    if maps is None:
        assert sample.op.name == "reshape"
        return
    assert all(len(m.coefficients) == y.ndim for m in maps) and len(maps) == x.ndim
    points = coordinates_of(y.shape)
    none = np.zeros(points.shape[1], int)  # a leading axis, for sources without any
    read = x[None][(none, *evaluated(maps, points))]
    np.testing.assert_array_equal(read.reshape(y.shape), y)


def read(array: np.ndarray, operand: Operand, coordinates: np.ndarray) -> np.ndarray:
    """The operand's element at each point; 0 outside and where a divisor does not divide."""
    indices = evaluated(operand.index, coordinates)
    valid = np.ones(coordinates.shape[1], bool)
    places = []
    for axis, (index, divisor) in enumerate(zip(indices, operand.divisors, strict=True)):
        place = index // divisor
        valid &= (index % divisor == 0) & (place >= 0) & (place < array.shape[axis])
        places.append(place)
    return np.where(valid, array[tuple(np.where(valid, p, 0) for p in places)], 0)


@for_each_op(of_family(Contraction))
def test_the_iteration_of_a_contraction_computes_its_reference(sample: Sample) -> None:
    sample = sample.with_floats("f64")
    a, b = sample.arrays()
    (expected,) = sample.op.reference(a, b)
    nest = sample.op.iteration(*sample.inputs)
    assert len(nest.names) == len(nest.extents) >= nest.kept
    assert all(not any(m.coefficients[nest.kept :]) and m.offset == 0 for m in nest.output)
    kept = tuple(nest.extents[: nest.kept])
    assert np.prod(kept) == expected.size
    if expected.size == 0 or 0 in nest.extents:
        np.testing.assert_array_equal(expected, np.zeros_like(expected))
        return
    points = coordinates_of(nest.extents)
    result = np.zeros_like(expected)
    places = tuple(evaluated(nest.output, points))
    np.add.at(result, places, read(a, nest.a, points) * read(b, nest.b, points))
    np.testing.assert_allclose(result, expected, rtol=0, atol=1e-12 * points.shape[1])


@for_each_op(of_family(Contraction))
def test_each_output_of_a_contraction_is_named_once(sample: Sample) -> None:
    nest = sample.op.iteration(*sample.inputs)
    (y,) = sample.op.infer(*sample.inputs)
    kept = coordinates_of(nest.extents[: nest.kept])
    summed = np.zeros((len(nest.extents) - nest.kept, kept.shape[1]), int)
    places = evaluated(nest.output, np.concatenate([kept, summed]))
    named = np.zeros(y.shape, int)
    np.add.at(named, tuple(places), 1)
    assert (named == 1).all()
