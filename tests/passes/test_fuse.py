"""What becomes one kernel, and that it means the same."""

from dataclasses import replace

import numpy as np
import pytest

import graphc
from graphc import nn, optim
from graphc.ir import Graph, Where
from graphc.ops.fused import Fused, KernelNode
from graphc.passes.fuse.groups import fuse_groups
from graphc.passes.fuse.updates import fuse_updates
from graphc.runtime.plan.plan import Launch
from graphc.text import parse
from tests.passes.meaning import CPU, assert_same_meaning, run_all


def templates(graph):
    return [n.op.template if isinstance(n.op, Fused) else n.op.name for n in graph.nodes]


def body(node):
    return [n.op.name for n in node.op.body.nodes]


def test_bias_and_relu_go_into_the_convolution():
    def fn(x, w, b):
        return graphc.relu(graphc.conv2d(x, w, b))

    specs = graphc.spec((2, 3, 8, 8)), graphc.spec((5, 3, 3, 3)), graphc.spec((5,))
    stages = run_all(fn, *specs)
    graph = stages["fuse_contract"]
    assert templates(graph) == ["contract"]
    assert body(graph.nodes[0]) == ["conv2d", "reshape", "add", "relu"]
    assert_same_meaning(stages["trace"], graph)


def test_a_residual_that_is_ready_is_added_in_the_epilogue():
    stages = run_all(
        lambda x, y, w: graphc.relu(graphc.matmul(x, w) + y),
        graphc.spec((4, 6)),
        graphc.spec((4, 5)),
        graphc.spec((6, 5)),
    )
    assert templates(stages["fuse_updates"]) == ["contract"]


def test_two_products_that_are_added_do_not_wait_for_each_other():
    def fn(x, v, w):
        a, b = graphc.matmul(x, v), graphc.matmul(x, w)
        return a + b, b * (a * 2.0)

    square = graphc.spec((4, 4))
    stages = run_all(fn, square, square, square)
    assert_same_meaning(stages["trace"], stages["fuse_updates"])


@pytest.mark.parametrize(
    "elsewhere",
    [lambda y: graphc.flip(y, axis=1), lambda y: y[0:1]],
    ids=["flip", "row"],
)
def test_an_epilogue_does_not_read_the_product_at_another_index(elsewhere):
    def fn(x, w):
        y = graphc.matmul(x, w)
        return graphc.tanh(y) - elsewhere(y), y * elsewhere(graphc.tanh(y))

    stages = run_all(fn, graphc.spec((5, 6)), graphc.spec((6, 5)))
    graph = stages["fuse_updates"]
    assert templates(graph) == ["contract", "pointwise", "pointwise"]
    assert body(graph.nodes[0]) == ["matmul", "tanh"]
    assert_same_meaning(stages["trace"], graph)


def test_softmax_is_one_kernel():
    stages = run_all(lambda x: graphc.softmax(x, axis=-1), graphc.spec((4, 7)))
    assert templates(stages["fuse_updates"]) == ["reduce"]
    assert_same_meaning(stages["trace"], stages["fuse_updates"])


def test_a_value_read_at_another_index_is_memory():
    def fn(x):
        y = graphc.exp(x)
        return y + graphc.permute_dims(y, (1, 0))

    stages = run_all(fn, graphc.spec((4, 4)))
    assert templates(stages["fuse_updates"]) == ["pointwise", "pointwise"]
    assert_same_meaning(stages["trace"], stages["fuse_updates"])


def test_rows_that_look_like_columns_are_not_mixed_up():
    def fn(x):
        return x + graphc.sum(x, axis=1)

    stages = run_all(fn, graphc.spec((4, 4)))
    assert templates(stages["fuse_updates"]) == ["reduce", "pointwise"]
    assert_same_meaning(stages["trace"], stages["fuse_updates"])


def test_reductions_over_different_axes_are_two_kernels():
    def fn(x):
        return graphc.sum(x, axis=0), graphc.sum(x, axis=1)

    stages = run_all(fn, graphc.spec((4, 4)))
    assert templates(stages["fuse_updates"]) == ["reduce", "reduce"]


