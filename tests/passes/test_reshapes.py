"""Reshapes move to where they keep nothing apart."""

import numpy as np
import pytest

import graphc
from graphc.passes.simplify.clean import clean
from tests.passes.meaning import CPU, assert_same_meaning, ops, run_all

X = graphc.spec((2, 5, 12))
WEIGHT = graphc.spec((24, 12))


def cleaned(fn, *specs):
    before = graphc.trace(fn, *specs)
    after = clean(before, CPU)
    assert_same_meaning(before, after, tolerance=1e-6)
    return after


def kernels(fn, *specs):
    """The ops of each kernel of the compiled function."""
    graph = run_all(fn, *specs)["layout"]
    return [ops(n.op.body) for n in graph.nodes if n.op.name == "kernel"]


def test_a_dense_layer_of_a_sequence_is_one_kernel_with_what_follows():
    def fn(x, w, b):
        return graphc.tanh(graphc.linear(x, w, b)) * 2.0

    made = kernels(fn, X, WEIGHT, graphc.spec(24))
    assert len(made) == 1 and {"matmul", "add", "tanh", "multiply"} <= set(made[0])


def test_a_residual_joins_the_dense_layer_before_it():
    def fn(x, w, y):
        return y + graphc.linear(x, w)

    assert len(kernels(fn, X, WEIGHT, graphc.spec((2, 5, 24)))) == 1


@pytest.mark.parametrize("batch", [1, 2])
def test_what_a_residual_is_normalised_by_stays_one_kernel(batch):
    """A batch of one alone could be reshaped away in front of what broadcasts along it."""

    def fn(x, w, y):
        return graphc.linear(graphc.layer_norm(y + graphc.linear(x, w), (24,)), w.T)

    specs = graphc.spec((batch, 5, 12)), WEIGHT, graphc.spec((batch, 5, 24))
    made = kernels(fn, *specs)
    assert len(made) == 3 and made[1].count("sum") == 2


def test_an_operand_that_broadcasts_along_a_merged_axis_stays_behind_the_reshape():
    def fn(x, w, y):
        return graphc.linear(x, w) * y

    graph = cleaned(fn, X, WEIGHT, graphc.spec((5, 24)))
    assert ops(graph)[-2:] == ["reshape", "multiply"]


def test_values_that_are_reshaped_alike_are_added_before():
    """So that a normalisation's gradient adds that of the residual beside it."""

    def fn(x, y):
        flat = (graphc.reshape(v, (10, 12)) for v in (graphc.layer_norm(x, (12,)), y))
        return graphc.maximum(*flat)

    specs = X, graphc.spec((2, 5, 12))
    assert ops(cleaned(fn, *specs))[-2:] == ["maximum", "reshape"]
    assert len(kernels(fn, *specs)) == 1


def test_values_that_are_reshaped_otherwise_are_added_behind():
    def fn(x, y, z):
        return graphc.reshape(x, (10, 12)) + graphc.reshape(y, (10, 12)), z * graphc.reshape(x, -1)

    graph = cleaned(fn, X, graphc.spec((5, 2, 12)), graphc.spec(()))
    assert ops(graph) == ["reshape", "reshape", "add", "reshape", "multiply"]


def test_a_product_with_other_readers_is_not_stored_twice():
    def fn(x, w, b):
        y = graphc.linear(x, w)
        return y, y + b

    graph = cleaned(fn, X, WEIGHT, graphc.spec(24))
    assert ops(graph)[-2:] == ["reshape", "add"]


def test_parts_of_a_value_are_split_in_place():
    def fn(x):
        parts = [x[..., 4 * i : 4 * i + 4] for i in range(3)]
        return tuple(graphc.reshape(p, (2, 5, 2, 2)) for p in parts)

    graph = cleaned(fn, X)
    assert ops(graph) == ["reshape", "slice", "slice", "slice"]
    assert graph.nodes[0].output.type.shape == (2, 5, 6, 2)


def test_a_part_that_begins_within_a_run_is_copied():
    def fn(x):
        return graphc.reshape(x[..., 1:5], (2, 5, 2, 2))

    assert ops(cleaned(fn, X)) == ["slice", "reshape"]


def test_a_reshape_that_merges_axes_stays_behind_a_slice():
    def fn(x):
        return graphc.reshape(x[:, 1:3], (4, 12))

    assert ops(cleaned(fn, X)) == ["slice", "reshape"]


def test_strided_and_permuted_parts_stay_as_they_are():
    def fn(x):
        strided = graphc.reshape(x[..., ::3], (2, 5, 2, 2))
        permuted = graphc.permute_dims(x, (0, 2, 1))[:, :4]
        return strided, graphc.reshape(permuted, (2, 2, 2, 5))

    graph = cleaned(fn, X)
    assert ops(graph) == ["slice", "reshape", "permute_dims", "slice", "reshape"]


