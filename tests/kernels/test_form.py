"""Forms of nodes: what has one form, what has another, and what a kernel's names are."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

import graphc
from graphc.base.target import Target
from graphc.ir import REGISTRY, Graph, Node, Type, Value, Where
from graphc.kernels.cpu.lower import lower_cpu
from graphc.kernels.cuda.lower import lower_cuda
from graphc.kernels.lower import lower
from graphc.kernels.program.body.names import OPEN
from graphc.kernels.program.form import canonical_text, filled, hole, node_form
from graphc.kernels.program.kernel import Kernel
from graphc.ops.fused import KernelNode, kernels_in
from graphc.ops.pointwise.arithmetic import Add, Subtract
from tests.kernels.harness import fuse
from tests.small_models import MODELS, loss_fn

CPU, CUDA = Target("cpu", 16, "fixed"), Target("cuda", 1, "sm_90")
X = graphc.spec((6, 20))


def node_of(function, *specs) -> KernelNode:
    """The only kernel of a function."""
    (node,) = kernels_in(graphc.compile(function, *specs, device="reference").graph)
    return node


def renamed(node: KernelNode) -> KernelNode:
    """The node with other names, of other lengths, in reverse alphabetical order."""
    body = node.body
    values = dict.fromkeys([*body.inputs, *(v for n in body.nodes for v in n.outputs)])
    new = {v: Value("z" * (len(values) - i) + ".w", v.type) for i, v in enumerate(values)}

    def of(given):
        return tuple(new[v] for v in given)

    nodes = tuple(replace(n, inputs=of(n.inputs), outputs=of(n.outputs)) for n in body.nodes)
    graph = replace(
        body, name="other", inputs=of(body.inputs), nodes=nodes, outputs=of(body.outputs)
    )
    op = replace(node.op, kernel="quite_another_name", body=graph)
    where = Where("elsewhere", ("other.py:9",))
    return KernelNode(op, of(body.inputs), of(body.outputs), where)


@pytest.mark.parametrize("target", [CPU, CUDA], ids=["cpu", "cuda"])
@pytest.mark.parametrize(
    "function",
    [
        lambda x, y: graphc.relu(x - y),
        lambda x, y: (x + y, graphc.relu(x + y)),
        lambda x, y: graphc.relu(graphc.matmul(x, y.T)) + 1.0,
        lambda x, y: graphc.cumsum(x * y, axis=1),
        lambda x, y: graphc.sort(x + y, axis=1),
        lambda x, y: graphc.softmax(x + y, axis=1),
    ],
    ids=["pointwise", "outputs", "product", "prefix", "sort", "softmax"],
)
def test_names_are_no_part_of_a_kernel(function, target):
    node = node_of(function, X, X)
    other = renamed(node)
    assert node_form(node) == node_form(other) and hash(node_form(node)) == hash(node_form(other))
    first, second = lower(node, target), lower(other, target)
    assert first.canonical == second.canonical
    assert first.source != second.source
    assert "quite_another_name" in second.source and "z_w_" in second.source
    assert second.source.startswith("// quite_another_name: ")
    assert "(elsewhere" in second.source.partition("\n")[0] or "other.py:9" in second.source
    assert not any(OPEN in x.source for x in (first, second))
    assert not any(OPEN in launch.symbol for launch in second.launches)


def test_what_is_computed_is_part_of_it():
    nodes = [
        node_of(lambda x, y: x - y, X, X),
        node_of(lambda x, y: x + y, X, X),
        node_of(lambda x, y: x - y, X, graphc.spec((20,))),
        node_of(lambda x, y: x - y, graphc.spec((6, 20), "int32"), graphc.spec((6, 20), "int32")),
        *(node_of(lambda x, y, z=z: x - graphc.maximum(y, z), X, X) for z in (0.0, -0.0, 1.0)),
        node_of(lambda x, y: (x - y, graphc.relu(x - y)), X, X),
    ]
    assert len({node_form(node) for node in nodes}) == len(nodes)
    for target in (CPU, CUDA):
        assert len({lower(node, target).canonical for node in nodes}) == len(nodes)


def test_nodes_of_two_forms_may_have_one_text():
    """What is pointwise sees one axis."""
    nodes = [node_of(lambda x, y: x - y, *[graphc.spec(s)] * 2) for s in ((6, 20), (4, 30))]
    assert node_form(nodes[0]) != node_form(nodes[1])
    for target in (CPU, CUDA):
        assert len({lower(node, target).canonical for node in nodes}) == 1


def test_a_kernel_is_not_named_like_a_function_that_it_calls():
    node = node_of(lambda x: graphc.exp(x), X)
    kernel = lower(node, CPU)
    assert (node.op.kernel, kernel.name) == ("exp", "exp_kernel")
    assert 'extern "C" void exp_kernel(' in kernel.source


def test_arguments_in_another_order_make_another_kernel():
    x, y, z = (Value(name, Type((8,), "f32")) for name in "xyz")

    def kernel(*inputs: Value) -> Kernel:
        return lower(fuse(Graph("g", (x, y), (), (Node(Subtract(), inputs, (z,)),), (z,))), CPU)

    assert kernel(x, y).canonical != kernel(y, x).canonical


def test_nodes_of_one_form_are_lowered_once_with_names_of_their_own():
    node, alike = node_of(lambda x, y: graphc.relu(x) * y, X, X), {}
    first = lower(node, CPU, alike=alike)
    second = lower(renamed(node), CPU, alike=alike)
    assert len(alike) == 1 and first.text is second.text
    assert (first.name, second.name) == (node.op.kernel, "quite_another_name")
    lower(node, CPU, in_loop=True, alike=alike)
    assert len(alike) == 1  # the CPU has one kernel for both
    along = dict[object, Kernel]()
    lower(node, CUDA, alike=along)
    lower(node, CUDA, in_loop=True, alike=along)
    assert len(along) == 2


def test_an_op_of_the_users_is_lowered_each_time():
    @dataclass(frozen=True)
    class Own(Add):
        name = "own_of_test_form"

    Own.__module__ = "users"
    x, z = Value("x", Type((8,), "f32")), Value("z", Type((8,), "f32"))
    node = fuse(Graph("g", (x,), (), (Node(Own(), (x, x), (z,)),), (z,)))
    assert node_form(node).is_own
    alike: dict[object, Kernel] = {}
    lower(node, CPU, alike=alike)
    assert not alike
    del REGISTRY["own_of_test_form"]


def test_registers_that_would_get_one_name_get_two():
    text = f"{hole(0)}_ {hole(0)}_1_ {hole(1)}_ {hole(1)}_data sum_ {hole(2)}_ {hole(0)}_1_"
    names = ("add", "add_1", "sum")
    words = filled(text, names).split()
    assert words[:2] == ["add_", "add_1_"] and words[3] == "add_1_data" and words[-1] == words[1]
    assert len(set(words)) == len(words) - 1


def test_a_name_that_looks_like_a_number_is_one_of_the_users():
    x, y = (Value(f"{hole(0)}{end}", Type((8,), "f32")) for end in ("x", "y"))
    source = lower(fuse(Graph("g", (x,), (), (Node(Add(), (x, x), (y,)),), (y,))), CPU).source
    assert OPEN not in source and "v0_x_data" in source


def test_texts_are_equal_up_to_names_alone():
    a, b, c = hole(3), hole(7), hole(12)
    assert canonical_text(f"{a}_ = {b}_ - {a}_;") == canonical_text(f"{c}_ = {a}_ - {c}_;")
    assert canonical_text(f"{a}_ - {b}_") != canonical_text(f"{a}_ - {a}_")
    assert canonical_text(f"{a}_ - {b}_1_") != canonical_text(f"{a}_ - {b}_")


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("name", list(MODELS))
def test_kernels_of_models_are_those_of_their_own_names(name, device):
    """What names are replaced in is what the node itself is lowered to, spaces aside."""
    model, shape = MODELS[name]
    program = graphc.compile(
        loss_fn,
        model(),
        graphc.spec(shape),
        graphc.spec(shape[:1], "int32"),
        update=graphc.optim.SGD(lr=0.1),
        device="reference",
    )
    target = CPU if device == "cpu" else CUDA
    nodes = [n for n in kernels_in(program.graph) if n.op.template != "group"]
    assert len(nodes) > 4
    for node in nodes:
        own = lower_cpu(node, CPU) if target is CPU else lower_cuda(node, CUDA)
        made = lower(node, target)
        texts = ["".join(k.source.replace("//", "").split()) for k in (made, own)]
        assert texts[0] == texts[1], node.op.kernel
        assert [x.symbol for x in made.launches] == [x.symbol for x in own.launches]
        assert (made.name, made.phases, made.inplace) == (own.name, own.phases, own.inplace)
