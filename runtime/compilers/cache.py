"""The cache of compiled code and choices: one folder per kind, in `config.cache_dir()`.

Whoever can write there decides what code runs here. So the folders are private to their user, and a
folder or file that belongs to another user, or that others may write, is refused. A loaded file
ends with the keys that it was built for and a digest of everything before: a truncated, changed or
misplaced file is detected and built again. Files are renamed into place, so any number of processes
may build the same thing. When the cache exceeds GRAPHC_CACHE_LIMIT, the least recently used entries
are removed.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import re
import shutil
import stat
import tempfile
import threading
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from graphc.base.config import cache_dir, cache_limit, compile_seconds
from graphc.base.errors import CompileError
from graphc.base.locks import NOTES, free_after_fork

KINDS = ("cpu", "cuda", "sim", "choices", "plans")
"""The folders of the cache."""
OURS = re.compile(r"(.+-)?[0-9a-f]{32}\.(so|o|cpp|cu|cubin|log|choice|plan)")
"""The names of files that graphc creates."""

_SCRATCH = "building-"
"""The prefix of folders that are being built in."""
_DIGEST = hashlib.sha256().digest_size
"""Bytes of a digest."""
_LENGTH = 4
"""Bytes of the length of the keys."""
_HOUR = 3600.0


@contextlib.contextmanager
def open_folder(kind: str) -> Iterator[Path]:
    """The folder of this kind, created if needed. Raises CompileError if it is not private, and for
    errors of writing there."""
    folder = cache_dir() / kind
    try:
        for path in (folder.parent, folder):
            with contextlib.suppress(FileExistsError):
                path.mkdir(mode=0o700, parents=True)
            status = path.stat()
            if not stat.S_ISDIR(status.st_mode):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
            _refuse_others(path, status)
        yield folder
        _tidy()
    except OSError as error:
        raise CompileError(
            f"cannot write the cache of compiled kernels in {folder}: {error.strerror}; "
            "make room there, or let GRAPHC_CACHE_DIR name another folder"
        ) from error


@contextlib.contextmanager
def scratch(folder: Path) -> Iterator[Path]:
    """A folder to build in, removed at the end; that of a killed process is removed later."""
    with tempfile.TemporaryDirectory(prefix=_SCRATCH, dir=folder) as made:
        yield Path(made)


def store_file(content: bytes, target: Path) -> Path:
    """Store a file in the cache, atomically and readable only by its user; returns its path."""
    with scratch(target.parent) as folder:
        written = folder / "written"
        written.write_bytes(content)
        written.chmod(0o600)
        return written.replace(target)


def _link(source: Path, target: Path) -> None:
    """Give a file another name, or copy it where the file system has no hard links."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy(source, target)


def sealed(body: bytes, keys: Iterable[str]) -> bytes:
    """`body` followed by the keys that it was built for and the digest of both."""
    text = " ".join(keys).encode()
    content = body + text + len(text).to_bytes(_LENGTH, "little")
    return content + hashlib.sha256(content).digest()


def seal(path: Path, keys: Iterable[str]) -> None:
    """Seal a file before it enters the cache; see `sealed`."""
    content = sealed(path.read_bytes(), keys)
    path.write_bytes(content)
    path.chmod(0o600)
    _cache.grew(len(content))


def keep(built: Path, paths: Sequence[Path]) -> None:
    """Seal a file, and let the cache have it under all `paths`, whose names end with its keys. The
    file lies in a scratch folder."""
    seal(built, [path.stem[-32:] for path in paths])
    name = built.with_name("name")
    for path in paths:
        _link(built, name)
        name.replace(path)


def unsealed(content: bytes | None) -> tuple[bytes, frozenset[str]]:
    """The body and the keys of sealed content; no keys if it is damaged."""
    if content is None or len(content) < _DIGEST + _LENGTH:
        return b"", frozenset()
    content, digest = content[:-_DIGEST], content[-_DIGEST:]
    if hashlib.sha256(content).digest() != digest:
        return b"", frozenset()
    end = len(content) - _LENGTH
    start = end - int.from_bytes(content[end:], "little")
    return content[:start], frozenset(content[start:end].decode(errors="replace").split())


def intact(path: Path, key: str) -> bool:
    """Whether `path` holds an undamaged build for the key."""
    return key in unsealed(read(path))[1]


def read(path: Path) -> bytes | None:
    """The contents of a cached file, which then counts as recently used; None if there is no such
    regular file. Raises CompileError for a file of another user, or that others may write."""
    try:
        # Opening a pipe that nobody writes to would wait for ever.
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    with open(file, "rb") as opened_file:
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode):
            return None
        _refuse_others(path, status)
        if time.time() - status.st_mtime > _HOUR:
            os.utime(file)
        return opened_file.read()


def choice_key(*parts: object) -> str:
    """The key of a choice that depends on the printed form of `parts`."""
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:32]


