"""Convolutions and their gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from graphc import functions as f
from graphc.torch.aten.rules import aten, pull
from graphc.trace import Tensor

Extents = Sequence[int]
FORWARD = {1: f.conv1d, 2: f.conv2d, 3: f.conv3d}
TRANSPOSED = {1: f.conv_transpose1d, 2: f.conv_transpose2d, 3: f.conv_transpose3d}


@aten("convolution")
def convolution(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Extents,
    padding: Extents,
    dilation: Extents,
    transposed: bool,
    output_padding: Extents,
    groups: int,
) -> Tensor:
    axes = weight.ndim - 2
    s, p, d = (tuple(v) * (axes if len(v) == 1 else 1) for v in (stride, padding, dilation))
    if not transposed:
        return FORWARD[axes](x, weight, bias, s, p, d, groups)
    more = tuple(output_padding) * (axes if len(output_padding) == 1 else 1)
    return TRANSPOSED[axes](x, weight, bias, s, p, more, groups, d)


@aten("convolution_backward")
def convolution_backward(
    dy: Tensor, x: Tensor, weight: Tensor, bias_sizes: Extents | None, *given: Any
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Return the gradients of x, weight and bias.

    `given` is what `convolution` takes after the bias, then which of the three are needed.
    """
    *rest, wanted = given
    dx, dw, db = None, None, None
    if wanted[0]:
        (dx,) = pull(lambda x: convolution(x, weight, None, *rest), dy, x)
    if wanted[1]:
        (dw,) = pull(lambda w: convolution(x, w, None, *rest), dy, weight)
    if wanted[2]:
        db = f.sum(dy, (0, *range(2, dy.ndim)))
    return dx, dw, db
