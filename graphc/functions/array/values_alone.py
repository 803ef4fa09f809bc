"""Results that in PyTorch are the first of a pair: graphc.max(x, 1) is the values alone.

`x.max(1)[0]` and `values, places = x.max(1)` mean the values there and the first row here, so
neither passes silently.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NoReturn

from graphc.functions.array.tensors import error, is_integer
from graphc.ir import TensorLike
from graphc.trace import Tensor


class ValuesAlone(Tensor):
    """A tensor that is not to be taken for a pair of values and places."""

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
    """`tensor`, which `maker` made along one axis if `axis` is a number."""
    return ValuesAlone(tensor, maker) if is_integer(axis) and tensor.ndim else tensor
