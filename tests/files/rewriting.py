"""Sealed files with something changed in them, under a digest that fits."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Any

BEGIN = 8 + len('{"__metadata__":{"sha256":"')
DIGITS = 64


def resealed(data: bytes) -> bytes:
    """The file with the digest of what it holds."""
    parts = data[:BEGIN], b"0" * DIGITS, data[BEGIN + DIGITS :]
    digest = hashlib.sha256(b"".join(parts)).hexdigest().encode()
    return parts[0] + digest + parts[2]


def split(data: bytes) -> tuple[dict[str, Any], bytes]:
    """The header of a file and its elements."""
    stop = 8 + int.from_bytes(data[:8], "little")
    return json.loads(data[8:stop]), data[stop:]


def joined(header: dict[str, Any], elements: bytes) -> bytes:
    """The sealed file of a header and elements."""
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return resealed(len(text).to_bytes(8, "little") + text + elements)


def rewritten(data: bytes, edit: Callable[[Any], Any]) -> bytes:
    """The file after `edit` has changed its document, in place or by what it returns."""
    header, elements = split(data)
    document = json.loads(header["__metadata__"]["document"])
    changed = edit(document)
    whole = document if changed is None else changed
    header["__metadata__"]["document"] = json.dumps(whole, separators=(",", ":"))
    return joined(header, elements)
