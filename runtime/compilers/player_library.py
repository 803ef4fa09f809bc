"""The native player: built once for a machine, or brought by a wheel."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import sys
import sysconfig
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import numpy as np

from graphc.base.errors import CompileError
from graphc.runtime.compilers import shipped
from graphc.runtime.compilers.compiler import BackgroundThread, Jobs
from graphc.runtime.compilers.shared_objects import (
    CppSource,
    build,
    build_object,
    compiler_or_none,
    headers_digest,
    is_built,
)
from graphc.runtime.compilers.shipped import PLAYER_FLAGS, PLAYER_SOURCE

T = TypeVar("T")


def player_library() -> ctypes.CDLL:
    """The player, built if neither the cache nor a wheel has it. Raises CompileError."""
    begin_player().finish()
    return _player()


@functools.cache
def begin_player() -> BackgroundThread:
    """Start building the player in the background, once per process. Whoever needs the player gets
    the error if there is one."""

    def build_player() -> None:
        with contextlib.suppress(CompileError):
            _player()

    thread = BackgroundThread(build_player, "graphc-player")
    thread.start()
    return thread


def adopt_player(path: Path) -> None:
    """Use a player that was built before in place of building one, unless this process has one."""
    if begin_player.cache_info().currsize == 0:
        _adopted.append(path)
        begin_player().finish()


def player_object() -> bytes:
    """The shared object of a player for this machine and Python. Raises CompileError."""
    headers = _headers()
    return _of_sources(lambda source: build_object(source, headers, "cpu"))


def player_digest() -> str:
    """The digest of the player's sources."""
    text = PLAYER_SOURCE.read_bytes() + _headers().encode()
    return hashlib.sha256(text).hexdigest()


_adopted: list[Path] = []
"""The player of `adopt_player`, if there is one."""


@functools.cache
def _player() -> ctypes.CDLL:
    if _adopted:
        return ctypes.CDLL(str(_adopted[0]))
    path = shipped.player_of_this_machine()
    if path is None or any(is_built(source, _headers()) for source in _sources()):
        return _built()
    _begin_own()
    return ctypes.CDLL(str(path))


def _built() -> ctypes.CDLL:
    """The player of this machine, built if the cache does not have it."""
    headers = _headers()
    return _of_sources(lambda source: build([source], headers)[0])


def _of_sources(make: Callable[[CppSource], T]) -> T:
    """What `make` makes of the player with its Python module, or if that fails of it alone."""
    *with_module, alone = _sources()
    for source in with_module:
        with contextlib.suppress(CompileError):
            return make(source)
    return make(alone)


def _begin_own() -> None:
    """Build the player with its Python module at the least priority: a wheel's has none, and later
    processes find it."""

    def build_own() -> None:
        with contextlib.suppress(CompileError):
            _built()

    if _caller_flags() and compiler_or_none() is not None:
        BackgroundThread(build_own, "graphc-own-player", Jobs(in_background=True)).try_start()


def _sources() -> Iterator[CppSource]:
    """The player with its Python module, if that can be built, then without."""
    flags = (f"-I{PLAYER_SOURCE.parent}", *PLAYER_FLAGS)
    source = CppSource(
        "player", PLAYER_SOURCE.read_text(), "the CPU player", flags=flags, lasting=True
    )
    if more := _caller_flags():
        yield replace(source, flags=flags + more)
    yield source


def _headers() -> str:
    return headers_digest(PLAYER_SOURCE.parent)


def _caller_flags() -> tuple[str, ...]:
    """Flags that build the player with its Python module, if the headers are installed."""
    folders = sysconfig.get_path("include"), np.get_include()
    headers = [Path(folders[0], "Python.h"), Path(folders[1], "numpy", "arrayobject.h")]
    if sysconfig.get_config_var("Py_GIL_DISABLED") or not all(map(Path.exists, headers)):
        return ()
    versions = f"-DGRAPHC_CALLER={sys.hexversion:#x} -DGRAPHC_NUMPY={np.__version__!r}"
    return tuple(f"-I{folder}" for folder in folders) + tuple(versions.split())