class Net(nn.Module):
    def __init__(self):
        self.conv = nn.Conv2d(1, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.fc = nn.Linear(4 * 4 * 4, 10)

    def forward(self, x):
        x = graphc.max_pool2d(graphc.relu(self.norm(self.conv(x))), 2)
        return self.fc(graphc.flatten(x))


def loss_fn(model, x, y):
    return graphc.cross_entropy(model(x), y)


def stages_of(batch, **options):
    program = graphc.compile(
        loss_fn,
        Net(),
        graphc.spec((batch, 1, 8, 8)),
        graphc.spec((batch,), "int32"),
        device="reference",
        **options,
    )
    return program.stages


@pytest.mark.parametrize("update", [None, "sgd"])
def test_every_pass_keeps_the_meaning_of_a_training_step(update):
    options = {"update": optim.SGD(lr=0.1, momentum=0.9)} if update else {}
    stages = stages_of(20, **options)
    first = stages["differentiate" if update else "commute"]
    for name, graph in list(stages.items())[list(stages).index("clean") :]:
        assert_same_meaning(first, graph, tolerance=2e-5 if name else 0)


def test_every_node_is_a_kernel_after_fusion():
    graph = stages_of(20, update=optim.SGD(lr=0.1, momentum=0.9))["fuse_updates"]
    assert {n.op.name for n in graph.nodes} <= {"kernel", "reshape"}


def test_all_parameters_are_updated_by_one_kernel():
    graph = stages_of(20, update=optim.SGD(lr=0.1, momentum=0.9))["fuse_updates"]
    trained = {"conv.weight", "conv.bias", "norm.weight", "norm.bias", "fc.weight", "fc.bias"}
    new = {value: old.name for old, value in graph.updates}
    writers = [n for n in graph.nodes if any(new.get(v) in trained for v in n.outputs)]
    assert len(writers) == 1
    assert trained <= {new[v] for v in writers[0].outputs}


def test_the_batch_lies_in_the_lanes_of_convolutional_networks():
    from graphc.passes.layout.layout import layout

    graph = layout(stages_of(20)["fuse_updates"], CPU)
    laned = [v for n in graph.nodes for v in n.outputs if v.type.layout.axis == 0]
    assert laned and all(v.type.shape[0] == 20 for v in laned)
    assert all(v.type.layout.axis is None for v in (*graph.inputs, *graph.state, *graph.outputs))


def test_a_small_batch_stays_row_major():
    from graphc.passes.layout.layout import layout

    graph = stages_of(4)["fuse_updates"]
    assert layout(graph, CPU) == graph


def test_kernel_names_tell_module_and_gradient():
    graph = stages_of(20, update=optim.SGD(lr=0.1))["fuse_updates"]
    names = [n.op.kernel for n in graph.nodes if isinstance(n.op, Fused)]
    assert any(n.startswith("conv_") and "wgrad" in n for n in names)
    assert any(n.startswith("fc_") and "dgrad" in n for n in names)
    assert any(n.startswith("fc_") and "wgrad" in n for n in names)
    assert len(set(names)) == len(names)


class Named(nn.Module):
    def __init__(self) -> None:
        self.norm, self.fc = nn.LayerNorm(12), nn.Linear(12, 10)

    def forward(self, x: graphc.Tensor) -> graphc.Tensor:
        return self.fc(graphc.gelu(self.norm(x)))


def test_kernels_of_one_function_are_called_by_it() -> None:
    def loss(model, x, y):
        return graphc.cross_entropy(model(x), y)

    specs = graphc.spec((20, 12)), graphc.spec((20,), "int32")
    program = graphc.compile(
        loss, Named(), *specs, update=optim.Adam(), device="cuda", disable=("recompute",)
    )
    wheres = {s.kernel: s.where for s in program.plan.steps if isinstance(s, Launch)}
    assert {"norm_layer_norm_gelu", "fc_cross_entropy_backward_sum"} <= wheres.keys()
    assert {"cross_entropy", "adam_update"} <= wheres.keys()
    assert wheres["cross_entropy"].function == "cross_entropy"
    forward = f"test_fuse.py:{Named.forward.__code__.co_firstlineno + 1}"
    assert wheres["fc_cross_entropy_backward_sum"].lines[0] == forward
    assert wheres["adam_update"] == Where(derived=True, function="adam")


def test_a_kernel_of_many_words_says_how_many_more_it_has() -> None:
    def fn(x):
        return graphc.sin(graphc.cos(graphc.sigmoid(graphc.tanh(graphc.exp(x) + x))))

    program = graphc.compile(fn, graphc.spec(4), device="cuda")
    assert list(program.kernels) == ["exp_add_tanh_3_more"]
    assert "exp; add; tanh; sigmoid; cos; sin" in program.kernels["exp_add_tanh_3_more"]


def test_gradients_agree_with_finite_differences():
    def fn(x, w):
        return graphc.sum(graphc.tanh(graphc.matmul(x, w)) ** 2)

    specs = graphc.spec((3, 4), "float64"), graphc.spec((4, 2), "float64")
    graph = graphc.trace(graphc.grad(fn, argnums=(0, 1)), *specs)
    value = graphc.trace(fn, *specs)
    from graphc.ir.interpret import evaluate

    generator = np.random.default_rng(0)
    arrays = [generator.standard_normal(s.shape) for s in specs]
    grads = evaluate(graph, arrays, {})[0]
    for which, grad in enumerate(grads):
        for index in np.ndindex(grad.shape):
            ends = []
            for step in (1e-6, -1e-6):
                moved = [a.copy() for a in arrays]
                moved[which][index] += step
                ends.append(evaluate(value, moved, {})[0][0])
            assert grad[index] == pytest.approx((ends[0] - ends[1]) / 2e-6, rel=1e-6, abs=1e-8)


def test_scalars_of_a_rule_that_are_made_from_each_other_are_one_kernel():
    """It does not read what it makes itself."""
    graph = graphc.trace(lambda step: graphc.exp(graphc.sqrt(step)), graphc.spec(()))
    rule = Where(derived=True, function="adam")
    parts = []
    for number, node in enumerate(graph.nodes):
        alone = Graph(f"part{number}", node.inputs, (), (node,), node.outputs)
        parts.append(KernelNode(Fused(alone.name, alone), node.inputs, node.outputs, rule))
    assert len(parts) == 2
    after = fuse_updates(replace(graph, nodes=tuple(parts)), CPU)
    (merged,) = after.nodes
    assert (merged.op.kernel, merged.inputs) == ("adam_scalars", graph.inputs)
    assert_same_meaning(graph, after)


def test_what_two_nodes_of_a_kernel_compute_is_computed_and_stored_once():
    graph = parse(
        "graph g\n"
        "  in    %x : f32[4,5]\n"
        "  %a = tanh(%x) : f32[4,5]\n"
        "  %b = tanh(%x) : f32[4,5]\n"
        "  %c = negative(%b) : f32[4,5]\n"
        "  %d = add(%a, %b) : f32[4,5]\n"
        "  return %a, %b, %c, %d\n"
    )
    fused = fuse_groups(graph, [graph.nodes[:3]])
    kernel, rest = fused.nodes
    assert body(kernel) == ["tanh", "negative"] and len(kernel.outputs) == 2
    a, c = kernel.outputs
    assert rest.inputs == (a, a) and fused.outputs[:3] == (a, a, c)
    assert_same_meaning(graph, fused)
