"""Graphs: values and their types, what an op is, equations in order, and their check."""

from graphc.ir.graph import Graph, Node, infer_types, verify
from graphc.ir.names import Names
from graphc.ir.op import REGISTRY, Axes, Flags, Op
from graphc.ir.types import (
    DTYPES,
    FLOATS,
    INTEGERS,
    NARROW,
    ROW_MAJOR,
    Array,
    Layout,
    Type,
    Value,
    Where,
    dtype_name,
)
from graphc.ir.vocabulary import Gradients, Tensor, Tensors, Vocabulary

__all__ = [
    "DTYPES",
    "FLOATS",
    "INTEGERS",
    "NARROW",
    "REGISTRY",
    "ROW_MAJOR",
    "Array",
    "Axes",
    "Flags",
    "Gradients",
    "Graph",
    "Layout",
    "Names",
    "Node",
    "Op",
    "Tensor",
    "Tensors",
    "Type",
    "Value",
    "Vocabulary",
    "Where",
    "dtype_name",
    "infer_types",
    "verify",
]
