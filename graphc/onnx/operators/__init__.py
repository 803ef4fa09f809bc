"""Rules for ONNX's operators, by family."""

from graphc.onnx.operators import (
    control,
    draws,
    elementwise,
    indexing,
    normalization,
    pooling,
    products,
    quantized,
    recurrent,
    reductions,
    resizing,
    shapes,
    signals,
    training,
)
from graphc.onnx.operators.rules import rule_of as rule_of

__all__ = [
    "control",
    "draws",
    "elementwise",
    "indexing",
    "normalization",
    "pooling",
    "products",
    "quantized",
    "recurrent",
    "reductions",
    "resizing",
    "rule_of",
    "shapes",
    "signals",
    "training",
]
