"""Graphs as text: `parse` undoes `graph_text`, for random graphs, every op and odd values."""

from __future__ import annotations

import random
import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphc.base.errors import GraphError
from graphc.ir import DTYPES, Graph, Layout, Node, Type, Value, Where, verify
from graphc.ops.constant import Constant
from graphc.ops.fused import Fused, KernelNode
from graphc.ops.pointwise.arithmetic import Add
from graphc.text import INLINE, graph_text, large_constants, parse
from tests.ops.sample import for_each_op
from tests.ops.samples import CORE
from tests.text_mutations import mutated, programs

X = Value("x", Type((2, 3)))
W = Value("conv1.weight", Type((3,)))
Y = Value("y", Type((2, 3)))
ADD = Node(Add(), (X, W), (Y,), Where("block1.conv1", ("lenet.py:14", "util.py:3")))
GRAPH = Graph("loss_fn", (X,), (W,), (ADD,), (Y,), ((W, W),))


def test_the_function_that_a_node_is_part_of_is_written_and_read() -> None:
    for where in (
        Where("fc", ("net.py:3",), True, "softmax"),
        Where("", ("net.py:3",), False, "softmax"),
        Where("d", (), True, "adam"),
        Where("odd()", (), False, ""),
        Where("", (), False, "d"),
    ):
        graph = replace(GRAPH, nodes=(replace(ADD, where=where),))
        assert parse(graph_text(graph)) == graph
    assert "# d fc softmax() net.py:3" in str(
        replace(GRAPH, nodes=(replace(ADD, where=Where("fc", ("net.py:3",), True, "softmax")),))
    )


def constant_graph(array: np.ndarray) -> Graph:
    op = Constant.of(array)
    value = Value("c", *op.infer())
    return Graph("g", (), (), (Node(op, (), (value,)),), (value,))


def test_a_graph_prints_one_line_per_value_and_node():
    assert graph_text(GRAPH).splitlines() == [
        "graph loss_fn",
        "  in    %x : f32[2,3]",
        "  state %conv1.weight : f32[3]",
        "  %y = add(%x, %conv1.weight) : f32[2,3]  # block1.conv1 lenet.py:14 util.py:3",
        "  update %conv1.weight = %conv1.weight",
        "  return %y",
    ]
    assert parse(graph_text(GRAPH)) == GRAPH
    assert str(GRAPH) == graph_text(GRAPH)


def test_a_kernel_prints_its_body_below_itself():
    lanes = Type((2, 3), layout=Layout(0, 16))
    out = Value("out", lanes)
    body = Graph("add_kernel", (X, W), (), (Node(Add(), (X, W), (out,)),), (out,))
    graph = replace(
        GRAPH, nodes=(KernelNode(Fused("add_kernel", body), (X, W), (out,)),), outputs=(out,)
    )
    assert graph_text(graph).splitlines()[3:] == [
        "  %out = kernel add_kernel(%x, %conv1.weight) : f32[2,3]{lanes=0x16}",
        "      %out = add(%x, %conv1.weight) : f32[2,3]{lanes=0x16}",
        "  update %conv1.weight = %conv1.weight",
        "  return %out",
    ]
    assert parse(graph_text(graph)) == graph


@pytest.mark.parametrize("body_name", ["k", "another name"])
@pytest.mark.parametrize("same_inputs", [True, False])
@pytest.mark.parametrize("same_output", [True, False])
def test_a_body_may_differ_from_its_node_in_every_name(body_name, same_inputs, same_output):
    a = X if same_inputs else Value("a", X.type)
    out = Y if same_output else Value("out", Y.type)
    body = Graph(body_name, (a, W), (), (Node(Add(), (a, W), (out,)),), (out,))
    graph = replace(GRAPH, nodes=(KernelNode(Fused("k", body), (X, W), (Y,)), ADD))
    assert parse(graph_text(graph)) == graph


