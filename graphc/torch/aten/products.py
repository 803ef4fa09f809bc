"""Products of matrices."""

from __future__ import annotations

from graphc import functions as f
from graphc.torch.aten.rules import aten
from graphc.trace import Tensor

for _name in ("mm", "bmm", "mv", "dot", "matmul"):
    aten(_name)(f.matmul)


@aten("addmm")
def addmm(x: Tensor, a: Tensor, b: Tensor, beta: float = 1, alpha: float = 1) -> Tensor:
    return f.addmm(x, a, b, beta, alpha)


@aten("baddbmm")
def baddbmm(x: Tensor, a: Tensor, b: Tensor, beta: float = 1, alpha: float = 1) -> Tensor:
    return f.baddbmm(x, a, b, beta, alpha)
