"""What tensors answer to code that takes them for NumPy's or PyTorch's."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from graphc import nn
from graphc.ir import Type
from graphc.trace import Builder
from tests.functions.failing import Failure

MATRIX = "f32[2,3]"


def unreadable(reader: str) -> str:
    return f"a traced tensor has no elements yet: {reader} cannot read it; use graphc's functions"


MISTAKES: list[tuple[str, Callable[..., Any]]] = [
    (unreadable("float() and Python's math functions"), lambda x: float(x)),
    (unreadable("float() and Python's math functions"), lambda x: math.exp(x)),
    (unreadable("int()"), lambda x: int(x)),
    (unreadable("complex()"), lambda x: complex(x)),
    (unreadable("range(), a list's index or a shape"), lambda x: range(x)),
    (unreadable("the format '.3f'"), lambda x: f"{x:.3f}"),
    (unreadable("NumPy functions"), lambda x: np.exp(x)),
    (unreadable("NumPy functions"), lambda x: np.sum(x)),
    (unreadable("NumPy functions"), lambda x: np.mean(x, axis=0)),
    (unreadable("NumPy functions"), lambda x: np.concatenate([x, x])),
    (
        "a tensor's elements are not assigned to: graphc.where, concat, scatter and pad give a "
        "new tensor",
        lambda x: operator.setitem(x, 0, 1),
    ),
    (
        "size is the number of elements: x.shape[i] is the extent of an axis",
        lambda x: x.size(0),
    ),
]


@pytest.mark.parametrize(("message", "function"), MISTAKES)
def test_elements_that_are_not_there_yet_are_neither_read_nor_written(
    message: str, function: Callable[..., Any]
) -> None:
    Failure(message, function, (MATRIX,)).check()


def tensor() -> Any:
    return Builder("test").input("x", Type((2, 3)))


def test_a_tensor_prints_itself() -> None:
    assert f"{tensor()}" == "Tensor(%x : f32[2,3])"
    assert tensor().size == 6 and repr(tensor().size) == "6"


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("view", ": use x.reshape(...)"),
        ("permute", ": use x.permute_dims(...)"),
        ("unsqueeze", ": use x.expand_dims(...)"),
        ("clamp", ": use graphc.clip(x, ...)"),
        ("detach", ": use graphc.stop_gradient(x, ...)"),
        ("relu_", ": use x.relu(...)"),
        ("argmax", ": use graphc.argmax(x, ...)"),
        ("dim", ": use x.ndim"),
        ("backward", ": compile's update= or graphc.grad give gradients"),
        ("qwzx", ""),
    ],
)
def test_an_unknown_attribute_names_what_to_use(name: str, hint: str) -> None:
    with pytest.raises(
        AttributeError,
        match=rf"^Tensor has no '{name}'{re.escape(hint)} \(test_operand\.py:\d+\)$",
    ):
        getattr(tensor(), name)
    assert not hasattr(tensor(), name)


def test_unknown_attributes_of_a_parameter_name_what_to_use() -> None:
    with pytest.raises(
        AttributeError,
        match=r"^Parameter has no 'requires_grad': a parameter's trainable says whether update "
        r"rules change it \(test_operand\.py:\d+\)$",
    ):
        nn.Parameter(1.0).requires_grad  # noqa: B018
