"""Sealed files: arrays and a JSON document in a safetensors file, under a digest.

The metadata of the file are `sha256`, `kind` (such as `graphc checkpoint 1`) and `document`. The
digest is that of the whole file with zeros in its own place, so any change of any byte is found.
Other programs read the arrays as those of any safetensors file.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from graphc.base.dtypes import Array
from graphc.base.files import replace_file
from graphc.files.safetensors import METADATA, FormatError, file_parts, parsed, parsed_json

_BEGIN = f'{{"{METADATA}":{{"sha256":"'.encode()
_BLANK = "0" * hashlib.sha256().digest_size * 2
_FIRST = 8 + len(_BEGIN)
"""The place of the digest in a file."""


def write_sealed(
    action: str, path: Path, kind: str, document: Any, arrays: Mapping[str, Array]
) -> None:
    """Write a sealed file, replacing an existing one atomically at the end.

    Args:
        action: The user's function, for the message.
        path: The file.
        kind: What the file is, with the version of its format.
        document: Data for JSON.
        arrays: Arrays by name, row-major.

    Raises:
        GraphError: The file cannot be written.
    """
    text = json.dumps(document, separators=(",", ":"), allow_nan=False)
    metadata = {"sha256": _BLANK, "kind": kind, "document": text}
    parts = file_parts(arrays, metadata)
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    place = len(_BEGIN)
    assert parts[1].startswith(_BEGIN + _BLANK.encode())
    parts[1] = _BEGIN + digest.hexdigest().encode() + parts[1][place + len(_BLANK) :]
    replace_file(action, path, parts)


def unsealed(data: Array, kind: str) -> tuple[Any, dict[str, Array]]:
    """Return the document and the arrays of a sealed file.

    Args:
        data: The file u8 [n].
        kind: What it has to be.

    Returns:
        The document; and the arrays, which are views of `data`.

    Raises:
        FormatError: The file is truncated, changed, or of another kind.
    """
    begin = data[8:_FIRST].tobytes()
    if begin != _BEGIN:
        raise FormatError("it does not begin as a file of graphc does")
    stop = _FIRST + len(_BLANK)
    digest = hashlib.sha256(data[:_FIRST].data)
    digest.update(_BLANK.encode())
    digest.update(data[stop:].data)
    if digest.hexdigest().encode() != data[_FIRST:stop].tobytes():
        raise FormatError("its digest is that of other contents: it is truncated or changed")
    arrays, metadata = parsed(data)
    if metadata.keys() != {"sha256", "kind", "document"}:
        raise FormatError("its metadata are not those of graphc")
    if metadata["kind"] != kind:
        raise FormatError(f"expected a {kind!r}, it is a {metadata['kind']!r}")
    return parsed_json(metadata["document"]), arrays


def folder_names(folder: str | os.PathLike[str]) -> list[str]:
    """Return the names in a folder, in order; none if there is no folder."""
    try:
        return sorted(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return []


def digest_of(arrays: Mapping[str, Array]) -> str:
    """Return the SHA-256 of names, dtypes, shapes and elements, in the order of the names."""
    digest = hashlib.sha256()
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        digest.update(repr((name, array.dtype.str, array.shape)).encode())
        digest.update(array.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()
