"""Orders along axes, and the elements that have a place in them.

Where several elements are equal, PyTorch does not say which one's place is given. Of numbers that
are often equal, those of 16 bits and integers, the place is therefore left to PyTorch.
"""

from __future__ import annotations

from typing import Any

from graphc import functions as f
from graphc.base.source_lines import error
from graphc.torch.aten.rules import aten
from graphc.trace import Tensor


def _rarely_equal(name: str, x: Tensor) -> Tensor:
    """x; GraphError where its elements are often equal."""
    if x.dtype not in ("f32", "f64"):
        raise error(f"{name}: which of equal elements is meant is PyTorch's choice")
    return x


@aten("sort", "sort.stable")
def sort(
    x: Tensor, dim: int = -1, descending: bool = False, stable: bool | None = None
) -> tuple[Tensor, Tensor]:
    """Always stable. The overload that says `stable` names all its arguments."""
    places = f.argsort(x, dim, descending)
    return f.take_along_axis(x, places, dim) if x.ndim else x, places


@aten("topk")
def topk(
    x: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True
) -> tuple[Tensor, Tensor]:
    return f.topk(x, k, dim, largest)


@aten("cummax")
def cummax(x: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    return f.cummax(x, dim)


@aten("cummin")
def cummin(x: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    return f.cummin(x, dim)


@aten("kthvalue")
def kthvalue(x: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    return f.kthvalue(_rarely_equal("kthvalue", x), k, dim, keepdim)


@aten("median")
def median(x: Tensor) -> Any:
    return f.median(x)


@aten("median.dim")
def median_dim(x: Tensor, dim: int, keepdim: bool = False) -> Any:
    return f.median(_rarely_equal("median", x), dim, keepdim)


@aten("nanmedian")
def nanmedian(x: Tensor) -> Any:
    return f.nanmedian(x)


@aten("nanmedian.dim")
def nanmedian_dim(x: Tensor, dim: int, keepdim: bool = False) -> Any:
    return f.nanmedian(_rarely_equal("nanmedian", x), dim, keepdim)


@aten("mode")
def mode(x: Tensor, dim: int = -1, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    return f.mode(x, dim, keepdim)
