"""ONNX's dtypes that graphc has, and arrays of tensors in ONNX files."""

from __future__ import annotations

from onnx import TensorProto

from graphc.base.errors import GraphError

DTYPES: dict[int, str] = {
    TensorProto.BOOL: "bool",
    TensorProto.UINT8: "u8",
    TensorProto.INT8: "i8",
    TensorProto.INT32: "i32",
    TensorProto.INT64: "i64",
    TensorProto.FLOAT16: "f16",
    TensorProto.BFLOAT16: "bf16",
    TensorProto.FLOAT: "f32",
    TensorProto.DOUBLE: "f64",
}
"""ONNX's number of a dtype -> graphc's short name."""
NUMBERS = {name: number for number, name in DTYPES.items()}


def dtype_from(number: int) -> str:
    """graphc's name of a dtype of ONNX; GraphError if it has none."""
    if number not in DTYPES:
        known = {n: name for name, n in TensorProto.DataType.items()}
        raise GraphError(f"tensors of {known.get(number, number)} are not offered")
    return DTYPES[number]
