"""Messages that no other test holds whole, and that every message stands in some test."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

import graphc
from graphc import nn, optim
from graphc.base.dlpack import bfloat16_array
from graphc.base.errors import GraphError
from graphc.ir import Graph, Node, Type, Value, verify
from graphc.ops.attention import Attention
from graphc.ops.loops.scan import Scan
from graphc.ops.pointwise.arithmetic import Add
from graphc.trace import emit
from tests.raise_sites import said, sites
from tests.tools import ROOT

LINE = r"\(test_whole_messages\.py:\d+\)"
spec = graphc.spec


def from_another_trace(x: Any) -> Any:
    kept: list[Any] = []
    graphc.trace(lambda y: kept.append(y) or y, spec((3,)))
    return x + kept[0]


def attention(q: Any, k: Any, v: Any, *mask: Any) -> Any:
    return emit(Attention(False, 1.0), q, k, v, *mask)


X = spec((3, 2))
# fmt: off
MESSAGES: list[tuple[Callable[..., Any], tuple[Type, ...], str]] = [
    (lambda x: graphc.grad(lambda v: 3)(x), (spec(()),), "the loss is a scalar tensor, got int"),
    (lambda x: len(x), (spec(()),), "len() of a tensor without axes"),
    (lambda x: "a", (X,), "the function returns tensors, got str at 0"),
    (from_another_trace, (spec((3,)),),
     "%y : f32[3] belongs to another function: what a function computes leaves it through what it "
     "returns"),
    (attention, (X, X, X), "attention: expected 4 axes each, got f32[3,2], f32[3,2] and f32[3,2]"),
    (attention, (spec((3, 2, 4, 5)), spec((3, 2, 4, 5)), spec((1, 2, 4, 5))),
     "attention: expected q [n, h, t, e], k [n, g, u, e] and v [n, g, u, d] where h is a multiple "
     "of g, got f32[3,2,4,5], f32[3,2,4,5] and f32[1,2,4,5]"),
    (attention, (spec((3, 2, 4, 5)),) * 3 + (spec((4, 4), "bool"),),
     "attention: expected a mask bool or f32 that broadcasts to [3, 2, 4, 4], got bool[4,4]"),
    (lambda x: graphc.lstm_cell(x, x, x, x), (X,),
     "lstm_cell: expected the state (h, c), got Tensor"),
    (lambda x: graphc.gru_cell(x, x, x, x), (spec((4, 2)),),
     "gru_cell: expected weights of 3 times the hidden features, [3 * h, in] and [3 * h, h], "
     "got f32[4,2] and f32[4,2]"),
]
# fmt: on


@pytest.mark.parametrize(("fn", "types", "message"), MESSAGES, ids=[m for *_, m in MESSAGES])
def test_a_mistake_in_a_function_is_named(
    fn: Callable[..., Any], types: tuple[Type, ...], message: str
) -> None:
    with pytest.raises(GraphError, match=f"^{re.escape(message)} {LINE}$"):
        graphc.trace(fn, *types, training=True)


def test_a_shape_holds_extents() -> None:
    message = "spec: a shape holds non-negative integers and names like 'batch', got (-1,)"
    with pytest.raises(GraphError, match=f"^{re.escape(message)}$"):
        spec((-1,))


def test_a_training_step_needs_a_loss_and_only_it_has_a_rate() -> None:
    with pytest.raises(
        GraphError, match=f"^with update=, the function returns the loss, got nothing {LINE}$"
    ):
        graphc.compile(
            lambda m, x: None, nn.Linear(2, 2), X, update=optim.SGD(lr=0.1), device="reference"
        )
    program = graphc.compile(lambda x: x + 1, X, device="reference")
    message = "function has no learning rate: it was compiled without update="
    with pytest.raises(GraphError, match=f"^{re.escape(message)}$"):
        program.lr = 1


A, B = Value("a", Type((2,))), Value("b", Type((3,)))
Y = Value("y", Type((2,)))
ADD = Node(Add(), (A, A), (Y,))
GOOD = Graph("g", (A,), (B,), (ADD,), (Y,))
LOOP = Scan(Graph("body", (A,), (), (), (A,)), 4, 1, 0)
WRONG_LOOP = Scan(Graph("body", (A,), (), (), (B,)), 4, 1, 0)
WRONG = [
    (replace(GOOD, state=(A,)), "%a is defined twice"),
    (
        replace(GOOD, nodes=()),
        "the end of the graph reads %y : f32[2], which is not defined before it",
    ),
    (
        replace(GOOD, nodes=(replace(ADD, outputs=(B,)),), state=(), outputs=(B,)),
        "add infers f32[2], its outputs are f32[3]",
    ),
    (replace(GOOD, updates=((A, Y),)), "%a is updated but is not state"),
    (replace(GOOD, updates=((B, Y),)), "%b : f32[3] is updated by %y : f32[2]"),
    (
        replace(GOOD, nodes=(ADD, Node(LOOP, (B,), (Value("z", B.type),)))),
        "scan: its body expects f32[2], got f32[3]",
    ),
]


@pytest.mark.parametrize(("graph", "message"), WRONG, ids=[m for _, m in WRONG])
def test_a_graph_that_is_wrong_is_shown_below_what_is_wrong(graph: Graph, message: str) -> None:
    verify(GOOD)
    text = re.escape(f"{message}\n{graph}")
    with pytest.raises(GraphError, match=f"^{text}$"):
        verify(graph)


def test_a_loop_that_changes_the_type_of_its_carry_is_wrong() -> None:
    body = Graph("body", (A, B), (), (), (B,))
    message = "scan: the carry %a begins as f32[2], an iteration makes it f32[3]"
    op = Scan(replace(body, inputs=(B, A)), 4, 1, 0)
    with pytest.raises(GraphError, match=f"^{re.escape(message)}$"):
        op.infer(B.type, A.type)


class Elsewhere:
    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 0


def test_an_array_of_another_library_lies_on_the_host() -> None:
    message = "x: expected an array on the host, got Elsewhere"
    with pytest.raises(GraphError, match=f"^{re.escape(message)}$"):
        bfloat16_array(Elsewhere(), "x")


def test_the_words_of_every_message_stand_in_a_test() -> None:
    files = sorted((ROOT / "tests").rglob("*.py"))
    known = "\n".join(said(ast.parse(path.read_text())) for path in files)
    found = [(site.place, max(site.words, key=len, default="")) for site in sites()]
    assert len(found) > 300
    assert [(place, words) for place, words in found if words not in known] == []