def recall_choice(key: str) -> Any:
    """The choice that `remember_choice` stored under the key; None if there is none."""
    with open_folder("choices") as folder:
        body, keys = unsealed(read(folder / f"{key}.choice"))
    return json.loads(body) if key in keys else None


def remember_choice(key: str, choice: Any) -> None:
    """Store a choice made by measurement under the digest of everything that it depends on."""
    with open_folder("choices") as folder:
        store_file(sealed(json.dumps(choice).encode(), [key]), folder / f"{key}.choice")


@dataclass
class Entry:
    """A unit of removal: one file under all its names, or all files of one key."""

    paths: list[Path] = field(default_factory=list)
    files: int = 0
    """Number of files."""
    nbytes: int = 0
    """Their size."""
    used: float = 0.0
    """The time of the last use, to the hour, in seconds since 1970."""


def entries() -> list[Entry]:
    """Everything that graphc has stored in the cache."""
    found: dict[object, Entry] = {}
    for path in (p for kind in KINDS for p in _listed(cache_dir() / kind)):
        status = _status(path)
        if status is None or not OURS.fullmatch(path.name):
            continue
        several = status.st_nlink > 1
        identity = (status.st_dev, status.st_ino) if several else path.with_suffix("")
        entry = found.setdefault(identity, Entry())
        if not several or not entry.paths:  # kernels that were built together: names of one file
            entry.files += 1
            entry.nbytes += status.st_size
        entry.paths.append(path)
        entry.used = max(entry.used, status.st_mtime)
    return list(found.values())


def clear() -> list[Path]:
    """Remove everything that graphc has stored in the cache, and empty folders; returns what is
    left."""
    _remove(entries())
    _sweep(0.0)
    base = cache_dir()
    for folder in (*(base / kind for kind in KINDS), base):
        with contextlib.suppress(OSError):
            folder.rmdir()
    return _listed(base)


class _Cache:
    """The cache's growth in this process."""

    def __init__(self) -> None:
        self.lock = free_after_fork(threading.Lock(), NOTES)
        self.grown = 0
        """Bytes added since the size was last checked."""
        self.sizes: dict[Path, int] = {}

    def grew(self, nbytes: int) -> None:
        """Note `nbytes` of new files."""
        with self.lock:
            self.grown += nbytes


_cache = _Cache()


def _tidy() -> None:
    """If anything was built, shrink the cache to its limit; the first time also remove folders of
    killed builds."""
    with _cache.lock:
        if not _cache.grown:
            return
        base, limit = cache_dir(), cache_limit()
        if base not in _cache.sizes:
            _sweep(2 * compile_seconds())
            _cache.sizes[base] = sum(entry.nbytes for entry in entries())
        else:
            _cache.sizes[base] += _cache.grown
        _cache.grown = 0
        if _cache.sizes[base] > limit:
            _cache.sizes[base] = _shrink(0.8 * limit)


def _shrink(limit: float) -> int:
    """Remove the least recently used entries until at most `limit` bytes are left; returns how many
    were removed."""
    kept = sorted(entries(), key=lambda entry: -entry.used)
    total = sum(entry.nbytes for entry in kept)
    while kept and total > limit:
        total -= kept[-1].nbytes
        _remove([kept.pop()])
    return total


def _sweep(age: float) -> None:
    """Remove build folders that were not written to for `age` seconds."""
    for path in (p for kind in KINDS for p in _listed(cache_dir() / kind)):
        if path.name.startswith(_SCRATCH):
            with contextlib.suppress(FileNotFoundError):
                if time.time() - path.lstat().st_mtime >= age:
                    shutil.rmtree(path, ignore_errors=True)


def _remove(unwanted: Collection[Entry]) -> None:
    for path in (path for entry in unwanted for path in entry.paths):
        with contextlib.suppress(FileNotFoundError):
            path.unlink()


def _listed(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []


def _status(path: Path) -> os.stat_result | None:
    """The status of a regular file; None if it is none or was just removed by another process."""
    try:
        status = path.lstat()
    except FileNotFoundError:
        return None
    return status if stat.S_ISREG(status.st_mode) else None


def _refuse_others(path: Path, status: os.stat_result) -> None:
    """Raise CompileError for a file that belongs to others or that others may write."""
    own = os.geteuid()
    if status.st_uid != own:
        raise CompileError(
            f"the cache of compiled kernels is not used: {path} belongs to user {status.st_uid}, "
            f"not to {own}, and what lies there is run; remove it, or let GRAPHC_CACHE_DIR name a "
            "folder of your own"
        )
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise CompileError(
            f"the cache of compiled kernels is not used: others may write {path} (mode "
            f"{stat.S_IMODE(status.st_mode):o}), and what lies there is run; chmod go-w it if you "
            "trust what is there, else remove it, or let GRAPHC_CACHE_DIR name another folder"
        )
