"""Products of matrices."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from graphc import functions as f
from graphc.torch.aten.rules import aten, dtype_of, pull
from graphc.trace import Tensor

for _name in ("mm", "bmm", "mv", "dot", "matmul"):
    aten(_name)(f.matmul)


@aten("linear")
def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    return f.linear(x, weight, bias)


@aten("addmm")
def addmm(x: Tensor, a: Tensor, b: Tensor, beta: float = 1, alpha: float = 1) -> Tensor:
    return f.addmm(x, a, b, beta, alpha)


@aten("addmv")
def addmv(x: Tensor, a: Tensor, b: Tensor, beta: float = 1, alpha: float = 1) -> Tensor:
    return f.addmv(x, a, b, beta, alpha)


@aten("addbmm")
def addbmm(x: Tensor, a: Tensor, b: Tensor, beta: float = 1, alpha: float = 1) -> Tensor:
    """beta * x + alpha * the sum of all products; with beta 0 nothing of x counts."""
    total = f.multiply(f.sum(f.matmul(a, b), 0), alpha)
    return f.add(f.multiply(x, beta), total) if beta else f.broadcast_to(total, x.shape)


@aten("_cdist_forward")
def cdist(x: Tensor, y: Tensor, order: float, compute_mode: int | None) -> Tensor:
    if order == 0:  # NaN is no difference, as in PyTorch
        apart = f.abs(f.expand_dims(x, -2) - f.expand_dims(y, -3))
        return f.sum(f.minimum(f.ceil(apart), 1), -1)
    return f.cdist(x, y, order)


@aten("_cdist_backward")
def cdist_backward(dy: Tensor, x: Tensor, y: Tensor, order: float, distances: Tensor) -> Tensor:
    (dx,) = pull(lambda x: f.cdist(x, y, order), dy, x)
    return dx


@aten("_pdist_backward")
def pdist_backward(dy: Tensor, x: Tensor, order: float, distances: Tensor) -> Tensor:
    (dx,) = pull(lambda x: f.pdist(x, order), dy, x)
    return dx


@aten("_pdist_forward")
def pdist(x: Tensor, order: float = 2) -> Tensor:
    return f.pdist(x, order)


@aten("baddbmm")
def baddbmm(x: Tensor, a: Tensor, b: Tensor, beta: float = 1, alpha: float = 1) -> Tensor:
    return f.baddbmm(x, a, b, beta, alpha)


@aten("_grouped_mm")
def grouped_mm(
    a: Tensor,
    b: Tensor,
    offs: Tensor | None = None,
    bias: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
) -> Tensor:
    return f.grouped_mm(a, b, offs=offs, bias=bias, out_dtype=dtype_of(out_dtype, a.dtype))


@aten("grouped_mm_fallback", library="transformers")
def grouped_mm_fallback(x: Tensor, weight: Tensor, offs: Tensor) -> Tensor:
    return f.grouped_mm(x, weight, offs=offs)


@aten("grouped_mm_fallback_backward", library="transformers")
def grouped_mm_fallback_backward(
    x: Tensor, weight: Tensor, offs: Tensor, dy: Tensor
) -> tuple[Tensor, ...]:
    return pull(lambda x, weight: f.grouped_mm(x, weight, offs=offs), dy, x, weight)


@aten("_trilinear")
def trilinear(
    x: Tensor,
    y: Tensor,
    z: Tensor,
    expand1: Sequence[int],
    expand2: Sequence[int],
    expand3: Sequence[int],
    sumdim: Sequence[int],
    unroll_dim: int = 1,
) -> Tensor:
    """The sum over `sumdim` of the product of three tensors, each with axes of extent 1 put in."""
    for axis in expand1:
        x = f.expand_dims(x, axis)
    for axis in expand2:
        y = f.expand_dims(y, axis)
    for axis in expand3:
        z = f.expand_dims(z, axis)
    return f.sum(f.multiply(f.multiply(x, y), z), tuple(sumdim))
