"""Portable compiled kernels: built on one machine, loaded on another without a compiler.

GRAPHC_CUBINS names a folder. A file's name is the digest of a kernel's text, of its headers and of
the options that affect its meaning; paths and the compiler are not part of it. Missing kernels are
compiled and added.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path

from graphc.runtime.compilers import cache

_SIZE = struct.Struct("<I")


def cubin_path(folder: Path, parts: Sequence[str]) -> Path:
    """The file of the kernel that `parts` determine: its text, headers and options."""
    return folder / f"{hashlib.sha256(chr(0).join(parts).encode()).hexdigest()[:32]}.cubin.z"


def read(file: Path) -> tuple[bytes, str] | None:
    """The image and the compiler's log; None if the file is missing or damaged."""
    try:
        whole = zlib.decompress(file.read_bytes())
        (size,) = _SIZE.unpack_from(whole)
    except (OSError, zlib.error, struct.error):
        return None
    log, image = whole[_SIZE.size : _SIZE.size + size], whole[_SIZE.size + size :]
    return image, log.decode(errors="replace")


def write(file: Path, image: bytes, log: str) -> None:
    """Add a compiled kernel atomically."""
    text = log.encode()
    file.parent.mkdir(parents=True, exist_ok=True)
    cache.store_file(zlib.compress(_SIZE.pack(len(text)) + text + image), file)
