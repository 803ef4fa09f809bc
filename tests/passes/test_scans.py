"""What leaves the loops of scans, what they store, and what stays the same."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import graphc
from graphc import nn, optim
from graphc.base.errors import GraphError
from graphc.base.target import Target
from graphc.ir import Graph, Node, verify
from graphc.ops.loops.scan import Scan
from graphc.passes.layout.layout import layout
from graphc.passes.loops.hoist import hoist
from graphc.passes.simplify.clean import clean
from tests.nn.running import random
from tests.passes.meaning import CPU, assert_same_meaning, run_all

STEPS, BATCH, FEATURES, HIDDEN = 4, 16, 3, 5


def scans(graph: Graph) -> list[Node]:
    return [n for n in graph.nodes if isinstance(n.op, Scan)]


def names(graph: Graph) -> list[str]:
    return [n.op.name for n in graph.nodes]


def recurrent_loss(kind: str) -> Any:
    def loss(layer: Any, x: Any) -> Any:
        y, _ = layer(x)
        return graphc.mean(y * y)

    return loss, getattr(nn, kind)(FEATURES, HIDDEN)


def stages(kind: str, disable: tuple[str, ...] = ()) -> dict[str, Graph]:
    fn, layer = recurrent_loss(kind)
    spec = graphc.spec((STEPS, BATCH, FEATURES))
    program = graphc.compile(
        fn, layer, spec, update=optim.SGD(lr=0.1), device="reference", disable=disable
    )
    return program.stages


def test_a_scan_taken_apart_by_name_is_built_back() -> None:
    (scan,) = scans(graphc.trace(*sums_and_products()))
    loop = Scan.bind(scan)
    kinds = [[v.type.shape for v in pair] for pair in (*loop.constants, *loop.scanned)]
    assert kinds == [[(3,), (3,)], [(), (STEPS,)]]
    assert [c.initial.type.shape for c in loop.carries] == [(), (3,)]
    assert loop.rebuilt() == scan
    turned = replace(loop, carries=loop.carries[::-1]).rebuilt()
    assert turned.outputs == (scan.outputs[1], scan.outputs[0], scan.outputs[2])
    graph = Graph("turned", turned.inputs, (), (turned,), turned.outputs)
    verify(graph)
    a, b, xs = (random(*v.type.shape) for v in turned.inputs[1:])
    w = random(3)
    before, after = scan.op.reference(w, b, a, xs), turned.op.reference(w, a, b, xs)
    for x, y in zip(before, (after[1], after[0], after[2]), strict=True):
        np.testing.assert_array_equal(x, y)


def sums_and_products() -> tuple[Any, ...]:
    """A scan of one constant, two carries of different shapes, one scanned value, one stack."""

    def fn(w: Any, xs: Any) -> Any:
        def step(carry: Any, x: Any) -> Any:
            total, product = carry[0] + x, carry[1] * w * x
            return (total, product), total * 2

        return graphc.scan(step, (graphc.zeros(()), graphc.ones(3)), xs)

    return fn, graphc.spec(3), graphc.spec(STEPS)


def test_the_product_with_the_input_leaves_the_loop() -> None:
    graph = stages("LSTM")["hoist"]
    (scan,) = scans(graph)
    assert names(scan.op.body).count("matmul") == 1
    (product,) = [n for n in graph.nodes if n.op.name == "matmul"]
    assert product.output.type.shape == (STEPS * BATCH, 4 * HIDDEN)


def test_gradients_of_weights_are_one_product_each_behind_the_loop() -> None:
    graph = stages("LSTM")["clean_hoisted"]
    _, backward = scans(graph)
    assert names(backward.op.body).count("matmul") == 1  # the gradient of h alone
    assert backward.op.carries == 2
    shapes = [n.output.type.shape for n in graph.nodes if n.op.name == "matmul"]
    assert shapes.count((4 * HIDDEN, FEATURES)) == 1
    assert shapes.count((4 * HIDDEN, HIDDEN)) == 1
    assert "sum" not in names(backward.op.body)


def test_the_gates_are_one_stack_and_tanh_is_computed_again() -> None:
    graph = stages("LSTM")["store_or_recompute"]
    forward, backward = scans(graph)
    extra = [v.type.shape for v in forward.op.stacks]
    assert extra.count((BATCH, 4 * HIDDEN)) == 1
    assert "matmul" not in names(forward_part(backward))
    assert names(backward.op.body).count("sigmoid") == 0
    assert names(backward.op.body).count("tanh") == 1


def forward_part(backward: Node) -> Graph:
    """The nodes of the backward body that repeat the forward pass."""
    body = backward.op.body
    kept = tuple(n for n in body.nodes if not n.outputs[0].name.startswith("d."))
    return Graph("forward", body.inputs, (), kept, ())


def test_without_the_pass_the_gradient_repeats_the_forward_step() -> None:
    off = ("store_or_recompute", "store_or_recompute_traced")
    forward, backward = scans(stages("LSTM", off)["clean"])
    assert not any(v.type.shape == (BATCH, 4 * HIDDEN) for v in forward.op.stacks)
    assert names(backward.op.body).count("sigmoid") == 3


def test_what_was_decided_stands_in_the_plan_and_its_switch_in_the_environment(
    unbuilt: None,
) -> None:
    fn, layer = recurrent_loss("LSTM")
    spec = graphc.spec((STEPS, BATCH, FEATURES))
    notes = graphc.compile(fn, layer, spec, update=optim.SGD(lr=0.1), device="cpu").plan.notes
    assert any(note.startswith("store_or_recompute: ") and "recomputes" in note for note in notes)


def test_every_stage_computes_the_same() -> None:
    for kind in ("LSTM", "GRU", "RNN"):
        fn, layer = recurrent_loss(kind)
        x = random(STEPS, BATCH, FEATURES)
        results = []
        for disable in ((), ("hoist", "hoist_gradient"), ("store_or_recompute",), ("clean",)):
            model = getattr(nn, kind)(FEATURES, HIDDEN)
            model.load_state_dict(layer.state_dict())
            step = graphc.compile(
                fn,
                model,
                graphc.spec(x.shape),
                update=optim.SGD(lr=0.5),
                device="reference",
                disable=disable,
            )
            losses = [step(x) for _ in range(3)]
            results.append((losses, model.state_dict()))
        for losses, state in results[1:]:
            np.testing.assert_allclose(losses, results[0][0], rtol=1e-5)
            for name, array in state.items():
                np.testing.assert_allclose(array, results[0][1][name], atol=1e-6)


def test_what_does_not_change_in_the_loop_is_computed_once() -> None:
    def fn(x: Any, w: Any) -> Any:
        return graphc.scan(lambda c, e: (c + graphc.exp(w) * e, None), x[0], x)[0]

    before = graphc.trace(fn, graphc.spec((4, 3)), graphc.spec(3))
    after = hoist(before, CPU)
    assert_same_meaning(before, after, tolerance=1e-6)
    (scan,) = scans(after)
    assert "exp" not in names(scan.op.body) and "exp" in names(after)


def test_unused_carries_stacks_and_inputs_vanish() -> None:
    def fn(x: Any, w: Any) -> Any:
        def step(carry: Any, element: Any) -> Any:
            a, b, same = carry
            return (a + element, b * w, same), (a, b, element + same)

        (a, _, same), (_, _, last) = graphc.scan(step, (x[0], w, w), x)
        return a + same, last

    before = graphc.trace(fn, graphc.spec((4, 3)), graphc.spec(3))
    after = clean(before, CPU)
    assert_same_meaning(before, after, tolerance=1e-6)
    (scan,) = scans(after)
    assert (scan.op.carries, scan.op.xs, len(scan.op.stacks)) == (1, 1, 1)


def test_layouts_reach_the_loop_where_the_batch_fills_the_lanes() -> None:
    graph = layout(stages("GRU")["fuse_updates"], Target("cpu", lanes=16))
    forward, backward = scans(graph)
    for scan in (forward, backward):
        for value in (*scan.op.old_carries, *scan.op.new_carries, *scan.op.stacks):
            assert str(value.type.layout) == "{lanes=0x16}"
        assert all(str(v.type.layout) == "{lanes=1x16}" for _, v in Scan.bind(scan).stacks)
    narrow = layout(stages("GRU")["fuse_updates"], Target("cpu", lanes=4))  # of the same values
    wide = str(graph).replace("x16}", "x4}").replace(",16)", ",4)")
    assert str(narrow).split() == wide.split()


def test_a_value_stacked_twice_is_stored_once_whatever_passes_are_off() -> None:
    def loss(x: Any) -> Any:
        def step(carry: Any, element: Any) -> Any:
            carry = graphc.tanh(carry + element)
            return carry, (carry, carry)

        _, (a, b) = graphc.scan(step, x[0], x)
        return graphc.sum(a * a + b)

    def run(*disable: str) -> Any:
        spec = graphc.spec((4, 3))
        both = lambda x: graphc.value_and_grad(loss)(x)  # noqa: E731
        return graphc.compile(both, spec, device="reference", disable=disable)(random(4, 3))

    expected = run("store_or_recompute_traced", "store_or_recompute", "hoist", "hoist_gradient")
    for got in (run(), run("store_or_recompute_traced", "simplify")):
        for a, b in zip(got, expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5)


def test_lanes_end_where_a_kernel_of_the_body_mixes_the_batch() -> None:
    def fn(x: Any) -> Any:
        def step(carry: Any, element: Any) -> Any:
            mixed = graphc.pad(carry, [(1, 1), (0, 0)])
            return graphc.tanh(carry + element), graphc.sum(mixed * mixed)

        return graphc.scan(step, x[0], x)

    graph = run_all(fn, graphc.spec((3, 16, 4)))
    assert "relayout" in str(graph["layout"])
    assert_same_meaning(graph["trace"], graph["layout"], tolerance=1e-6)


def test_what_a_loop_inside_reads_stays_with_it() -> None:
    """A reduction that leads to stacks alone, but through a loop, which cannot leave."""

    def fn(x: Any, c: Any) -> Any:
        def step(carry: Any, element: Any) -> Any:
            carry = graphc.tanh(carry + element)
            total = graphc.sum(carry) * 2
            last, _ = graphc.scan(lambda c, _: (graphc.tanh(c), None), total, length=3)
            return carry, last

        return graphc.scan(step, c, x)

    before = graphc.trace(fn, graphc.spec((4, 3)), graphc.spec(3))
    assert_same_meaning(before, hoist(before, CPU), tolerance=1e-6)


def test_a_view_that_another_sum_reads_stays_in_the_loop() -> None:
    def fn(x: Any, c: Any) -> Any:
        def step(carry: Any, element: Any) -> Any:
            total, state = carry
            state = graphc.tanh(state + element)
            turned = graphc.matrix_transpose(state)
            return (total + turned, graphc.tanh(turned + element)), None

        return graphc.scan(step, (c, c), x)

    before = graphc.trace(fn, graphc.spec((4, 3, 3)), graphc.spec((3, 3)))
    assert_same_meaning(before, hoist(before, CPU), tolerance=1e-6)


def test_a_view_that_only_a_sum_reads_leaves_the_loop() -> None:
    """What it views is stacked for another reader behind the loop: nothing more is for the sum."""

    def fn(x: Any, c: Any) -> Any:
        def step(carry: Any, element: Any) -> Any:
            total, state = carry
            state = graphc.tanh(state + element)
            return (total + graphc.matrix_transpose(state), state), graphc.sum(state, axis=0)

        return graphc.scan(step, (c, c), x)

    before = graphc.trace(fn, graphc.spec((4, 3, 3)), graphc.spec((3, 3)))
    after = hoist(before, CPU)
    assert_same_meaning(before, after, tolerance=1e-6)
    (loop,) = scans(after)
    assert names(loop.op.body) == ["add", "tanh"] and len(loop.op.stacks) == 1


def test_a_stack_that_becomes_a_carry_changes_the_axis_of_its_lanes() -> None:
    """As many iterations as there are sequences: either axis may be taken for the batch."""

    def fn(x: Any) -> Any:
        step = lambda c, e: (graphc.tanh(c + e), c)  # noqa: E731
        _, stack = graphc.scan(step, x[0], x)
        last, _ = graphc.scan(lambda c, e: (graphc.tanh(c + e), None), stack, x[:5])
        return last

    graph = run_all(fn, graphc.spec((16, 16, 4)))["layout"]
    first, second = scans(graph)
    assert str(first.outputs[1].type.layout) == "{lanes=1x16}"
    assert str(second.inputs[0].type.layout) == "{lanes=0x16}"


def test_a_body_is_verified_like_any_graph() -> None:
    def fn(x: Any) -> Any:
        return graphc.scan(lambda c, e: (graphc.tanh(c + e), None), x[0], x)[0]

    graph = graphc.trace(fn, graphc.spec((4, 3)))
    (node,) = scans(graph)
    body = replace(node.op.body, nodes=node.op.body.nodes[1:])
    broken = replace(node, op=replace(node.op, body=body))
    nodes = tuple(broken if n is node else n for n in graph.nodes)
    with pytest.raises(
        GraphError, match=r"^tanh reads %add : f32\[3\], which is not defined before"
    ):
        verify(replace(graph, nodes=nodes))


def test_a_sum_of_integers_keeps_its_dtype_outside_the_loop() -> None:
    def fn(x: Any) -> Any:
        return graphc.scan(lambda c, e: (c + e, None), x[0], x)[0]

    before = graphc.trace(fn, graphc.spec((4, 3), "int32"))
    after = hoist(before, CPU)
    assert_same_meaning(before, after)
    assert not scans(after)


def test_terms_that_nothing_else_reads_are_added_up_in_the_loop() -> None:
    """Else the loop would stack as many of them as it has iterations: so is the gradient of what a
    decoder attends to."""

    def loss(memory: Any, x: Any) -> Any:
        def step(carry: Any, element: Any) -> Any:
            weights = graphc.softmax(graphc.sum(memory * carry, axis=1), axis=0)
            carry = graphc.tanh(element + weights @ memory)
            return carry, None

        return graphc.sum(graphc.scan(step, x[0], x)[0])

    def slopes(memory: Any, x: Any) -> Any:
        return graphc.value_and_grad(loss)(memory, x)[1]

    graph = run_all(slopes, graphc.spec((9, 3)), graphc.spec((50, 3)))
    sizes = [v.type.size for n in scans(graph["clean_hoisted"]) for v in n.outputs]
    assert 9 * 3 in sizes and max(sizes) < 50 * 9 * 3
    assert_same_meaning(graph["trace"], graph["clean_hoisted"], tolerance=1e-5)


def test_a_sum_over_axes_that_changed_places_reads_no_lanes() -> None:
    def fn(x: Any, w: Any) -> Any:
        step = lambda c, e: (graphc.tanh(c + e * w), None)  # noqa: E731
        last, _ = graphc.scan(step, x[0], x)
        return graphc.sum(graphc.square(graphc.permute_dims(last, (1, 0, 2)))), last

    graph = run_all(fn, graphc.spec((5, 16, 32, 16)), graphc.spec(16))["layout"]
    (total,) = [n for n in graph.nodes if "sum" in str(n.op)]
    assert all(v.type.layout.axis is None for v in total.inputs)


def test_a_sum_over_one_of_two_axes_like_the_batch_reads_no_lanes() -> None:
    def fn(x: Any) -> Any:
        last, y = graphc.scan(lambda c, e: (graphc.tanh(c + e), c), x[0], x)
        return last * 0.5 + graphc.sum(y, axis=1)

    graph = run_all(fn, graphc.spec((16, 16, 3)))["layout"]
    (total,) = [n for n in graph.nodes if "sum" in str(n.op)]
    assert all(v.type.layout.axis is None for v in total.inputs)


def test_whatever_op_reads_elements_alone_leaves_the_loop() -> None:
    """An op says itself what it becomes for all iterations: there is no list of those that may."""

    def fn(images: Any, table: Any, places: Any) -> Any:
        def step(carry: Any, element: Any) -> Any:
            image, place = element
            rows = graphc.sum(graphc.take(table, place, 0)) + graphc.max(graphc.sort(place))
            return carry * 0.5 + graphc.max_pool2d(image, 2) * rows, graphc.cumulative_sum(image, 1)

        return graphc.scan(step, graphc.zeros((2, 3, 2, 2)), (images, places))

    specs = graphc.spec((5, 2, 3, 4, 4)), graphc.spec((7, 4)), graphc.spec((5, 3), "int32")
    before = graphc.trace(fn, *specs)
    after = hoist(before, CPU)
    assert_same_meaning(before, after, tolerance=1e-5)
    (loop,) = scans(after)
    assert not {"take", "sort", "max_pool2d", "cumsum"} & set(names(loop.op.body))


def test_the_gradient_of_a_filter_is_one_convolution_behind_the_loop() -> None:
    def slopes(images: Any, w: Any) -> Any:
        def loss(w: Any) -> Any:
            step = lambda c, e: (graphc.tanh(graphc.conv2d(c, w, padding=1) + e), None)  # noqa: E731
            return graphc.sum(graphc.scan(step, images[0], images)[0])

        return graphc.grad(loss)(w)

    graph = run_all(slopes, graphc.spec((5, 2, 3, 4, 4)), graphc.spec((3, 3, 3, 3)))
    after = graph["clean_hoisted"]
    assert [n.op.name for n in after.nodes].count("conv2d_wgrad") == 1
    assert not any("conv2d_wgrad" in names(n.op.body) for n in scans(after))
    assert_same_meaning(graph["trace"], after, tolerance=1e-4)


def test_a_loop_of_no_iterations_stays_as_it_is() -> None:
    def fn(images: Any) -> Any:
        step = lambda c, e: (c + 1, graphc.max_pool2d(e, 2))  # noqa: E731
        return graphc.scan(step, 0.0, images)

    before = graphc.trace(fn, graphc.spec((0, 2, 3, 4, 4)))
    assert_same_meaning(before, hoist(before, CPU))
