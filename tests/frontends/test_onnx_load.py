"""Modules of ONNX files: parameters, what must be known, what is refused and how it is said."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphc
from graphc import optim
from graphc.base.errors import GraphError
from tests.frontends.onnx_models import (
    BOOL,
    FLOAT,
    INT64,
    declared,
    helper,
    linear,
    model,
    node,
    numpy_helper,
    onnx,
    run,
)
from tests.support.onnx_load import Y, external, looped, reshaped
from tests.tools import run_python

X = np.arange(8, dtype=np.float32).reshape(2, 4) / 8


def load(*arguments: Any, **options: Any) -> Any:
    import graphc.onnx

    return graphc.onnx.load(*arguments, **options)


def refusal(action: Callable[..., Any], *arguments: Any, **options: Any) -> str:
    """The message, without the user's line, and its notes."""
    with pytest.raises(GraphError) as caught:
        action(*arguments, **options)
    message = re.sub(r" \(test_onnx_load\.py:\d+\)$", "", str(caught.value))
    return "\n".join([message, *getattr(caught.value, "__notes__", [])])


def test_initializers_are_parameters_by_their_names_and_train() -> None:
    module = load(linear())
    assert {n: p.shape for n, p in module.named_parameters()} == {
        "fc.weight": (3, 4),
        "fc.bias": (3,),
    }
    assert module.inputs == ("x",)
    assert module.outputs == ("y",)
    assert [str(s) for s in module.specs(n=2)] == ["f32[2,4]"]
    w, b = module.state_dict().values()
    np.testing.assert_allclose(run(module, X), np.maximum(X @ w.T + b, 0), rtol=1e-6)

    def loss(module: Any, x: Any) -> Any:
        return graphc.mean(graphc.square(module(x) - 1.0))

    step = graphc.compile(loss, module, X, update=optim.SGD(lr=0.5), device="reference")
    first = step(X)
    for _ in range(20):
        last = step(X)
    assert last < first / 2
    assert not np.array_equal(module.state_dict()["fc.bias"], b)


def test_a_file_is_read_and_nodes_say_where_they_stand(tmp_path: Path) -> None:
    onnx.save(linear(), tmp_path / "small.onnx")
    module = load(tmp_path / "small.onnx")
    assert repr(module) == "Model(small.onnx, inputs=['x'], outputs=['y'])"
    graph = str(graphc.trace(module, X))
    assert "# relu_y small.onnx:2" in graph
    assert "in    %x : f32[2,4]" in graph
    np.testing.assert_array_equal(
        run(load((tmp_path / "small.onnx").read_bytes()), X), run(module, X)
    )


def test_running_statistics_do_not_train_and_names_of_modules_own_get_a_mark() -> None:
    arrays = {n: np.ones(3, np.float32) for n in ("scale", "forward", "mean", "var")}
    nodes = [node("BatchNormalization", "x scale forward mean var", "y")]
    module = load(model(nodes, [declared("x", (2, 3))], [declared("y", (2, 3))], arrays))
    trainable = {n: p.trainable for n, p in module.named_parameters()}
    assert trainable == {"scale": True, "forward_": True, "mean": False, "var": False}
    assert run(module, np.ones((2, 3), np.float32)).tolist() == [[1, 1, 1], [1, 1, 1]]


def test_shapes_are_computed_while_tracing_and_leave_nothing_behind() -> None:
    nodes = [
        node("Shape", "x", "s"),
        node("Gather", "s zero", "rows"),
        node("Unsqueeze", "rows axes", "first"),
        node("Concat", "first minus", "shape", axis=0),
        node("Reshape", "x shape", "y"),
    ]
    arrays = {"zero": np.array(0), "axes": np.array([0]), "minus": np.array([-1])}
    module = load(model(nodes, [declared("x", (2, 2, 3))], Y, arrays))
    assert list(module.named_parameters()) == []
    x = np.arange(12, dtype=np.float32).reshape(2, 2, 3)
    assert [n.op.name for n in graphc.trace(module, x).nodes] == ["reshape"]
    np.testing.assert_array_equal(run(module, x), x.reshape(2, 6))


