"""Gates: sections of one contraction in one kernel, and gradients of slices without padding."""

from itertools import pairwise

import pytest

import graphc
from graphc import text
from graphc.ops.fused import Fused
from tests.kernels.cells import gru, lstm, peephole
from tests.passes.meaning import assert_same_meaning, run_all

SPEC = graphc.spec
N, H = 6, 5
LSTM = SPEC((N, H)), SPEC((N, H)), SPEC((N, 4 * H)), SPEC((4 * H, H))
CELLS = {
    lstm: LSTM,
    gru: (SPEC((N, H)), SPEC((N, 3 * H)), SPEC((3 * H, H)), SPEC((H,))),
    peephole: (*LSTM[:3], SPEC((H, 4 * H)), SPEC((3 * H,))),
}


def fused(graph):
    return [n.op for n in graph.nodes if isinstance(n.op, Fused)]


def ops(kernel):
    return [n.op.name for n in kernel.body.nodes]


@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: cell.__name__)
def test_a_step_of_any_cell_is_one_kernel(cell):
    stages = run_all(cell, *CELLS[cell])
    (kernel,) = fused(stages["layout"])
    assert kernel.template == "contract" and len(stages["layout"].nodes) == 1
    assert_same_meaning(stages["trace"], stages["layout"], 1e-6)


def test_the_gradient_of_slices_that_tile_a_value_is_a_concat():
    """One kernel makes the gradients of all gates where the products read them."""

    def loss(*arguments):
        h, c, _ = lstm(*arguments)
        return graphc.sum(h * c)

    stages = run_all(graphc.grad(loss, argnums=(0, 3)), *LSTM)
    graph = stages["layout"]
    assert "pad" not in [op for kernel in fused(graph) for op in ops(kernel)]
    gates, *products = fused(graph)
    assert ops(gates)[-1] == "concat"
    assert [ops(p)[-1] for p in products] == ["matmul", "matmul"]
    assert_same_meaning(stages["trace"], graph, 1e-5)


def test_a_pointwise_kernel_ends_in_a_concat_of_what_it_makes():
    def fn(x, y):
        z = x * y
        return graphc.concat([graphc.tanh(z), z + x], axis=1), z

    stages = run_all(fn, SPEC((4, 3)), SPEC((4, 3)))
    (kernel,) = fused(stages["layout"])
    assert kernel.template == "pointwise"
    assert_same_meaning(stages["trace"], stages["layout"])


@pytest.mark.parametrize("gap", [0, 1])
def test_pieces_that_do_not_tile_a_value_stay_padded(gap):
    def fn(x):
        return graphc.sum(x[:, 0:2] ** 2) + graphc.sum(x[:, 2 + gap : 4] ** 3)

    stages = run_all(graphc.grad(fn), SPEC((3, 4)))
    names = [n.op.name for n in stages["clean"].nodes]
    assert ("pad" in names) == bool(gap) and ("concat" in names) != bool(gap)
    assert_same_meaning(stages["trace"], stages["layout"], 1e-6)


def test_every_second_element_is_no_piece_however_many_there_are():
    """Two of four elements and the four from the second on: as many as the value has."""

    def fn(x):
        return graphc.sum(x[:, 0:4:2] ** 2) + graphc.sum(x[:, 2:6] ** 3)

    stages = run_all(graphc.grad(fn), SPEC((3, 6)))
    assert_same_meaning(stages["trace"], stages["layout"], 1e-6)


def test_what_else_a_value_adds_to_its_gradient_is_added_to_the_concat():
    def fn(x):
        return graphc.sum(x[:, 0:2] * x[:, 2:4]) + graphc.sum(graphc.tanh(x))

    stages = run_all(graphc.grad(fn), SPEC((3, 4)))
    assert "pad" not in [n.op.name for n in stages["clean"].nodes]
    assert_same_meaning(stages["trace"], stages["layout"], 1e-6)


