"""Weights in safetensors files. Nothing is ever unpickled."""

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
from graphc.base.files import write_whole
from graphc.ir import Array, Type
from graphc.nn.state_arrays import as_array, mapping_of


class Stateful(Protocol):
    """A module, a program or a rule."""

    def state_dict(self) -> Mapping[str, Any]: ...
    def state_types(self) -> Mapping[str, Type]: ...


def save_weights(path: str | os.PathLike[str], source: Stateful | Mapping[str, Any]) -> None:
    """Write the `state_dict` of a module, program or rule, or a dict of arrays, to one safetensors
    file. bf16 is stored as such.

    A file that is there is replaced at once at the end, so a failure leaves it whole. GraphError
    if the library is missing or the file cannot be written.
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
    write_whole("save_weights", Path(path), data)


def load_weights(path: str | os.PathLike[str]) -> dict[str, Array]:
    """Name -> array of a safetensors file; `module.load_state_dict(load_weights(path))`. bf16 comes
    as float32.

    GraphError if the library or the file is missing, or the file is cut short, of another format
    or of a dtype that NumPy lacks.
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
    """Name -> dtype, as a safetensors file says: eight bytes with the header's length, the header
    as JSON, the elements. Nothing where the header cannot be read, which the library explains."""
    try:
        header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
        return {name: item["dtype"] for name, item in header.items() if name != "__metadata__"}
    except (ValueError, AttributeError, TypeError, KeyError, OverflowError):
        return {}


def _relabelled(data: bytes, dtypes: Mapping[str, str]) -> bytes:
    """The file with other dtypes of the same width in its header: NumPy, and with it the library,
    knows bf16 as integers alone."""
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
