"""Tracing: the graph under construction and its symbolic tensors."""

from graphc.trace.builder import Builder, current_builder, emit, innermost_builder, spec
from graphc.trace.operand import Operand, Size, Tensor

__all__ = [
    "Builder",
    "Operand",
    "Size",
    "Tensor",
    "current_builder",
    "emit",
    "innermost_builder",
    "spec",
]