@pytest.mark.parametrize(
    ("shape", "index", "starts", "stops", "steps"),
    [
        ((2, 5, 3, 4), (..., 1, slice(None)), (0, 0, 4), (2, 5, 8), (1, 1, 1)),
        ((2, 5, 3, 4), (..., 2), (0, 0, 2), (2, 5, 12), (1, 1, 4)),
        ((2, 1, 5, 3, 4), (slice(1, 2), 0, slice(None), 0), (1, 0, 0), (2, 5, 4), (1, 1, 1)),
        ((2, 5, 2, 3, 2), (..., 1), (0, 0, 1), (2, 5, 12), (1, 1, 2)),
    ],
)
def test_what_is_cut_from_a_split_axis_is_a_slice_of_it(shape, index, starts, stops, steps):
    def fn(x):
        part = graphc.reshape(x, shape)[index]
        return graphc.reshape(part, (-1, 5, part.size // 5 // (stops[0] - starts[0])))

    graph = cleaned(fn, X)
    assert ops(graph) == ["slice"]
    op = graph.nodes[0].op
    assert (op.starts, op.stops, op.steps) == (starts, stops, steps)


@pytest.mark.parametrize("index", [(..., 1, slice(None)), (..., slice(0, 2), slice(0, 1), 0)])
def test_what_is_cut_from_the_middle_of_a_split_axis_stays_as_it_is(index):
    def fn(x):
        part = graphc.reshape(x, (2, 5, 2, 3, 2))[index]
        return graphc.reshape(part, (2, 5, part.size // 10))

    assert ops(cleaned(fn, X)) == ["reshape", "slice", "reshape"]


def test_reshaped_pieces_are_joined_before_the_reshape():
    def fn(x, y):
        return graphc.concat([graphc.reshape(v, (2, v.shape[1] * 12)) for v in (x, y)], axis=1)

    assert ops(cleaned(fn, X, graphc.spec((2, 3, 12)))) == ["concat", "reshape"]


def test_pieces_that_were_cut_otherwise_are_joined_as_they_are():
    def fn(x, y):
        return graphc.concat([graphc.reshape(v, (2, -1)) for v in (x, y)], axis=1)

    graph = cleaned(fn, X, graphc.spec((2, 12, 3)))
    assert ops(graph) == ["reshape", "reshape", "concat"]


def self_attention(x, w, b):
    """A projection to query, key and value of two heads, and their attention."""
    n, t, _ = x.shape
    joined = graphc.linear(x, w, b)
    q, k, v = (
        graphc.swapaxes(graphc.reshape(joined[..., 8 * i : 8 * i + 8], (n, t, 2, 4)), 1, 2)
        for i in range(3)
    )
    y = graphc.scaled_dot_product_attention(q, k, v, is_causal=True)
    return graphc.reshape(graphc.swapaxes(y, 1, 2), (n, t, 8))


def test_self_attention_is_two_kernels():
    made = kernels(self_attention, X, WEIGHT, graphc.spec(24))
    assert [("matmul" in m, "attention" in m) for m in made] == [(True, False), (False, True)]


def test_the_gradient_of_self_attention_writes_that_of_the_projection():
    def fn(x, w, b):
        return graphc.grad(lambda w: graphc.sum(graphc.square(self_attention(x, w, b))))(w)

    graph = run_all(fn, X, WEIGHT, graphc.spec(24))["layout"]
    bodies = [ops(n.op.body) for n in graph.nodes if n.op.name == "kernel"]
    (backward,) = (b for b in bodies if "attention_grad" in b)
    assert backward[-1] == "concat"
    assert not any("slice" in b and "attention" not in "".join(b) for b in bodies)


def test_the_kernel_of_joined_gradients_gives_their_values():
    x, w, b = (
        np.random.default_rng(i).standard_normal(s).astype(np.float32)
        for i, s in enumerate(((2, 5, 12), (24, 12), (24,)))
    )

    def fn(x, w, b):
        return graphc.grad(lambda w: graphc.sum(graphc.square(self_attention(x, w, b))))(w)

    def played(device):
        return graphc.compile(fn, X, WEIGHT, graphc.spec(24), device=device)(x, w, b)

    want = played("reference")
    for device in ("cpu", "sim"):
        tolerance = 20 * np.finfo(np.float32).eps * np.abs(want).max()
        np.testing.assert_allclose(played(device), want, rtol=0, atol=tolerance)