def test_a_body_without_nodes_or_inputs_parses_back():
    returns_input = Graph("k", (X, W), (), (), (X,))
    no_inputs = replace(constant_graph(np.ones((2, 3), np.float32)), name="k")
    for body in (returns_input, no_inputs):
        graph = replace(GRAPH, nodes=(KernelNode(Fused("k", body), (X, W), (Y,)),))
        assert parse(graph_text(graph)) == graph


@for_each_op(CORE)
def test_every_op_parses_back_with_its_attributes(sample):
    inputs = tuple(Value(f"in{i}", t) for i, t in enumerate(sample.inputs))
    outputs = tuple(Value(f"out{i}", t) for i, t in enumerate(sample.op.infer(*sample.inputs)))
    graph = Graph("g", inputs, (), (Node(sample.op, inputs, outputs),), outputs)
    parsed = parse(graph_text(graph), large_constants(graph))
    assert parsed == graph
    verify(parsed)


@pytest.mark.parametrize(
    "array",
    [
        np.array([0.1, -0.0, np.inf, -np.inf, 1e-45, 3.4028235e38], np.float32),
        np.array([np.nan, -np.nan], np.float32),
        np.array([0x7F800001, 0xFFC00123], np.uint32).view(np.float32),
        np.array([1 / 3, 65504, 6e-8, np.nan], np.float16),
        np.array([np.pi, 5e-324, -np.nan]),
        np.array(7.5, np.float32),
        np.array([[True], [False]]),
        np.array([-(2**63), 2**63 - 1]),
        np.array([255, 0], np.uint8),
        np.array([-128], np.int8),
        np.zeros((0, 3), np.float32),
    ],
    ids=str,
)
def test_a_small_constant_parses_back_to_the_same_bits(array):
    graph = constant_graph(array)
    (node,) = parse(graph_text(graph)).nodes
    assert node.op.array.tobytes() == array.tobytes()
    assert node.op.array.dtype == array.dtype
    assert parse(graph_text(graph)) == graph


def test_bfloat16_parses_back_to_the_same_bits():
    bits = np.arange(2**16, dtype=np.uint16).view(DTYPES["bf16"])
    for some in np.split(bits[:: 2**16 // (64 * INLINE) - 1][: 64 * INLINE], 64):
        graph = constant_graph(some)
        (node,) = parse(graph_text(graph)).nodes
        assert node.op.array.tobytes() == some.tobytes()
    nan = np.array([0x7FC0, 0xFFC0, 0x7F81, 0xFF81], np.uint16).view(DTYPES["bf16"])
    assert parse(graph_text(constant_graph(nan))) == constant_graph(nan)


@settings(max_examples=200, derandomize=True, deadline=None)
@given(st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=INLINE))
def test_any_bits_of_a_float_parse_back(bits):
    array = np.array(bits, np.uint32).view(np.float32)
    (node,) = parse(graph_text(constant_graph(array))).nodes
    assert node.op.array.tobytes() == array.tobytes()


def test_a_large_constant_prints_its_digest_and_is_looked_up():
    array = np.arange(INLINE + 1)
    graph = constant_graph(array)
    digest = graph.nodes[0].op.value.digest
    assert graph_text(graph).splitlines()[1] == f"  %c = constant() digest={digest} : i64[17]"
    assert large_constants(graph)[digest] is graph.nodes[0].op.array
    resolved = parse(graph_text(graph), {digest: array})
    assert resolved == graph
    assert np.array_equal(resolved.nodes[0].op.array, array)


def test_an_unresolved_constant_is_equal_printable_and_verifiable_but_not_runnable():
    graph = constant_graph(np.arange(20))
    unresolved = parse(graph_text(graph))
    assert unresolved == graph
    assert graph_text(unresolved) == graph_text(graph)
    verify(unresolved)
    digest = graph.nodes[0].op.value.digest
    message = f"constant: the elements of i64[20] {digest} are not known"
    with pytest.raises(GraphError, match=f"^{re.escape(message)}$"):
        unresolved.nodes[0].op.reference()


NAMES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8)
LINES = st.builds("{}:{}".format, st.text(st.characters(codec="utf-8"), max_size=8), st.integers(1))
WHERES = st.builds(
    Where,
    st.one_of(st.just(""), st.just("d"), NAMES),
    st.lists(LINES, max_size=2).map(tuple),
    st.booleans(),
)


