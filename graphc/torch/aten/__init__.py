"""Rules for PyTorch's core operators, by family.

A rule is a function of the operator's arguments in PyTorch's order, tensors being traced ones; it
returns what the operator does. `rule_of` finds it by the operator's name: `aten.add.Tensor`.
"""

from graphc.torch.aten import (
    attention,
    convolution,
    creation,
    draws,
    fourier,
    indexing,
    linear,
    normalization,
    ordering,
    pointwise,
    pooling,
    products,
    recurrent,
    reductions,
    resizing,
    shapes,
    strides,
)
from graphc.torch.aten.rules import rule_of as rule_of

__all__ = [
    "attention",
    "convolution",
    "creation",
    "draws",
    "fourier",
    "indexing",
    "linear",
    "normalization",
    "ordering",
    "pointwise",
    "pooling",
    "products",
    "recurrent",
    "reductions",
    "resizing",
    "rule_of",
    "shapes",
    "strides",
]
