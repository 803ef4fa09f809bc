"""Decide by shapes which convolutions have kernels with channels in the lanes."""

from __future__ import annotations

from graphc.ir import Node
from graphc.ir.sum_order import LANES
from graphc.ops.convolution import Conv2d, Conv2dDgrad, Conv2dWgrad

FEW_CHANNELS = 4
"""Channels of a network's input at most that a convolution reads row-major, one by one."""

WIDEST_FILTER = 16
"""Columns that a row of taps spans at most: its taps, and the columns of an image beside its
borders, are text of their kernels."""


def has_kernels(product: Node) -> bool:
    """Return whether a convolution or its gradient has kernels for channels in lanes.

    Channels fill the widest registers, so that the answer is the same for all instruction sets.
    """
    op, output = product.op, product.output
    if not isinstance(op, Conv2d | Conv2dDgrad | Conv2dWgrad) or op.groups != 1:
        return False
    a, b = product.inputs
    if not all(v.type.size for v in (a, b, output)):
        return False
    taps = (output if op.called == "wgrad" else b).type.shape[3]
    if (taps - 1) * op.dilation[1] >= WIDEST_FILTER:
        return False
    few = op.called != "dgrad" and a.type.shape[1] <= FEW_CHANNELS
    if (a.type.shape[1] % LANES and not few) or (op.called == "dgrad" and op.stride != (1, 1)):
        return False
    return (b if op.called == "wgrad" else output).type.shape[1] % LANES == 0
