"""Numbers, strings and None among the arguments of compile are constants of the program."""

from __future__ import annotations

import copy
import pickle
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import graphc
from graphc import nn

X = np.arange(4, dtype=np.float32) - 1
SPEC = graphc.spec((4,))


def apply(x: Any, scale: float, power: int, name: str, shift: float | None, negate: bool) -> Any:
    y = getattr(graphc, name)(x) * scale
    assert type(scale) is float and type(power) is int and type(negate) is bool
    y = y**power
    y = y if shift is None else y + shift
    return -y if negate else y


def test_static_arguments_reach_the_function_as_they_are() -> None:
    settings = (2.0, 3, "relu", None, True)
    program = graphc.compile(apply, SPEC, *settings, device="reference")
    np.testing.assert_allclose(program(X), -((np.maximum(X, 0) * 2) ** 3))
    graph = graphc.trace(apply, SPEC, 0.5, 2, "abs", 1, False)
    assert [v.name for v in graph.inputs] == ["x"]


@dataclass
class Settings:
    x: Any
    scale: float


def test_static_values_within_trees_are_checked_at_a_call() -> None:
    def scaled(tree: dict[str, Any], record: Settings) -> Any:
        return tree["x"] * tree["scale"] + record.x * record.scale

    compiled = graphc.compile(
        scaled, {"x": SPEC, "scale": 2}, Settings(SPEC, 0.5), device="reference"
    )
    got = compiled({"x": X, "scale": 2}, Settings(X, 0.5))
    np.testing.assert_allclose(got, 2.5 * X)
    for value in (3, 2.0, True, "2"):
        with pytest.raises(graphc.GraphError) as caught:
            compiled({"x": X, "scale": value}, Settings(X, 0.5))
        message = f"scaled: tree.scale: was compiled for 2, got {value!r}"
        assert str(caught.value).startswith(message)


def test_a_program_is_not_pickled() -> None:
    program = graphc.compile(nn.Linear(4, 2), SPEC, device="reference")
    for copied in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(graphc.GraphError) as caught:
            copied(program)
        assert str(caught.value) == (
            "Linear: a program cannot be pickled or copied: program.save writes it to a file, "
            "which graphc.load reads"
        )


def test_subscripts_with_an_array_after_a_number_are_those_of_pytorch() -> None:
    x = np.arange(24, dtype=np.float32).reshape(2, 4, 3)
    rows = np.array([2, 0, 1, 1], np.int64)
    program = graphc.compile(
        lambda x, rows: x[0, :, rows], graphc.spec(x.shape), graphc.spec((4,), "int64"),
        device="reference",
    )  # fmt: skip
    # PyTorch selects 0 first, so the array's axis stays in its place; NumPy puts it in front.
    np.testing.assert_array_equal(program(x, rows), x[0][:, rows])
