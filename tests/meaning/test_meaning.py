"""Graphs after the passes are proved to mean what the trace meant, and what is not is told."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import graphc
from graphc.base.errors import GraphError
from graphc.ir import Graph
from graphc.meaning.check import check
from graphc.text import parse
from tests.meaning.models import MODELS, ONE_EXTENT, stages_of


def graph(*lines: str, inputs: str = "%x : f32[2,3]") -> Graph:
    return parse("\n".join(["graph g", f"  in    {inputs}", *(f"  {x}" for x in lines)]) + "\n")


@pytest.mark.parametrize("name", [*MODELS, *ONE_EXTENT])
def test_training_steps_are_proved(name: str) -> None:
    meaning = check(stages_of(name))
    assert meaning.proved and str(meaning).endswith("results proved equal")


def test_a_transposed_product_is_the_product_of_transposes() -> None:
    inputs = "%x : f32[2,3]\n  in    %w : f32[3,4]"
    one = graph(
        "%y = matmul(%x, %w) : f32[2,4]",
        "%t = permute_dims(%y) axes=(1,0) : f32[4,2]",
        "return %t",
        inputs=inputs,
    )
    other = graph(
        "%a = permute_dims(%w) axes=(1,0) : f32[4,3]",
        "%b = permute_dims(%x) axes=(1,0) : f32[3,2]",
        "%t = matmul(%a, %b) : f32[4,2]",
        "return %t",
        inputs=inputs,
    )
    assert check({"trace": one, "clean": other}).proved


@pytest.mark.parametrize(
    "line",
    [
        "%y = reshape(%x) shape=(0,6) : f32[0,6]",
        "%y = concat(%x, %x) axis=2 : f32[2,0,6]",
        "%y = sum(%x) axes=(1,) keepdims=False : f32[2,3]",
    ],
)
def test_what_has_no_elements_is_proved(line: str) -> None:
    kind = line.rpartition(" : ")[2]
    one = graph(line, f"%z = add(%y, %y) : {kind}", "return %z", inputs="%x : f32[2,0,3]")
    assert check({"trace": one, "clean": one}).proved


def test_a_loop_of_no_iterations_is_proved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPHC_CHECK", "meaning")

    def fn(x: graphc.Tensor) -> object:
        return graphc.scan(lambda c, _: (c * 2, c + 1), x, None, length=0)

    program = graphc.compile(fn, graphc.spec((3,)), device="cpu")
    assert "2 results proved equal" in str(program.plan)


def test_a_sum_within_a_sum_is_of_another_variable() -> None:
    nested = graph(
        "%s = sum(%x) axes=(1,) keepdims=True : f32[2,1]",
        "%t = broadcast_to(%s) shape=(2,3) : f32[2,3]",
        "%p = multiply(%x, %t) : f32[2,3]",
        "%y = sum(%p) axes=(1,) keepdims=False : f32[2]",
        "return %y",
    )
    squares = graph(
        "%p = multiply(%x, %x) : f32[2,3]",
        "%y = sum(%p) axes=(1,) keepdims=False : f32[2]",
        "return %y",
    )
    with pytest.raises(GraphError, match=r"^meaning: pass wrong changed output 0, at "):
        check({"trace": nested, "wrong": squares})
    outside = graph(
        "%s = sum(%x) axes=(1,) keepdims=False : f32[2]",
        "%y = multiply(%s, %s) : f32[2]",
        "return %y",
    )
    with pytest.raises(GraphError, match=r"^meaning: pass wrong changed output 0, at "):
        check({"trace": squares, "wrong": outside})


def test_what_differs_is_told_with_pass_node_line_and_numbers() -> None:
    right = graph("%y = exp(%x) : f32[2,3]  # net.py:4", "return %y")
    wrong = graph("%y = negative(%x) : f32[2,3]  # net.py:4", "return %y")
    with pytest.raises(GraphError) as raised:
        check({"trace": right, "fold": wrong})
    x = np.asarray(_numbers())
    place = np.unravel_index(np.argmax(abs(np.exp(x) + x)), x.shape)
    a, b = np.exp(x)[place], -x[place]
    assert str(raised.value) == (
        f"meaning: pass fold changed output 0, at {[int(i) for i in place]} expected {a:g}, "
        f"got {b:g}; first in %y = negative (net.py:4)"
    )


def test_another_type_is_told() -> None:
    right = graph("%y = exp(%x) : f32[2,3]  # net.py:4", "return %y")
    wrong = graph("%y = cast(%x) dtype='f64' : f64[2,3]  # net.py:4", "return %y")
    with pytest.raises(GraphError) as raised:
        check({"trace": right, "fold": wrong})
    assert str(raised.value) == (
        "meaning: pass fold changed output 0: expected f32[2,3], got f64[2,3] "
        "in %y = cast (net.py:4)"
    )


def test_what_is_not_proved_is_tried_and_said() -> None:
    one = graph("%y = add(%x, %x) : f32[2,3]", "return %y")
    other = graph(
        "%c = constant() value=2.0 : f32[]", "%y = multiply(%x, %c) : f32[2,3]", "return %y"
    )
    meaning = check({"trace": one, "double": other})
    assert str(meaning) == (
        "meaning: 0 of 1 results proved equal; double tried at full extents on random, large "
        "and positive numbers and ramps: output 0 f32[2,3]"
    )


def test_the_plan_says_what_was_proved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPHC_CHECK", "meaning")
    spec = graphc.spec((4, 5))
    program = graphc.compile(lambda x: graphc.softmax(x * 2, axis=1), spec, device="cpu")
    assert "meaning: 1 of 1 results proved equal" in str(program.plan)
    assert program.plan is not None
    assert str(program.plan.verify()).endswith(
        "; meaning: 1 of 1 results proved equal; "
        "meaning: 0 of 1 kernels with sums were run and add in the order stated"
    )


def test_state_that_is_no_longer_updated_is_told() -> None:
    stages = stages_of("normalised")
    name, last = list(stages.items())[-1]
    wrong = replace(last, updates=last.updates[1:])
    with pytest.raises(GraphError, match=r"^meaning: pass wrong changed state .*got nothing$"):
        check({name: last, "wrong": wrong})


def _numbers() -> np.ndarray:
    """What the first draw gives an input x f32[2,3]."""
    from graphc.ir import Type, Value
    from graphc.meaning.trial import _numbers as drawn

    return drawn(Value("x", Type((2, 3))), "random", {})
