"""Eight processes at a time that begin with one empty cache, some of which are killed.

    python -m tests.files.killed_builds ROUNDS CACHE

Each compiles one program, calls it while its kernels are prebuilt, waits for the compiled ones and
calls it again. Three of eight are killed at random moments. The others have the bits of an
undisturbed process, every file of the cache is whole afterwards, and one more process finds its
kernels there. CACHE holds the player and the prebuilt kernels, which stay.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import sys
import time
from pathlib import Path

import numpy as np

import graphc
from graphc.runtime.compilers import cache

PROCESSES, KILLED = 8, 3
X = np.linspace(-1, 1, 15, dtype=np.float32).reshape(3, 5)


def function(x: graphc.Tensor) -> graphc.Tensor:
    """A product and a reduction."""
    return graphc.sum(graphc.tanh(x @ x.T), 0) / 3


def work() -> bytes:
    """The bits of three calls, before and after the kernels are compiled."""
    program = graphc.compile(function, graphc.spec(X.shape), device="cpu")
    results = [program(X), program(X)]
    program.wait()
    results.append(program(X))
    return b"".join(result.tobytes() for result in results)


def forked() -> tuple[int, int]:
    """A process that writes what `work` returns: its number, and where that can be read."""
    read, write = os.pipe()
    child = os.fork()
    if child:
        os.close(write)
        return child, read
    status = 1
    try:
        os.write(write, work())
        status = 0
    finally:
        os._exit(status)


def ended(child: int, read: int) -> tuple[int, bytes]:
    """A process's exit status, or minus the signal that killed it, and what it wrote."""
    with os.fdopen(read, "rb") as pipe:
        written = pipe.read()
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), written


def empty(folder: Path, kept: set[Path]) -> None:
    """Remove all files but those that were there at first."""
    for path in sorted(folder.rglob("*"), reverse=True):
        if path.is_file() and path not in kept:
            path.unlink()
        elif path.is_dir() and not any(path.iterdir()):
            shutil.rmtree(path)


def whole(folder: Path) -> int:
    """The shared objects of kernels, each of which has its digest and its name among its keys."""
    count = 0
    for path in (folder / "cpu").glob("*.so"):
        body, keys = cache.unsealed(path.read_bytes())
        assert body, f"{path} is damaged"
        assert path.stem[-32:] in keys, f"{path} has another name"
        count += 1
    return count


def main(rounds: int, folder: Path) -> None:
    """Print what happened in so many rounds; AssertionError if a process is disturbed."""
    kept = {path for path in folder.rglob("*") if path.is_file()}
    draw = random.Random(rounds)
    begin = time.monotonic()
    status, expected = ended(*forked())
    assert status == 0 and len(expected) == 3 * X.shape[0] * 4
    assert expected[: len(expected) // 3] == expected[-len(expected) // 3 :]
    usual = time.monotonic() - begin
    killed = finished = objects = 0
    for number in range(1, rounds + 1):
        empty(folder, kept)
        begin = time.monotonic()
        children = [forked() for _ in range(PROCESSES)]
        for child, _ in children[:KILLED]:
            time.sleep(draw.uniform(0, usual / KILLED))
            os.kill(child, signal.SIGKILL)
        for place, (child, read) in enumerate(children):
            status, written = ended(child, read)
            if place < KILLED and status == -signal.SIGKILL:
                killed += 1
                continue
            assert (status, written) == (0, expected), f"status {status}"
            finished += 1
        usual = (time.monotonic() - begin) / 2
        assert ended(*forked()) == (0, expected)
        objects += whole(folder)
        if number == rounds or number % 10 == 0:
            print(
                f"{number} rounds: {killed} killed, {finished} finished with the same bits, "
                f"{objects} shared objects whole",
                flush=True,
            )


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
