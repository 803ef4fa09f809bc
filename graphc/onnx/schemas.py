"""ONNX's own descriptions of operators: versions, and definitions in other operators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from onnx import AttributeProto, FunctionProto, NodeProto, defs, helper

from graphc.base.dtypes import BFLOAT16
from graphc.ir import Array
from graphc.onnx.dtypes import NUMBERS
from graphc.onnx.operators.rules import UnsupportedError, Values
from graphc.trace import Tensor

Opsets = Mapping[str, int]
"""The version of each domain that a model, or a function, asks for."""


def version_of(node: NodeProto, opsets: Opsets) -> int:
    """The version of the node's domain that the model asks for."""
    if node.domain in ("", "ai.onnx"):
        return opsets.get("", opsets.get("ai.onnx", 1))
    return opsets.get(node.domain, 1)


def schema_of(node: NodeProto, opset: int) -> Any:
    """What ONNX says of the node's operator, None if it does not know it."""
    try:
        return defs.get_schema(node.op_type, opset, node.domain)
    except defs.SchemaError:
        return None


def schema_function(
    node: NodeProto, inputs: Sequence[Values], opset: int
) -> tuple[FunctionProto, dict[str, AttributeProto]]:
    """ONNX's own definition of a node's operator in others, and its attributes' defaults."""
    schema = schema_of(node, opset)
    if schema is None:
        raise UnsupportedError(f"{node.op_type} is not offered")
    defaults = {n: a.default_value for n, a in schema.attributes.items() if a.default_value.name}
    if schema.has_context_dependent_function:
        types = [_type_of(value).SerializeToString() for value in inputs]
        versions = schema.context_dependent_function_opset_versions
        best = max((v for v in versions if v <= opset), default=versions[0])
        text = schema.get_context_dependent_function_with_opset_version(
            best, node.SerializeToString(), types
        )
        return FunctionProto.FromString(text), defaults
    if not schema.has_function:
        raise UnsupportedError(f"{node.op_type} is not offered")
    versions = schema.function_opset_versions
    best = max((v for v in versions if v <= opset), default=versions[0])
    text = schema.get_function_with_opset_version(best)
    return FunctionProto.FromString(text), defaults


def _type_of(value: Values) -> Any:
    if value is None:
        return helper.make_tensor_type_proto(0, None)
    if isinstance(value, Tensor):
        return helper.make_tensor_type_proto(NUMBERS[value.dtype], value.shape)
    array: Array = np.asarray(value)
    kind = (
        NUMBERS["bf16"] if array.dtype == BFLOAT16 else helper.np_dtype_to_tensor_dtype(array.dtype)
    )
    return helper.make_tensor_type_proto(kind, array.shape)
