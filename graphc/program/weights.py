"""Weights in safetensors files; nothing is ever unpickled."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from graphc.base.dtypes import BFLOAT16, convert, is_bfloat16, shown
from graphc.base.errors import GraphError
from graphc.base.files import replace_file
from graphc.files.safetensors import DTypeError, FormatError, file_parts, parsed, read_bytes
from graphc.ir import Array, Type
from graphc.nn.state_arrays import as_array, mapping_of


class Stateful(Protocol):
    """Anything with a state dict: a module, a program or an optimizer."""

    def state_dict(self) -> Mapping[str, Any]: ...
    def state_types(self) -> Mapping[str, Type]: ...


def save_weights(path: str | os.PathLike[str], source: Stateful | Mapping[str, Any]) -> None:
    """Write the `state_dict` of a module, program or optimizer to a safetensors file.

    An existing file is replaced atomically at the end. bf16 is stored as such.

    Args:
        path: The file to write.
        source: A module, program, optimizer or dict of arrays.

    Raises:
        GraphError: The file cannot be written, or the format lacks a dtype.

    Example:
        >>> model = nn.Linear(2, 1)
        >>> graphc.save_weights("model.safetensors", model)
        >>> model.load_state_dict(graphc.load_weights("model.safetensors"))
    """
    state = mapping_of("save_weights", source)
    arrays = {name: np.array(as_array(name, value), order="C") for name, value in state.items()}
    types = source.state_types() if hasattr(source, "state_types") else {}
    narrow = {name for name, type in types.items() if type.dtype == "bf16"}
    narrow |= {name for name, array in arrays.items() if is_bfloat16(array.dtype)}
    arrays |= {name: convert(arrays[name], BFLOAT16) for name in narrow}
    try:
        parts = file_parts(arrays, {})
    except FormatError as error:
        raise GraphError(f"save_weights: {error}") from None
    replace_file("save_weights", Path(path), parts)


def load_weights(path: str | os.PathLike[str]) -> dict[str, Array]:
    """Read a safetensors file.

    Args:
        path: The file to read.

    Returns:
        A dict from names to NumPy arrays; bf16 is returned as float32.

    Raises:
        GraphError: The file is missing, truncated, of another format or of a dtype that NumPy
            lacks.

    Example:
        >>> graphc.save_weights("scale.safetensors", {"scale": np.ones(2)})
        >>> graphc.load_weights("scale.safetensors")
        {'scale': array([1., 1.])}
    """
    try:
        arrays, _ = parsed(read_bytes(path))
    except OSError as error:
        raise GraphError(f"load_weights: cannot read {path}: {error.strerror}") from None
    except DTypeError as error:
        raise GraphError(
            f"load_weights: {path} holds '{error}', a dtype that NumPy lacks"
        ) from None
    except FormatError as error:
        raise GraphError(f"load_weights: {path} is not a whole safetensors file: {error}") from None
    return {name: shown(array).copy() for name, array in arrays.items()}
