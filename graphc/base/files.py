"""Write files atomically, and make new folders."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from graphc.base.errors import GraphError

PARTIAL = ".partial"
"""The end of the names of files that are being written."""

_saves = itertools.count()
"""Numbers of this process's files: threads that write one path write partial files of their own."""


def replace_file(action: str, target: Path, parts: Iterable[Any]) -> None:
    """Write a file, replacing an existing one atomically at the end.

    The contents are on the disk before the file gets its name, so that neither a killed process nor
    a power failure leaves half of it. It raises GraphError, which begins with the action, if the
    file cannot be written.

    Args:
        action: The user's function, for the message.
        target: The file.
        parts: Its contents in order, each bytes or a buffer of bytes.
    """
    partial = target.with_name(f"{target.name}.{os.getpid()}-{next(_saves)}{PARTIAL}")
    try:
        with open(partial, "wb") as file:
            file.writelines(parts)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, target)
        _sync_folder(target.parent)
    except OSError as error:
        raise GraphError(f"{action}: cannot write {target}: {error.strerror}") from None
    finally:
        with suppress(OSError):
            partial.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    """Let the folder's new names survive a power failure, where the system can do that."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def unused_folder(parent: Path, name: str) -> Path:
    """Return `parent/name`, or `parent/name-2`, `-3`, ... if it exists."""
    number, folder = 1, parent / name
    while folder.exists():
        number += 1
        folder = parent / f"{name}-{number}"
    return folder