def test_inputs_that_decide_shapes_are_given_as_constants() -> None:
    module = load(reshaped(), constants={"shape": [4, 2]})
    assert module.inputs == ("x",)
    assert run(module, X).shape == (4, 2)


def test_branches_are_chosen_where_they_are_known_else_computed_both() -> None:
    def branch(name: str, number: float) -> Any:
        constant = node("Constant", "", name, value_float=number)
        return helper.make_graph([constant], name, [], [declared(name, ())])

    branches = {"then_branch": branch("a", 1.0), "else_branch": branch("b", 2.0)}
    nodes = [node("If", "c", "k", **branches), node("Mul", "x k", "y")]
    built = model(nodes, [declared("x", (3,)), declared("c", (), BOOL)], [declared("y", (3,))])
    x = np.ones(3, np.float32)
    for condition in (True, False):
        chosen = load(built, constants={"c": np.array(condition)})
        assert [n.op.name for n in graphc.trace(chosen, x).nodes if n.op.name == "where"] == []
        both = run(load(built), x, np.array(condition))
        assert run(chosen, x).tolist() == both.tolist() == [1 if condition else 2] * 3


def test_a_loop_is_one_scan_however_long() -> None:
    module, x = load(looped(500)), np.zeros(2, np.float32)
    names = [n.op.name for n in graphc.trace(module, x).nodes]
    assert names.count("scan") == 1
    assert len(names) < 10
    y, each = run(module, x)
    assert y.tolist() == [sum(range(500))] * 2
    assert each.shape == (500, 2)


def test_a_recurrent_layer_is_one_scan() -> None:
    arrays = {"w": np.ones((1, 8, 3), np.float32), "r": np.ones((1, 8, 2), np.float32)}
    nodes = [node("LSTM", "x w r", "y", hidden_size=2)]
    outputs = [declared("y", (40, 1, 5, 2))]
    module = load(model(nodes, [declared("x", (40, 5, 3))], outputs, arrays))
    graph = graphc.trace(module, graphc.spec((40, 5, 3)))
    assert [n.op.name for n in graph.nodes].count("scan") == 1


def test_functions_of_the_model_and_of_onnx_are_written_out() -> None:
    own = helper.make_function(
        "mine",
        "Twice",
        ["a"],
        ["b"],
        [node("Add", "a a", "b")],
        [helper.make_opsetid("", 18)],
    )
    nodes = [
        helper.make_node("Twice", ["x"], ["h"], domain="mine"),
        node("MeanVarianceNormalization", "h", "y", axes=[1]),
    ]
    built = model(nodes, [declared("x", (2, 4))], [declared("y", (2, 4))], functions=[own])
    y = run(load(built), X)
    np.testing.assert_allclose(y.mean(1), 0, atol=1e-6)
    np.testing.assert_allclose(y.std(1), 1, rtol=1e-3)


def test_external_data_lies_in_the_models_folder(tmp_path: Path) -> None:
    folder = tmp_path / "inside"
    folder.mkdir()
    whole = linear()
    data = whole.graph.initializer[0].raw_data
    (folder / "weights.bin").write_bytes(b"....." + data)
    (tmp_path / "outside.bin").write_bytes(data)
    (folder / "link.bin").symlink_to(tmp_path / "outside.bin")
    path = folder / "m.onnx"

    def at(location: str, **told: str) -> Any:
        onnx.save(external(location, **told), path)
        return load(path)

    np.testing.assert_array_equal(run(at("weights.bin", offset="5"), X), run(load(whole), X))
    tensor = "onnx.load: the tensor 'fc.weight'"
    for location in ("../outside.bin", str(tmp_path / "outside.bin"), "link.bin", ".", "none"):
        message = f"{tensor} lies in {location!r}, which is no file in the model's folder"
        assert refusal(at, location) == message
    for told in ({"offset": "60"}, {"offset": "-1"}, {"length": "many"}):
        message = f"{tensor} expected bytes of 'weights.bin' that it does not have"
        assert refusal(at, "weights.bin", **{"length": "48", **told}) == message
    message = f"{tensor} lies in 'weights.bin': load the model by its path"
    assert refusal(load, external("weights.bin")) == message


