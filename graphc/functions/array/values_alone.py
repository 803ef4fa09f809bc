"""Guard results that are values in graphc, but a pair of values and indices in PyTorch.

`x.max(1)[0]` and `values, indices = x.max(1)` would mean something else here, so both are errors.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NoReturn

from graphc.functions.array.tensors import error, is_integer
from graphc.ir import TensorLike
from graphc.trace import Tensor


class ValuesAlone(Tensor):
    """A tensor that must not be unpacked as a pair of values and indices."""

    __slots__ = ("maker",)

    def __init__(self, tensor: Tensor, maker: str) -> None:
        super().__init__(tensor.value, tensor.builder)
        self.maker = maker

    def __getitem__(self, key: TensorLike) -> Tensor:
        if is_integer(key):
            self._refuse()
        return super().__getitem__(key)

    def __iter__(self) -> Iterator[Tensor]:
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise error(
            f"{self.maker} gives the values alone, which PyTorch gives with their places: "
            f"graphc.arg{self.maker} gives the places, and graphc.take(values, i, 0) an element "
            "of the values"
        )


def values_alone(tensor: Tensor, maker: str, axis: object) -> Tensor:
    """Guard `tensor`, the result of `maker`, if it was reduced along one axis."""
    return ValuesAlone(tensor, maker) if is_integer(axis) and tensor.ndim else tensor
