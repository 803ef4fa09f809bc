"""The table of rules, and what several of them need.

A rule is a function of an operator's inputs in their order and, by keyword, of its attributes. What
it calls `static` comes as NumPy arrays; the other inputs are traced tensors, None where left out. A
raw rule gets values as they are: tensors, known arrays, lists of values for sequences.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from graphc import functions as f
from graphc.base.dtypes import shown
from graphc.base.errors import GraphError
from graphc.ir import Array
from graphc.trace import Tensor

Values = Any
"""A traced tensor, a known array, a list of such, or None."""
Given = TypeVar("Given", bound=Callable[..., Any])
DOMAINS = {"ai.onnx": ""}
"""Names of domains that are another's."""


@dataclass(frozen=True)
class Rule:
    """What an operator is in graphc."""

    function: Callable[..., Any]
    static: frozenset[str]
    """The inputs whose values must be known when the model is traced."""
    raw: bool
    parameters: tuple[str, ...]
    """All that the function takes by name."""
    inputs: tuple[str, ...]
    """What it takes by place, in order."""
    variadic: bool
    drawing: bool
    """Whether it draws random numbers."""

    def is_static(self, place: int) -> bool:
        """Whether the input at this place must be known."""
        return place < len(self.inputs) and self.inputs[place] in self.static


_RULES: dict[tuple[str, str], Rule] = {}


def operator(
    *names: str, static: str = "", raw: bool = False, draws: bool = False, domain: str = ""
) -> Callable[[Given], Given]:
    """Register a rule for ONNX operators.

    A rule with a parameter `opset` gets the version of its domain, one with `outputs` the number of
    results.
    """

    def register(function: Given) -> Given:
        found = inspect.signature(function).parameters.values()
        by_place = tuple(p.name for p in found if p.kind == p.POSITIONAL_OR_KEYWORD)
        rule = Rule(
            function,
            frozenset(static.split()),
            raw,
            tuple(p.name for p in found if p.kind != p.VAR_POSITIONAL),
            by_place,
            any(p.kind == p.VAR_POSITIONAL for p in found),
            draws,
        )
        assert rule.static <= set(by_place), names
        for name in names:
            _RULES[domain, name] = rule
        return function

    return register


def rule_of(domain: str, name: str) -> Rule | None:
    """The rule of an operator, None if there is none."""
    return _RULES.get((DOMAINS.get(domain, domain), name))


def names() -> list[tuple[str, str]]:
    """(domain, name) of the operators that have a rule."""
    return sorted(_RULES)


class UnsupportedError(GraphError):
    """What a rule does not take: an option, a dtype, or values that are not known."""


def integers(values: Any) -> list[int]:
    """A known array or a list as Python's integers."""
    return [int(v) for v in np.asarray(values).reshape(-1)]


def number(value: Any, otherwise: float) -> float:
    """A known array of one element as a Python number; `otherwise` for None."""
    if value is None:
        return otherwise
    found: float = shown(np.asarray(value).reshape(-1)[:1])[0].item()
    return found


def axes_from(axes: Any, rank: int) -> list[int] | None:
    """The axes of an attribute or a known input, from the front; None where none are given."""
    return None if axes is None else [a % max(rank, 1) for a in integers(axes)]


def is_float(x: Tensor) -> bool:
    return x.dtype in ("f16", "bf16", "f32", "f64")


def wide(x: Tensor) -> Tensor:
    """x in float32 where its floats have two bytes."""
    return f.astype(x, "f32") if x.dtype in ("f16", "bf16") else x


def lowest(dtype: str) -> float:
    """What is not above any number of the dtype."""
    bounds = {"i8": -128, "u8": 0, "i32": -(2**31), "i64": -(2**63), "bool": 0}
    return bounds.get(dtype, -np.inf)


def highest(dtype: str) -> float:
    """What is not below any number of the dtype."""
    bounds = {"i8": 127, "u8": 255, "i32": 2**31 - 1, "i64": 2**63 - 1, "bool": 1}
    return bounds.get(dtype, np.inf)


def along(matrix: Array, x: Tensor, axis: int) -> Tensor:
    """The product of a known matrix [m, n] with x along an axis of extent n."""
    product = f.matmul(
        f.moveaxis(x, axis, -1), f.as_tensor(np.ascontiguousarray(matrix.T), x.dtype)
    )
    return f.moveaxis(product, -1, axis)


def from_front(index: Any, extent: int) -> Tensor:
    """Places along an axis, where negative ones count from its end."""
    place = f.as_tensor(index)
    return f.where(f.less(place, 0), f.add(place, extent), place)


def each(value: Sequence[int] | None, axes: int, otherwise: int) -> list[int]:
    """An attribute with a number per axis; `otherwise` for each where it is left out."""
    return list(value) if value else [otherwise] * axes