@pytest.mark.parametrize(
    ("cut", "note"),
    [
        ((0, 3, 12), "its slices are not sections of one size along one axis"),
        (tuple(range(13)), "an epilogue holds at most 8 sections, here are 12"),
    ],
)
def test_the_dump_says_why_sections_are_not_read_in_the_epilogue(cut, note):
    def fn(x, w):
        z = graphc.matmul(x, w)
        return tuple(graphc.tanh(z[:, a:b]) for a, b in pairwise(cut))

    stages = run_all(fn, SPEC((4, 7)), SPEC((7, 12)))
    product, *others = fused(stages["layout"])
    assert product.note == note and len(others) == len(cut) - 1
    dump = str(stages["layout"])
    assert f"note={note!r}".replace(" ", "\\x20") in dump
    assert text.parse(dump) == stages["layout"]
    assert_same_meaning(stages["trace"], stages["layout"])


def test_sections_of_the_axis_that_numbers_the_matrices_are_read_behind_the_product():
    """Both operands have that axis."""

    def fn(x, w):
        z = graphc.matmul(x, w)
        return graphc.tanh(z[:2]) * z[2:]

    stages = run_all(fn, SPEC((4, 5, 7)), SPEC((4, 7, 6)))
    product, gate = fused(stages["layout"])
    assert product.note == "axis 0 of the output is not an axis of one operand alone"
    assert gate.template == "pointwise"
    assert_same_meaning(stages["trace"], stages["layout"])


def test_what_is_no_element_of_a_section_alone_is_computed_behind_the_product():
    """A running sum has a section's shape, a sum with more axes is pointwise; neither is both."""

    def fn(x, w, e):
        z = graphc.matmul(x, w)
        gate = graphc.tanh(z[:, :6]) * z[:, 6:]
        return graphc.cumulative_sum(gate, axis=1), gate + e

    stages = run_all(fn, SPEC((4, 7)), SPEC((7, 12)), SPEC((3, 4, 6)))
    product = fused(stages["layout"])[0]
    assert ops(product) == ["matmul", "slice", "tanh", "slice", "multiply"]
    assert_same_meaning(stages["trace"], stages["layout"], 1e-6)


def test_a_value_that_is_read_whole_too_is_stored_by_sections():
    def fn(x, w):
        z = graphc.matmul(x, w) + 1.0
        return graphc.tanh(z[:, :3]) * z[:, 3:], graphc.flip(z, axis=1), graphc.sum(z)

    stages = run_all(fn, SPEC((4, 7)), SPEC((7, 6)))
    first = fused(stages["layout"])[0]
    assert first.template == "contract" and len(first.body.outputs) == 2
    assert_same_meaning(stages["trace"], stages["layout"], 1e-6)


def test_what_the_product_itself_reads_is_a_kernel_of_its_own():
    """Though it has a section's shape, and nothing but the group reads it."""

    def gates(x, w):
        a, b, c, d = graphc.split(graphc.tanh(x) @ w, H, axis=1)
        return graphc.sigmoid(a) * graphc.tanh(b) + c * d

    stages = run_all(gates, SPEC((N, H)), SPEC((H, 4 * H)))
    first, second = fused(stages["layout"])
    assert ops(first) == ["tanh"] and second.template == "contract"
    assert_same_meaning(stages["trace"], stages["layout"], 1e-6)


def test_a_concat_and_a_sum_of_the_same_values_are_two_kernels():
    def both(x):
        y = graphc.tanh(x)
        return graphc.concat([x, y, x], axis=1), graphc.tanh(graphc.sum(y)), graphc.tanh(y)

    stages = run_all(both, SPEC((5, 5)))
    kernels = [ops(k) for k in fused(stages["layout"])]
    assert not [k for k in kernels if "concat" in k and "sum" in k]
    assert_same_meaning(stages["trace"], stages["layout"], 1e-6)