@st.composite
def graphs(draw) -> Graph:
    """Graphs of additions and constants with any names, origins, layouts and types."""
    names = iter(draw(st.lists(NAMES, min_size=12, max_size=12, unique=True)))
    shape = tuple(draw(st.lists(st.integers(0, 3), max_size=3)))
    dtype = draw(st.sampled_from(sorted(DTYPES)))
    layouts = [Layout()] + [Layout(a, 2**w) for a in range(len(shape)) for w in range(2, 5)]

    def value() -> Value:
        return Value(next(names), Type(shape, dtype, draw(st.sampled_from(layouts))))

    inputs = tuple(value() for _ in range(draw(st.integers(0, 2))))
    state = tuple(value() for _ in range(draw(st.integers(0, 2))))
    values, nodes = [*inputs, *state], []
    for _ in range(draw(st.integers(1, 6))):
        out = value()
        if values and draw(st.booleans()):
            chosen = tuple(draw(st.sampled_from(values)) for _ in range(2))
            nodes.append(Node(Add(), chosen, (out,), draw(WHERES)))
        else:
            array = np.zeros(shape, DTYPES[dtype])
            nodes.append(Node(Constant.of(array), (), (out,), draw(WHERES)))
        values.append(out)
    picked = st.lists(st.sampled_from(values), max_size=3)
    updates = tuple(zip(state, draw(picked), strict=False))
    return Graph(draw(NAMES), inputs, state, tuple(nodes), tuple(draw(picked)), updates)


@settings(max_examples=100, derandomize=True, deadline=None)
@given(graphs())
def test_any_graph_parses_back(graph):
    assert_parses_back(graph)


@pytest.mark.slow
@settings(max_examples=1000, derandomize=True, deadline=None)
@given(graphs())
def test_very_many_graphs_parse_back(graph):
    assert_parses_back(graph)


def assert_parses_back(graph: Graph) -> None:
    again = parse(graph_text(graph))
    assert again == graph
    assert graph_text(again) == graph_text(graph)


