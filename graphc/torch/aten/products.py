"""Products of matrices."""

from __future__ import annotations

from collections.abc import Sequence

from graphc import functions as f
from graphc.torch.aten.rules import aten
from graphc.trace import Tensor

for _name in ("mm", "bmm", "mv", "dot", "matmul"):
    aten(_name)(f.matmul)


@aten("linear")
def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    return f.linear(x, weight, bias)


@aten("addmm")
def addmm(x: Tensor, a: Tensor, b: Tensor, beta: float = 1, alpha: float = 1) -> Tensor:
    return f.addmm(x, a, b, beta, alpha)


@aten("baddbmm")
def baddbmm(x: Tensor, a: Tensor, b: Tensor, beta: float = 1, alpha: float = 1) -> Tensor:
    return f.baddbmm(x, a, b, beta, alpha)


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
