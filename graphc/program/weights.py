"""Weights in safetensors files; nothing is ever unpickled."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

import numpy as np

from graphc.base.dtypes import BFLOAT16, convert, shown
from graphc.base.errors import GraphError
from graphc.base.files import replace_file
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
        GraphError: The library is missing or the file cannot be written.

    Example:
        >>> model = nn.Linear(2, 1)
        >>> graphc.save_weights("model.safetensors", model)
        >>> model.load_state_dict(graphc.load_weights("model.safetensors"))
    """
    library = _library()
    state = mapping_of("save_weights", source)
    # The library writes the wrong elements of an array that is not contiguous.
    arrays = {name: np.array(as_array(name, value), order="C") for name, value in state.items()}
    types = source.state_types() if hasattr(source, "state_types") else {}
    names = {n for n, a in arrays.items() if a.dtype == BFLOAT16}
    names |= {name for name, type in types.items() if type.dtype == "bf16"}
    for name in names:
        arrays[name] = convert(arrays[name], BFLOAT16).view(np.uint16)
    data = _relabelled(library.save(arrays), dict.fromkeys(names, "BF16"))
    replace_file("save_weights", Path(path), data)


def load_weights(path: str | os.PathLike[str]) -> dict[str, Array]:
    """Read a safetensors file.

    Args:
        path: The file to read.

    Returns:
        A dict from names to NumPy arrays; bf16 is returned as float32.

    Raises:
        GraphError: The library or file is missing, or the file is truncated, of another format or
            of a dtype that NumPy lacks.

    Example:
        >>> graphc.save_weights("scale.safetensors", {"scale": np.ones(2)})
        >>> graphc.load_weights("scale.safetensors")
        {'scale': array([1., 1.])}
    """
    library = _library()
    try:
        data = Path(path).read_bytes()
        names = [name for name, dtype in _labels(data).items() if dtype == "BF16"]
        arrays: dict[str, Array] = library.load(_relabelled(data, dict.fromkeys(names, "U16")))
    except OSError as error:
        raise GraphError(f"load_weights: cannot read {path}: {error.strerror}") from None
    except KeyError as error:
        raise GraphError(f"load_weights: {path} holds {error}, a dtype that NumPy lacks") from None
    except Exception as error:  # the library's own class of errors
        raise GraphError(f"load_weights: {path} is not a whole safetensors file: {error}") from None
    return arrays | {name: shown(arrays[name].view(BFLOAT16)) for name in names}


def _labels(data: bytes) -> dict[str, str]:
    """Return name -> dtype as the header of a safetensors file says.

    A file is eight bytes with the header's length, the header as JSON, and the elements. The result
    is empty if the header cannot be read, which the library explains.
    """
    try:
        header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
        return {name: item["dtype"] for name, item in header.items() if name != "__metadata__"}
    except (ValueError, AttributeError, TypeError, KeyError, OverflowError):
        return {}


def _relabelled(data: bytes, dtypes: Mapping[str, str]) -> bytes:
    """Return the file with other dtypes of the same width in its header.

    NumPy, and with it the library, knows bf16 only as integers.
    """
    if not dtypes:
        return data
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    for name, dtype in dtypes.items():
        header[name]["dtype"] = dtype
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + data[8 + size :]


def _library() -> ModuleType:
    try:
        import safetensors.numpy
    except ImportError:
        raise GraphError(
            "weights files need the safetensors library: pip install 'graphc[weights]'"
        ) from None
    return safetensors.numpy