@settings(max_examples=100, derandomize=True, deadline=None)
@given(graphs(), graphs())
def test_graphs_are_equal_exactly_if_their_texts_are(a, b):
    assert (a == b) == (graph_text(a) == graph_text(b))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "graph text: expected graph NAME, got no text"),
        ("grape g", "graph text, line 1: expected graph NAME, got 'grape g'"),
        ("graph g", "graph text, line 1: expected return after the last node, got 'graph g'"),
        ("graph g\n  in x", "graph text, line 2: expected %NAME : TYPE, got 'x'"),
        (
            "graph g\n\n  in %x : f33[2]",
            "graph text, line 3: expected a type such as f32[2,3], got 'f33[2]'",
        ),
        (
            "graph g\n  return %x",
            "graph text, line 2: expected a value that is defined before, got '%x'",
        ),
        (
            "graph g\n  x = add",
            "graph text, line 2: expected %OUTPUT = op(%INPUT, ...) ... : TYPE, got 'x = add'",
        ),
        (
            "graph g\n  %x = frob() : f32[]",
            "graph text, line 2: expected the name of an op, got 'frob'",
        ),
        ("graph g\n  %x = iota() : ", "graph text, line 2: expected 1 types, got ''"),
        (
            "graph g\n  %x = iota() size=3 : i32[3]",
            "graph text, line 2: expected the attributes of iota, got 'size'",
        ),
        (
            "graph g\n  %x = iota() shape=open(1) : i32[3]",
            "graph text, line 2: expected attribute=value, got 'shape=open(1)'",
        ),
        (
            "graph g\n  %x = constant() value=(1,2) : i32[3]",
            "graph text, line 2: expected 3 elements of i32[3], got '2'",
        ),
        (
            "graph g\n  in %x : f32[]\n  update %x\n  return",
            "graph text, line 3: expected update %STATE = %VALUE, got 'update %x'",
        ),
        (
            "graph g\n  in %x : f32[2]\n  state %x : f32[2]",
            "graph text, line 3: expected a name that is new, got '%x'",
        ),
        (
            "graph g\n  %x = iota() shape=(1,) axis=0 dtype='f32' : f32[1]\n  in %y : f32[2]",
            "graph text, line 3: expected inputs and state before nodes, got 'in %y : f32[2]'",
        ),
        (
            "graph g\n  state %s : f32[]\n  update %s = %s\n  %x = relu(%s) : f32[]",
            "graph text, line 4: expected an update or return, got '%x = relu(%s) : f32[]'",
        ),
        (
            "graph g\n  in %x : f32[1]{lanes=1x4}",
            "graph text, line 2: expected a type such as f32[2,3], got 'f32[1]{lanes=1x4}'",
        ),
        ("graph g\n  return x", "graph text, line 2: expected %NAME, got 'x'"),
        (
            "graph %110000;",
            "graph text, line 1: expected the codes of characters in a name, got '%110000;'",
        ),
        (
            "graph g\n  %x = iota() shape=(1,) axis=0 dtype='f32' : f32[1]  # m lenet.py",
            "graph text, line 2: expected a line such as file.py:3, got 'lenet.py'",
        ),
        (
            "graph g\n  %x = iota() shape=3 axis=0 dtype='f32' : f32[1]",
            "graph text, line 2: expected shape of iota as tuple[int, ...], got '3'",
        ),
        (
            "graph g\n  %x = constant() value=(256,) : u8[1]",
            "graph text, line 2: expected elements of u8[1], got '(256,)'",
        ),
        (
            "graph g\n  %x = kernel k() : f32[]\n  return %x",
            "graph text, line 2: expected the graph of the op, indented, got 'none'",
        ),
        (
            "graph g\n  %x = scan() length=1 carries=0 xs=0 reverse=False : f32[]\n      return",
            "graph text, line 2: expected body NAME behind the op, got 'return'",
        ),
        (
            f"graph g\n  %x = iota() shape={'9' * 300} axis=0 dtype='f32' : f32[1]",
            f"graph text, line 2: expected attribute=value, got 'shape={'9' * 194}...'",
        ),
        (
            "graph g\n  return\n  return",
            "graph text, line 3: expected the end of the text, got 'return'",
        ),
    ],
)
def test_text_that_is_not_a_graph_is_an_error_with_its_line(text, message):
    with pytest.raises(GraphError, match=f"^{re.escape(message)}$"):
        parse(text)


def test_a_constant_with_another_content_than_its_digest_is_an_error():
    text = graph_text(constant_graph(np.arange(20)))
    digest = constant_graph(np.arange(20)).nodes[0].op.value.digest
    other = constant_graph(np.zeros(20, np.int64)).nodes[0].op.value.digest
    message = (
        f"graph text, line 2: expected constants to hold i64[20] {digest}, got 'i64[20] {other}'"
    )
    with pytest.raises(GraphError, match=f"^{re.escape(message)}$"):
        parse(text, {digest: np.zeros(20, np.int64)})


def test_graphs_within_graphs_without_end_are_an_error():
    lines = [f"{' ' * 2 * n}%x = kernel k() : f32[]" for n in range(1, 1000)]
    message = r"graph text, line \d+: expected fewer graphs within graphs, got '\d+ lines'"
    with pytest.raises(GraphError, match=f"^{message}$"):
        parse("\n".join(["graph g", *lines]))


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in range(1, 40))]
)
def test_a_mutated_text_is_a_graph_that_prints_back_or_a_graph_error(seed):
    texts, read = programs(), 0
    for number in range(300):
        choice = random.Random(300 * seed + number)
        text = mutated(choice.choice(texts), choice)
        try:
            graph = parse(text)
        except GraphError:
            continue
        again = parse(graph_text(graph))
        assert again == graph, number
        assert graph_text(again) == graph_text(graph), number
        read += 1
    assert 3 < read < 150
