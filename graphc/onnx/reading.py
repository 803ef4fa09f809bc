"""Read ONNX files and their tensors.

Nothing outside of the model's folder is read, and everything that a file says is checked first.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from google.protobuf.message import DecodeError
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, numpy_helper

from graphc.base.dtypes import BFLOAT16
from graphc.base.errors import GraphError
from graphc.ir import Array

LARGEST = 2**31
"""The most bytes that a tensor may have whose elements are not all in the file."""


def read(source: Any) -> tuple[ModelProto, Path | None]:
    """The model, checked, and the folder that its external data may lie in: that of the file.

    `source` is a path, the bytes of a file or an `onnx.ModelProto`. GraphError if it cannot be
    read or is not valid.
    """
    folder = None
    if isinstance(source, ModelProto):
        model = source
    else:
        data = source
        if not isinstance(source, bytes | bytearray):
            folder = Path(source).resolve().parent
            try:
                data = Path(source).read_bytes()
            except OSError as problem:
                raise GraphError(f"onnx.load: cannot read {source}: {problem.strerror}") from None
        try:
            model = ModelProto.FromString(bytes(data))
        except DecodeError:
            raise GraphError(f"onnx.load: {_shown(source)} is not an ONNX model") from None
    _check(model, _shown(source))
    return model, folder


def _shown(source: Any) -> str:
    named = isinstance(source, str | os.PathLike)
    return Path(source).name if named else "the model"


def _check(model: ModelProto, name: str) -> None:
    """GraphError unless the checker of ONNX accepts what is not external data."""
    try:
        onnx.checker.check_model(_without_external(model))
    except (onnx.checker.ValidationError, ValueError, RuntimeError) as problem:
        first = next(iter(str(problem).splitlines()), "")
        raise GraphError(f"onnx.load: {name} is not a valid model: {first}") from None


def _without_external(model: ModelProto) -> ModelProto:
    """The model as the checker may see it: it would look for files beside this process."""
    if not any(t.data_location == TensorProto.EXTERNAL for t in tensors(model)):
        return model
    copy = ModelProto()
    copy.CopyFrom(model)
    for tensor in tensors(copy):
        if tensor.data_location == TensorProto.EXTERNAL:
            tensor.ClearField("external_data")
            tensor.ClearField("data_location")
            tensor.ClearField("raw_data")
            del tensor.dims[:]
            tensor.dims.append(0)
    return copy


def tensors(model: ModelProto) -> Iterator[TensorProto]:
    """Every tensor of a model: initializers and attributes, in graphs within and functions too."""
    yield from _of_graph(model.graph)
    for function in model.functions:
        yield from _of_nodes(function.node)


def _of_graph(graph: GraphProto) -> Iterator[TensorProto]:
    yield from graph.initializer
    for sparse in graph.sparse_initializer:
        yield from (sparse.values, sparse.indices)
    yield from _of_nodes(graph.node)


def _of_nodes(nodes: Any) -> Iterator[TensorProto]:
    for node in nodes:
        for attribute in node.attribute:
            yield from attribute.tensors
            if attribute.HasField("t"):
                yield attribute.t
            for graph in graphs(attribute):
                yield from _of_graph(graph)


def graphs(attribute: AttributeProto) -> list[GraphProto]:
    """The graphs that an attribute holds."""
    return [*attribute.graphs, *([attribute.g] if attribute.HasField("g") else [])]


def label(node: NodeProto) -> str:
    """How messages call a node: by its name, else by its first output."""
    name = node.name or next(iter(node.output), "")
    return f"{name}: {node.op_type}"


def array_from(tensor: TensorProto, folder: Path | None) -> Array:
    """The elements as an array; bf16 as graphc has it. GraphError where they are not all there."""
    about = f"onnx.load: the tensor {tensor.name!r}"
    if any(n < 0 for n in tensor.dims):
        raise GraphError(f"{about} has a negative extent: {list(tensor.dims)}")
    if tensor.data_location == TensorProto.EXTERNAL:
        tensor = _with_external(tensor, folder, about)
    try:
        if math.prod(tensor.dims) > LARGEST:
            raise ValueError(f"its {list(tensor.dims)} elements are too many")
        array: Array = numpy_helper.to_array(tensor)
    except (ValueError, TypeError, KeyError, NotImplementedError, OverflowError) as problem:
        raise GraphError(f"{about} cannot be read: {' '.join(str(problem).split())}") from None
    return array.view(BFLOAT16) if array.dtype.name == "bfloat16" else array


def dense(sparse: Any, folder: Path | None) -> Array:
    """A sparse tensor with its zeros."""
    shape, values = list(sparse.dims), array_from(sparse.values, folder)
    about = f"onnx.load: the sparse tensor {sparse.values.name!r}"
    if any(n < 0 for n in shape) or math.prod(shape) * values.itemsize > LARGEST:
        raise GraphError(f"{about} has extents {shape}, expected {LARGEST} bytes at most")
    places = array_from(sparse.indices, folder)
    flat = np.ravel_multi_index(tuple(places.T), shape) if places.ndim == 2 else places
    whole = np.zeros(math.prod(shape), values.dtype)
    if flat.size and not (0 <= flat.min() and flat.max() < whole.size):
        raise GraphError(f"{about} has places outside of {shape}")
    whole[flat] = values
    return whole.reshape(shape)


def _with_external(tensor: TensorProto, folder: Path | None, about: str) -> TensorProto:
    """The tensor with the bytes of its file, which lies in the folder of the model or below it."""
    entries = {entry.key: entry.value for entry in tensor.external_data}
    location = entries.get("location", "")
    if folder is None:
        raise GraphError(f"{about} lies in {location!r}: load the model by its path")
    path = (folder / location).resolve()
    if "\0" in location or not path.is_relative_to(folder) or not path.is_file():
        raise GraphError(f"{about} lies in {location!r}, which is no file in the model's folder")
    try:
        start = int(entries.get("offset") or 0)
        length = int(entries["length"]) if entries.get("length") else path.stat().st_size - start
    except ValueError:
        start = length = -1
    if start < 0 or length < 0 or start + length > path.stat().st_size:
        raise GraphError(f"{about} expected bytes of {location!r} that it does not have")
    copy = TensorProto()
    copy.CopyFrom(tensor)
    copy.ClearField("data_location")
    copy.ClearField("external_data")
    with path.open("rb") as file:
        file.seek(start)
        copy.raw_data = file.read(length)
    return copy
