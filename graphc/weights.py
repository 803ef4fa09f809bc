"""Weights in safetensors files. Nothing is ever unpickled."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

import numpy as np

from graphc.errors import GraphError
from graphc.nn.module import as_array, mapping_of

Array = np.ndarray[Any, np.dtype[Any]]


class Stateful(Protocol):
    """A module, a program or a rule."""

    def state_dict(self) -> Mapping[str, Any]: ...


def save_weights(path: str | os.PathLike[str], source: Stateful | Mapping[str, Any]) -> None:
    """Write the `state_dict` of a module, program or rule, or a dict of arrays, to one safetensors
    file.

    A file that is there is replaced at once at the end, so a failure leaves it whole. GraphError
    if the library is missing or the file cannot be written.
    """
    library = _library()
    state = mapping_of("save_weights", source)
    # The library writes the wrong elements of an array that is not contiguous.
    arrays = {name: np.array(as_array(name, value), order="C") for name, value in state.items()}
    target = Path(path)
    partial = target.with_name(f"{target.name}.{os.getpid()}.partial")
    try:
        partial.write_bytes(library.save(arrays))
        os.replace(partial, target)
    except OSError as error:
        raise GraphError(f"save_weights: cannot write {target}: {error.strerror}") from None
    finally:
        partial.unlink(missing_ok=True)


def load_weights(path: str | os.PathLike[str]) -> dict[str, Array]:
    """Name -> array of a safetensors file; `module.load_state_dict(load_weights(path))`.

    GraphError if the library or the file is missing, or the file is cut short, of another format
    or of a dtype that NumPy lacks.
    """
    library = _library()
    try:
        arrays: dict[str, Array] = library.load(Path(path).read_bytes())
    except OSError as error:
        raise GraphError(f"load_weights: cannot read {path}: {error.strerror}") from None
    except KeyError as error:
        raise GraphError(f"load_weights: {path} holds {error}, a dtype that NumPy lacks") from None
    except Exception as error:  # the library's own class of errors
        raise GraphError(f"load_weights: {path} is not a whole safetensors file: {error}") from None
    return arrays


def _library() -> ModuleType:
    try:
        import safetensors.numpy
    except ImportError:
        raise GraphError(
            "weights files need the safetensors library: pip install 'graphc[weights]'"
        ) from None
    return safetensors.numpy