def test_what_is_not_a_model(tmp_path: Path) -> None:
    path = tmp_path / "no.onnx"
    assert refusal(load, path) == f"onnx.load: cannot read {path}: No such file or directory"
    path.write_bytes(b"\xff\xff\xff\xff")
    assert refusal(load, path) == "onnx.load: no.onnx is not an ONNX model"
    path.write_bytes(b"")
    assert refusal(load, path).startswith("onnx.load: no.onnx is not a valid model: ")


def test_all_operators_that_are_not_offered_are_listed() -> None:
    nodes = [
        node("Relu", "x", "a"),
        node("Det", "a", "b"),
        node("NonMaxSuppression", "x x", "c"),
        node("Det", "a", "y"),
    ]
    built = model(nodes, [declared("x", (2, 2))], [declared("y", ())])
    assert refusal(load, built) == (
        "onnx.load: the model has operators that are not offered\n"
        "  Det (2): det_b: Det, det_y: Det\n"
        "  NonMaxSuppression (1): nonmaxsuppression_c: NonMaxSuppression"
    ).replace("the model", "model")


def test_mistakes_with_inputs() -> None:
    message = (
        "onnx.load: shapes in model depend on the values of shape: "
        "give them in constants={name: array}"
    )
    assert refusal(load, reshaped()) == message
    message = "onnx.load: constants names 'size', the inputs are ['x', 'shape']"
    assert refusal(load, reshaped(), constants={"size": [1]}) == message
    module = load(linear())
    message = "the input x leaves n open: specs(n=...)"
    assert refusal(module.specs) == message
    wrong = graphc.spec((2, 5))
    found = refusal(graphc.trace, module, wrong)
    assert found.splitlines()[0] == "model: the input x expected f32[?,4], got f32[2,5]"
    assert refusal(graphc.trace, lambda x: module(x, x), wrong).splitlines()[0] == (
        "model expected 1 inputs, x, got 2"
    )
    sequence = helper.make_tensor_sequence_value_info("s", FLOAT, [2])
    listed = load(model([node("SequenceAt", "s zero", "y")], [sequence], [declared("y", (2,))], {
        "zero": np.array(0)
    }))  # fmt: skip
    assert refusal(listed.specs) == "the input s is a sequence_type, which has no spec"
    assert run(listed, [np.ones(2, np.float32)]).tolist() == [1, 1]


def test_what_is_wrong_in_a_node_names_it() -> None:
    built = model([node("MatMul", "x x", "y")], [declared("x", (2, 4))], Y)
    found = refusal(graphc.trace, load(built), X)
    assert found.startswith("matmul: ")
    assert found.splitlines()[1] == "in node matmul_y: MatMul"
    kind = model([node("Cast", "x", "y", to=onnx.TensorProto.UINT16)], [declared("x", (2, 4))], [
        declared("y", (2, 4), onnx.TensorProto.UINT16)
    ])  # fmt: skip
    assert refusal(graphc.trace, load(kind), X).splitlines()[0] == (
        "tensors of UINT16 are not offered"
    )
    split = model([node("Transpose", "x", "y", perm=[0, 0])], [declared("x", (2, 4))], Y)
    assert "in node transpose_y: Transpose" in refusal(graphc.trace, load(split), X)
    flat = model([node("DepthToSpace", "x", "y", blocksize=2)], [declared("x", (2, 4))], Y)
    assert (
        refusal(graphc.trace, load(flat), X)
        .splitlines()[0]
        .startswith("depthtospace_y: DepthToSpace cannot be read: ValueError: not enough values")
    )


def test_values_that_must_be_known_but_are_computed() -> None:
    nodes = [node("Cast", "x", "s", to=INT64), node("Reshape", "x s", "y")]
    # Of what is computed from an input, the input is asked for.
    message = refusal(load, model(nodes, [declared("x", (2,))], Y))
    assert message.startswith("onnx.load: shapes in model depend on the values of x")


