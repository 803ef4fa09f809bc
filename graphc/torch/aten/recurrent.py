"""Recurrent layers, each direction of each layer as one loop.

`graphc.torch.operators` has a call for each layer of PyTorch's operators.
"""

from __future__ import annotations

from collections.abc import Sequence

from graphc import functions as f
from graphc.torch.aten.cells import Layer
from graphc.torch.aten.rules import aten
from graphc.trace import Tensor

Tensors = Sequence[Tensor]


@aten("recurrent", library="graphc")
def recurrent(
    kind: str, x: Tensor, state: Tensors, weights: Tensors, biased: bool, reverse: bool
) -> list[Tensor]:
    return Layer(f, f.scan, kind, biased, reverse).forward(x, state, weights)


@aten("recurrent_backward", library="graphc")
def recurrent_backward(
    kind: str,
    grads: Tensors,
    x: Tensor,
    state: Tensors,
    weights: Tensors,
    results: Tensors,
    biased: bool,
    reverse: bool,
) -> list[Tensor]:
    layer = Layer(f, f.scan, kind, biased, reverse)
    return layer.backward(grads, x, state, weights, results)
