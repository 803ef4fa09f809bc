"""With which words a rule refuses a node, and that rules take all that ONNX says of operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphc
from graphc.base.errors import GraphError
from tests.frontends.onnx_models import BOOL, INT64, declared, helper, model, node, onnx

X = np.ones((2, 4), np.float32)
Y = [declared("y", (None, None))]


def of(*nodes: Any, shape: Any = (2, 4), arrays: Any = None, more: Any = (), y: Any = Y) -> Any:
    known = {name: np.asarray(array) for name, array in (arrays or {}).items()}
    return model(nodes, [declared("x", shape), *more], y, known)


def branches(then: Any, other: Any, **kind: Any) -> Any:
    bodies = {
        "then_branch": helper.make_graph([then], "a", [], [declared("p", **kind)]),
        "else_branch": helper.make_graph([other], "b", [], [declared("p", **kind)]),
    }
    return of(node("If", "c", "y", **bodies), more=[declared("c", (), BOOL)])


def loop(trips: int, *nodes: Any, stacks: int = 0) -> Any:
    """`nodes` make `going` and `new` of `i`, `go`, `old`."""
    ends = [declared("going", (), BOOL), declared("new", (2, 4))]
    made = [declared("each", (2, 4))] * stacks
    begin = [declared("i", (), INT64), declared("go", (), BOOL), declared("old", (2, 4))]
    body = helper.make_graph(nodes, "body", begin, [*ends, *made])
    names = "y all" if stacks else "y"
    shaped = [declared(n, (2, 4) if n == "y" else (None, 2, 4)) for n in names.split()]
    return of(node("Loop", "m - x", names, body=body), arrays={"m": trips}, y=shaped)


ONE = {"w": np.ones((1, 2, 4), np.float32), "r": np.ones((1, 2, 2), np.float32)}
CASES: dict[str, Callable[[], Any]] = {
    "BitCast is offered for values that are known when the model is traced": lambda: model(
        [node("BitCast", "x", "y", to=6)],
        [declared("x", (2, 4))],
        [declared("y", (2, 4), 6)],
        opset=26,
    ),
    "the condition of branches with results of two shapes must be known": lambda: branches(
        node("ReduceSum", "x", "p"), node("Identity", "x", "p"), shape=(None, None)
    ),
    "a loop that is written out has 1000 iterations at most": lambda: loop(
        2000,
        node("And", "go go", "going"),
        node("Identity", "old", "new"),
    ),
    "the condition of a loop must be known when the model is traced": lambda: loop(
        2,
        node("ReduceSum", "old", "total", keepdims=0),
        node("Greater", "total total", "going"),
        node("Identity", "old", "new"),
    ),
    "a loop without iterations has nothing to stack": lambda: loop(
        0,
        node("And", "go go", "going"),
        node("Identity", "old", "new"),
        node("Identity", "old", "each"),
        stacks=1,
    ),
    "strings are not offered": lambda: of(
        node("Constant", "", "s", value_string="text"), node("Identity", "x", "y")
    ),
    "images of 4 axes are not offered": lambda: of(
        node("Conv", "x w", "y"),
        shape=(1, 1, 2, 2, 2, 2),
        arrays={"w": np.ones((1, 1, 1, 1, 1, 1), np.float32)},
        y=[declared("y", (None,) * 6)],
    ),
    "the activations cube are not offered": lambda: of(
        node("RNN", "x w r", "y", hidden_size=2, activations=["Cube"]),
        shape=(3, 1, 4),
        arrays=ONE,
        y=[declared("y", (None,) * 4)],
    ),
    "Resize: extents of [0, 4] are not offered": lambda: of(
        node("Resize", "x - - n", "y"), arrays={"n": np.array([0, 4])}
    ),
    "RoiAlign: how many samples there are depends on values: sampling_ratio=0": lambda: of(
        node("RoiAlign", "x b i", "y"),
        shape=(1, 1, 4, 4),
        arrays={"b": np.ones((1, 4), np.float32), "i": np.zeros(1, np.int64)},
        y=[declared("y", (None,) * 4)],
    ),
    "a constant has more than 134217728 elements": lambda: of(
        node("Constant", "", "n", value_ints=[2**14, 2**14]),
        node("Constant", "", "k", value_float=1.0),
        node("Expand", "k n", "e"),
        node("ReduceSum", "e", "s"),
        node("Add", "x s", "y"),
    ),
}


@pytest.mark.parametrize("message", CASES)
def test_what_a_rule_refuses(message: str) -> None:
    import graphc.onnx

    built = CASES[message]()
    with pytest.raises(GraphError) as caught:
        module = graphc.onnx.load(built)
        graphc.trace(module, *module.specs())
    assert str(caught.value).partition(" (test_onnx")[0].partition(" (model")[0] == message
    assert any(note.startswith("in node ") for note in caught.value.__notes__)


def test_values_that_rules_meet_elsewhere() -> None:
    from graphc.onnx.needed import needed
    from graphc.onnx.operators import rule_of
    from graphc.onnx.operators.control import if_, scan
    from graphc.onnx.schemas import schema_function

    def refusal(action: Callable[..., Any], *arguments: Any, **options: Any) -> str:
        with pytest.raises(GraphError) as caught:
            graphc.trace(lambda x: action(x, *arguments, **options), X)
        return str(caught.value).partition(" (test_onnx")[0]

    lists = {"then_branch": lambda: [[]], "else_branch": lambda: [[]]}
    message = "the condition of branches with sequences must be known"
    assert refusal(if_, **lists) == message
    message = "Scan: lengths of sequences are not offered"
    assert refusal(scan, body=None, num_scan_inputs=1, opset=8) == message
    element = rule_of("", "OptionalGetElement")
    assert element is not None
    message = "OptionalGetElement: there is no element"
    assert refusal(lambda x: element.function(None)) == message
    nothing = helper.make_node("Nothing", ["x"], ["y"])
    assert refusal(lambda x: schema_function(nothing, [x], 18)) == "Nothing is not offered"
    plain = helper.make_node("MatMul", ["x", "x"], ["y"])
    assert refusal(lambda x: schema_function(plain, [x, x], 18)) == "MatMul is not offered"

    from graphc.onnx.interpret import Interpreter

    nodes = [node("Reshape", "x s", "y")]
    assert needed(helper.make_graph(nodes, "g", [], []), {}) == {"s"}
    walk = Interpreter([], None)
    found = refusal(lambda x: walk.run(nodes, {"x": x, "s": x}, {"": 18}, {}))
    assert found == (
        "Reshape expected shape to be known when the model is traced, but 's' is computed; "
        "constants= gives inputs values"
    )


def test_rules_take_every_input_and_attribute_since_version_13() -> None:
    from graphc.onnx.operators.rules import names, rule_of

    known: dict[tuple[str, str], list[Any]] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        known.setdefault((schema.domain, schema.name), []).append(schema)
    assert [name for name in names() if name not in known] == []
    for name in names():
        rule = rule_of(*name)
        assert rule is not None
        versions = sorted(known[name], key=lambda schema: int(schema.since_version))
        ends = [schema.since_version for schema in versions[1:]] + [10**9]
        for schema, end in zip(versions, ends, strict=True):
            if end > 13:
                assert set(schema.attributes) <= set(rule.parameters), name
                assert rule.variadic or len(schema.inputs) <= len(rule.inputs), name


def test_every_operator_is_offered_but_for_a_few() -> None:
    from graphc.onnx.operators import rule_of

    lacking = {
        schema.name
        for schema in onnx.defs.get_all_schemas()
        if not schema.domain
        and rule_of("", schema.name) is None
        and not (schema.has_function or schema.has_context_dependent_function)
    }
    assert lacking == {
        "DeformConv",
        "Det",
        "ImageDecoder",
        "MaxRoiPool",
        "NonMaxSuppression",
        "RegexFullMatch",
        "StringConcat",
        "StringNormalizer",
        "StringSplit",
        "TfIdfVectorizer",
    }
