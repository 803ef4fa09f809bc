"""The user's files, which lines name without their folders."""

from __future__ import annotations

import linecache
import os
import sys
from collections.abc import Iterable

LONGEST = 200_000
"""Characters: a longer file is left out of a report."""


def source_files(lines: Iterable[str]) -> dict[str, str]:
    """Return the text of each file that `lines`, such as `net.py:12`, name.

    Files are looked for among loaded modules and the lines that Python has shown, such as a
    notebook's cells. A file that is not found, or whose name is ambiguous, is left out.
    """
    named: dict[str, int] = {}
    for line in lines:
        name, _, number = line.rpartition(":")
        named[name] = max(named.get(name, 0), int(number))
    paths: dict[str, set[str]] = {}
    for path in _known_files():
        if os.path.basename(path) in named:
            paths.setdefault(os.path.basename(path), set()).add(path)
    files = {}
    for name, last in named.items():
        texts = {"".join(linecache.getlines(path)) for path in paths.get(name, ())}
        fitting = [t for t in texts if t.count("\n") + 1 >= last and len(t) <= LONGEST]
        if len(fitting) == 1:
            files[name] = fitting[0]
    return files


def _known_files() -> set[str]:
    modules = (getattr(module, "__file__", None) for module in list(sys.modules.values()))
    return {path for path in (*modules, *list(linecache.cache)) if path}
