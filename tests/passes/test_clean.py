"""Clean keeps the meaning and takes away what nobody needs."""

import itertools

import numpy as np
import pytest

import graphc
from graphc.passes.simplify.clean import clean
from graphc.passes.simplify.commute import commute
from tests.passes.meaning import CPU, assert_same_meaning, ops

X = graphc.spec((4, 6))


def cleaned(fn, *specs):
    before = graphc.trace(fn, *specs)
    after = clean(before, CPU)
    assert_same_meaning(before, after)
    return after


def test_minus_a_negative_zero_stays():
    assert ops(cleaned(lambda x: x - np.float32(-0.0), X)) == ["constant", "subtract"]


def test_a_product_that_is_also_read_untransposed_is_not_computed_twice():
    def fn(a, b):
        y = graphc.matmul(a, b)
        return y, graphc.permute_dims(y, (1, 0))

    assert ops(cleaned(fn, X, graphc.spec((6, 5)))) == ["matmul", "permute_dims"]


def test_equal_nodes_are_shared():
    graph = cleaned(lambda x: graphc.exp(x) + graphc.exp(x), X)
    assert ops(graph) == ["exp", "add"]


def test_dead_nodes_go():
    def fn(x):
        graphc.exp(x)
        return graphc.tanh(x)

    assert ops(cleaned(fn, X)) == ["tanh"]


def test_constants_are_folded():
    graph = cleaned(lambda x: x * (graphc.sqrt(graphc.as_tensor(np.float32(4.0))) + 1.0), X)
    assert ops(graph) == ["constant", "multiply"]


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: x * 1.0,
        lambda x: x / 1.0,
        lambda x: x - 0.0,
        lambda x: graphc.negative(graphc.negative(x)),
    ],
    ids=["times one", "over one", "minus zero", "twice negative"],
)
def test_neutral_elements_go(fn):
    assert ops(cleaned(fn, X)) == []


def test_plus_zero_stays_because_it_changes_the_sign_of_zero():
    assert ops(cleaned(lambda x: x + 0.0, X)) == ["constant", "add"]


def test_times_zero_stays_because_of_nan():
    assert ops(cleaned(lambda x: x * 0.0, X)) == ["constant", "multiply"]


def test_permutations_compose_and_vanish():
    twice = lambda x: graphc.permute_dims(graphc.permute_dims(x, (1, 0)), (1, 0))  # noqa: E731
    assert ops(cleaned(twice, X)) == []


@pytest.mark.parametrize(("low", "high"), [(0.0, 0.0), (1.0, 0.0), (0.0, 2.0), (1.0, 2.0)])
def test_sums_of_padded_pieces_are_a_concat_where_they_pad_by_zero(low, high):
    def fn(x, y):
        left = graphc.pad(x, ((0, 0), (0, 6)), value=low)
        return left + graphc.pad(y, ((0, 0), (6, 0)), value=high)

    assert ("concat" in ops(cleaned(fn, X, X))) == (low == high == 0)


@pytest.mark.parametrize("first", list(itertools.permutations(range(3))), ids=str)
def test_permutations_that_do_not_commute_compose_in_their_order(first):
    for second in itertools.permutations(range(3)):
        graph = cleaned(
            lambda x, s=second: graphc.permute_dims(graphc.permute_dims(x, first), s) * 2.0,
            graphc.spec((2, 3, 5)),
        )
        assert ops(graph).count("permute_dims") <= 1


def test_the_transpose_of_a_product_is_the_product_of_transposes():
    def fn(a, b):
        return graphc.permute_dims(graphc.matmul(a, b), (1, 0))

    graph = cleaned(fn, X, graphc.spec((6, 3)))
    assert ops(graph) == ["permute_dims", "permute_dims", "matmul"]


def test_a_transposed_outer_product_is_that_of_the_transposed():
    fn = lambda a, b: graphc.permute_dims(a * b, (1, 0))  # noqa: E731
    graph = cleaned(fn, graphc.spec((4, 1)), graphc.spec((1, 6)))
    assert ops(graph) == ["permute_dims", "permute_dims", "multiply"]


def test_what_an_op_makes_of_a_whole_value_is_transposed_as_one():
    fn = lambda a, b: graphc.permute_dims(a * b, (1, 0))  # noqa: E731
    assert ops(cleaned(fn, X, graphc.spec((1, 6)))) == ["multiply", "permute_dims"]


def test_pointwise_ops_read_through_broadcasts():
    def fn(x):
        return x * graphc.broadcast_to(graphc.sum(x, axis=1, keepdims=True), (4, 6))

    assert ops(cleaned(fn, X)) == ["sum", "multiply"]


def test_relu_moves_behind_max_pooling():
    before = graphc.trace(lambda x: graphc.max_pool2d(graphc.relu(x), 2), graphc.spec((2, 3, 6, 6)))
    after = commute(before, CPU)
    assert ops(after) == ["max_pool2d", "relu"]
    assert_same_meaning(before, after)


def test_relu_stays_where_something_else_reads_it():
    def fn(x):
        y = graphc.relu(x)
        return graphc.max_pool2d(y, 2), y

    graph = graphc.trace(fn, graphc.spec((2, 3, 6, 6)))
    assert commute(graph, CPU) == graph


def test_every_node_keeps_the_users_line():
    def fn(x):
        return graphc.sum(graphc.exp(x) * 2.0 * 3.0)

    for node in cleaned(fn, X).nodes:
        assert node.where.lines and node.where.lines[0].startswith("test_clean.py:")


@pytest.mark.parametrize(("length", "shape"), [(0, (2,)), (1, ())])
def test_a_loop_that_reads_nothing_becomes_a_constant(length, shape):
    def fn(x):
        return graphc.scan(lambda c, _: (c + 1, graphc.zeros(shape)), x, None, length=length)[1]

    assert ops(cleaned(fn, X)) == ["constant"]
