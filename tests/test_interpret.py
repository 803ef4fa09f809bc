"""Graphs run in NumPy: outputs, and the state after the updates."""

import numpy as np

import graphc
from graphc.ir import Type
from graphc.ir.interpret import evaluate
from graphc.trace import Builder


def test_updates_read_the_old_contents_and_take_effect_at_the_end():
    builder = Builder("swap")
    with builder.building():
        a, b = (builder.add_state(n, Type((2,))) for n in "ab")
        builder.add_state("kept", Type(()))
        total = a + b
        builder.update(a, b)
        builder.update(b, a)
    state = {"a": np.ones(2), "b": np.zeros(2), "kept": np.float32(5)}
    (output,), after = evaluate(builder.graph([total]), [], state)
    np.testing.assert_array_equal(output, [1, 1])
    assert {n: v.tolist() for n, v in after.items()} == {"a": [0, 0], "b": [1, 1], "kept": 5}
    np.testing.assert_array_equal(state["a"], [1, 1])


def test_inputs_may_be_returned_and_read_twice():
    graph = graphc.trace(lambda x: (x, x * x, x), graphc.spec((2,)))
    outputs, after = evaluate(graph, [np.array([2.0, 3.0], np.float32)])
    assert [o.tolist() for o in outputs] == [[2, 3], [4, 9], [2, 3]] and after == {}


def test_wider_floats_are_computed_in_their_own_width():
    graph = graphc.trace(lambda x: graphc.exp(x), graphc.spec((1,)))
    ((y,), _) = evaluate(graph, [np.array([1.0])])
    assert y.dtype == np.float64 and abs(y[0] - np.e) < 1e-15


def test_overflow_gives_no_warning():
    graph = graphc.trace(lambda x: graphc.exp(x) / 0.0, graphc.spec((1,)))
    ((y,), _) = evaluate(graph, [np.array([1000.0], np.float32)])
    assert np.isinf(y).all()