def test_constants_that_would_be_too_large_are_not_made() -> None:
    nodes = [
        node("ConstantOfShape", "huge", "a"),
        node("ReduceSum", "a", "b"),
        node("Add", "x b", "y"),
    ]
    built = model(nodes, [declared("x", (2,))], [declared("y", (2,))], {
        "huge": np.array([2**20, 2**20])
    })  # fmt: skip
    found = refusal(graphc.trace, load(built), np.ones(2, np.float32))
    assert found.startswith("a constant of [1048576, 1048576] elements is larger than 134217728")
    tensor = onnx.TensorProto(name="w", data_type=FLOAT, dims=[2**40], raw_data=b"1234")
    grown = linear()
    grown.graph.initializer[0].CopyFrom(tensor)
    assert refusal(load, grown).startswith("onnx.load: ")


def test_tensors_that_are_not_whole() -> None:
    from graphc.onnx.reading import array_from, dense

    tensor = onnx.TensorProto(name="w", data_type=FLOAT, dims=[-1], raw_data=b"1234")
    assert refusal(array_from, tensor, None) == (
        "onnx.load: the tensor 'w' has a negative extent: [-1]"
    )
    tensor = onnx.TensorProto(name="w", data_type=FLOAT, dims=[3], raw_data=b"1234")
    assert refusal(array_from, tensor, None).startswith("onnx.load: the tensor 'w' cannot be read")
    values = numpy_helper.from_array(np.ones(1, np.float32), "v")
    places = numpy_helper.from_array(np.array([7]))
    sparse = helper.make_sparse_tensor(values, places, [2, 2])
    assert refusal(dense, sparse, None) == (
        "onnx.load: the sparse tensor 'v' has places outside of [2, 2]"
    )
    sparse.dims[0] = 2**40
    assert refusal(dense, sparse, None) == (
        f"onnx.load: the sparse tensor 'v' has extents [{2**40}, 2], expected {2**31} bytes at most"
    )


def test_text_that_is_no_text() -> None:
    data = linear().SerializeToString().replace(b"relu_y", b"rel\xff_y")
    found = refusal(graphc.trace, load(data), X)
    assert found.startswith("onnx.load: model cannot be read: TypeError: cannot use a string")


def test_names_that_nothing_has_and_models_without_end() -> None:
    from graphc.onnx.interpret import Interpreter, read

    assert refusal(read, {}, "z") == "nothing has the name 'z' here"
    calls = [helper.make_node("Again", ["a"], [f"b{i}"], domain="mine") for i in range(2)]
    again = helper.make_function("mine", "Again", ["a"], ["b0"], calls, [])
    walk = Interpreter([again], None)
    with pytest.raises(GraphError):
        graphc.trace(lambda x: walk.run(calls, {"a": x}, {}, {}), X)
    walk.left = 0
    found = refusal(graphc.trace, lambda x: walk.run(calls, {"a": x}, {}, {}), X)
    assert found == "functions and loops add more than 10000 nodes"


def test_importing_graphc_does_not_import_onnx() -> None:
    assert run_python("-c", "import sys, graphc; print('onnx' in sys.modules)").strip() == "False"
    hidden = "import sys; sys.modules['onnx'] = None\ntry: import graphc.onnx\n"
    program = f"{hidden}except ImportError as problem: print(problem)"
    message = "ONNX files need the onnx package: pip install 'graphc[onnx]'"
    assert run_python("-c", program).strip() == message


def test_constants_of_bfloat16_are_numbers() -> None:
    value = helper.make_tensor("value", onnx.TensorProto.BFLOAT16, [], [1.5])
    kind = onnx.TensorProto.BFLOAT16
    made = model(
        [node("Pad", "x pads value", "y")],
        [declared("x", (3,), kind)],
        [declared("y", (4,), kind)],
        {"pads": np.array([1, 0], np.int64)},
        opset=23,
    )
    made.graph.initializer.append(value)
    program = graphc.compile(load(made), graphc.spec((3,), "bfloat16"), device="reference")
    np.testing.assert_array_equal(program(np.ones(3, np.float32)), [1.5, 1, 1, 1])
