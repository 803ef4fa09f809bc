"""Low limits, refused threads, full disks: a right result, or an error that says what is wrong."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tools.soak.vitals import SoakError, check

SECONDS = 120.0
"""After which a victim counts as hanging."""
NOBODY, STRANGER = 65534, 54321
"""A user without rights, and one whom the system does not know."""
DISK = 1 << 20
"""Bytes of a small disk."""


def outcome(fault: Mapping[str, Any], cache: Path | str | None = None, **more: str) -> list[str]:
    """Return what a victim says under a fault, as words of its last line.

    Raises:
        SoakError: It hangs, crashes, or ends in another exception than those of graphc.
    """
    environment = {**os.environ, **more}
    if cache is not None:
        environment["GRAPHC_CACHE_DIR"] = str(cache)
    command = [sys.executable, "-m", "tools.soak.victim", json.dumps(fault)]
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=SECONDS
        )
    except subprocess.TimeoutExpired:
        raise SoakError(f"{fault}: hangs") from None
    lines = done.stdout.splitlines()
    if done.returncode or not lines:
        raise SoakError(f"{fault}: status {done.returncode}: {done.stdout}{done.stderr[-2000:]}")
    return lines[-1].split(maxsplit=2)


def under(faults: Sequence[Mapping[str, Any]], caches: Sequence[Path | None]) -> dict[str, int]:
    """Let a victim meet each fault, with each cache (an empty folder, or None for the usual one).

    Returns:
        How many were right, and how many were refused with an error.

    Raises:
        SoakError: A result is wrong, or as for `outcome`.
    """
    expected = outcome({})
    counts = {"right": 0, "refused": 0}
    for number, fault in enumerate(faults):
        for cache in caches:
            place = None if cache is None else cache / f"cache-{number}"
            kind, *rest = outcome(fault, place)
            if kind == "refused":
                counts["refused"] += 1
            else:
                check(rest == expected[1:], f"{fault}: {kind} {rest}, expected {expected}")
                counts["right"] += 1
    return counts


def few_files(amount: int, folder: Path) -> Mapping[str, Any]:
    """Few file descriptors, with kernels in the cache and without."""
    faults = [{"limit": ["RLIMIT_NOFILE", 3 + n], "wait": True} for n in range(amount)]
    counts = under(faults, [None, folder])
    return {**counts, "at 64": outcome({"limit": ["RLIMIT_NOFILE", 64]})[0]}


def little_memory(amount: int, folder: Path) -> Mapping[str, Any]:
    """Few MiB of addresses more than there are."""
    faults = [{"memory": 2 * n, "wait": True} for n in range(amount)]
    counts = under(faults, [None])
    return {**counts, "with 512 MiB": outcome({"memory": 512})[0]}


def small_files(amount: int, folder: Path) -> Mapping[str, Any]:
    """Files may have few bytes, as with a quota; the cache is empty."""
    faults = [{"limit": ["RLIMIT_FSIZE", 4 << n], "wait": True} for n in range(0, 3 * amount, 3)]
    return under(faults, [None, folder])


def no_threads(amount: int, folder: Path) -> Mapping[str, Any]:
    """The system refuses threads: results are the same."""
    fault = {"threads": True, "wait": True}
    counts = under([fault] * amount, [None, folder])
    check(counts["refused"] == 0, f"without threads: {counts}")
    return counts


def few_processes(amount: int, folder: Path) -> Mapping[str, Any]:
    """A user who may have few processes and threads, and an empty cache."""
    if os.geteuid():
        return {"skipped": "only root may become a user without processes"}
    folder.chmod(0o755)
    counts = {"right": 0, "refused": 0}
    for most in range(amount):
        own = folder / f"cache-{most}"
        own.mkdir(mode=0o700)
        os.chown(own, NOBODY, NOBODY)
        fault = {"user": NOBODY, "limit": ["RLIMIT_NPROC", most], "wait": True}
        counts["refused" if outcome(fault, own)[0] == "refused" else "right"] += 1
    return counts


def unusable_caches(amount: int, folder: Path) -> Mapping[str, Any]:
    """A cache that may not be written, one that is a file, one without a home: an error says so."""
    user = {"user": NOBODY} if os.geteuid() == 0 else {}
    folder.chmod(0o755)
    locked, file = folder / "locked", folder / "file"
    locked.mkdir(mode=0o500)
    file.touch()
    if user:
        os.chown(locked, NOBODY, NOBODY)
    found = {}
    cases: dict[str, tuple[dict[str, Any], str]] = {
        "read-only": (user, str(locked)),
        "a file": ({}, str(file)),
    }
    if user:
        cases["no home"] = ({"user": STRANGER, "home": False}, "")
    for name, (fault, place) in cases.items():
        kind, *said = outcome(fault, place)
        check(kind == "refused", f"{name}: {kind}")
        text = " ".join(said)
        check("cache" in text and "GRAPHC_CACHE_DIR" in text, f"{name}: {text}")
        found[name] = kind
    return found


@contextlib.contextmanager
def small_disk(folder: Path, size: int) -> Iterator[Path | None]:
    """A file system of so many bytes within the block; None where none may be mounted."""
    disk = folder / f"disk-{size}"
    disk.mkdir(exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={size},mode=700", "tmpfs", str(disk)]
    try:
        mounted = subprocess.run(command, capture_output=True).returncode == 0
    except FileNotFoundError:
        mounted = False
    try:
        yield disk if mounted else None
    finally:
        if mounted:
            subprocess.run(["umount", str(disk)], check=True)


def full_disks(amount: int, folder: Path) -> Mapping[str, Any]:
    """A cache on small disks, and checkpoints on one that becomes full."""
    expected = outcome({})
    counts: dict[str, Any] = {"right": 0, "refused": 0}
    for number in range(amount):
        with small_disk(folder, DISK >> (2 * number)) as disk:
            if disk is None:
                return {"skipped": "no file system may be mounted"}
            kind, *rest = outcome({"wait": True}, disk)
            if kind == "refused":
                counts["refused"] += 1
                said = " ".join(rest)
                check("No space left" in said or "make room" in said, f"{DISK >> number}: {said}")
            else:
                check(rest == expected[1:], f"{DISK >> number} bytes: {rest}")
                counts["right"] += 1
    with small_disk(folder, DISK // 4) as disk:
        assert disk is not None
        counts["checkpoints until full"] = int(outcome({"save": str(disk)})[1])
    return counts
