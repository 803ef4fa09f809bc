"""Write files atomically, and make new folders."""

from __future__ import annotations

import itertools
import os
from pathlib import Path

from graphc.base.errors import GraphError

_saves = itertools.count()
"""Numbers of this process's files: threads that write one path write partial files of their own."""


def replace_file(action: str, target: Path, data: bytes) -> None:
    """Write a file, replacing an existing one atomically at the end.

    It raises GraphError, which begins with the action, if the file cannot be written.
    """
    partial = target.with_name(f"{target.name}.{os.getpid()}-{next(_saves)}.partial")
    try:
        partial.write_bytes(data)
        os.replace(partial, target)
    except OSError as error:
        raise GraphError(f"{action}: cannot write {target}: {error.strerror}") from None
    finally:
        partial.unlink(missing_ok=True)


def unused_folder(parent: Path, name: str) -> Path:
    """Return `parent/name`, or `parent/name-2`, `-3`, ... if it exists."""
    number, folder = 1, parent / name
    while folder.exists():
        number += 1
        folder = parent / f"{name}-{number}"
    return folder
