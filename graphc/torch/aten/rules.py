"""The table of rules, and what several of them need."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch

from graphc import functions as f
from graphc.base.errors import GraphError
from graphc.gradients.reverse import value_and_grad
from graphc.trace import Tensor

Rule = Callable[..., Any]
Given = TypeVar("Given", bound=Rule)
_RULES: dict[str, Rule] = {}
_OF_WHOLE_GRAPHS: set[str] = set()

DTYPES = {
    torch.bool: "bool",
    torch.uint8: "u8",
    torch.int8: "i8",
    torch.int32: "i32",
    torch.int64: "i64",
    torch.float16: "f16",
    torch.bfloat16: "bf16",
    torch.float32: "f32",
    torch.float64: "f64",
}
"""PyTorch's dtypes that graphc has, by graphc's short names."""


def aten(
    *names: str, draws: bool = False, partly: bool = False, library: str = "aten"
) -> Callable[[Given], Given]:
    """Register a rule for operators `aten.NAME`, by default their default overload.

    `draws` says that it draws random numbers, `partly` that it leaves out results which PyTorch's
    gradients read; `library` is that of other operators.
    """

    def register(rule: Given) -> Given:
        for name in names:
            full = f"{library}.{name}" if "." in name else f"{library}.{name}.default"
            _RULES[full] = rule
            if draws or partly:
                _OF_WHOLE_GRAPHS.add(full)
        return rule

    return register


def rule_of(name: str, draws: bool = False) -> Rule | None:
    """Return the rule of an operator such as `aten.add.Tensor`, or None.

    `draws` says that graphc has the whole graph: it draws random numbers and makes gradients. Some
    rules need that.
    """
    return _RULES.get(name) if draws or name not in _OF_WHOLE_GRAPHS else None


def names() -> list[str]:
    """The operators that have a rule."""
    return sorted(_RULES)


def dtype_of(dtype: torch.dtype | None, otherwise: str = "f32") -> str:
    """graphc's name of a PyTorch dtype, `otherwise` for None; GraphError if it has none."""
    if dtype is None:
        return otherwise
    if dtype not in DTYPES:
        raise GraphError(f"tensors of {dtype} are not offered")
    return DTYPES[dtype]


def axes_of(dim: int | Sequence[int] | None) -> tuple[int, ...] | None:
    """Axes of a reduction: in PyTorch none and an empty list are all."""
    if dim is None:
        return None
    return ((dim,) if isinstance(dim, int) else tuple(dim)) or None


def pull(function: Callable[..., Tensor], dy: Tensor, *inputs: Tensor) -> tuple[Tensor, ...]:
    """The gradients of sum(function(*inputs) * dy) by each input."""

    def loss(*inputs: Tensor) -> Tensor:
        return f.sum(f.multiply(function(*inputs), dy))

    _, gradients = value_and_grad(loss, tuple(range(len(inputs))))(*inputs)
    return tuple(gradients)
