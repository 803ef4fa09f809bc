"""Compile what a check of a GPU needs, without a GPU: `python -m tools.gpu_check.cubins FOLDER`.

It runs the commands of the stages on a driver that records calls and runs nothing. So the folder
gets exactly the kernels that they load; wrong results do not matter. On the machine with the GPU,
GRAPHC_CUBINS names the folder.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from graphc.base.cores import usable_cores
from tests.cuda.records import FAKES
from tools.driver_stub import build_stub, find_headers
from tools.gpu_check import goals
from tools.gpu_check.benchmarks import command_of
from tools.gpu_check.process import ROOT, Countdown, python
from tools.gpu_check.stages import TESTS

MOST_SECONDS = 1200.0
"""Seconds of one command."""
MOST_BYTES = 48 << 20
"""Bytes of the folder beyond which no more benchmarks are compiled; the least valuable come
last."""


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="gpu_check.cubins", description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?", default=ROOT / "build" / "cubins")
    parser.add_argument("--minutes", type=float, default=60.0, help="all commands together")
    parser.add_argument("--only", default="", help="commands whose title has this word")
    options = parser.parse_args(arguments)
    headers = find_headers()
    if headers is None:
        raise SystemExit("there is no cuda.h: install a CUDA toolkit or nvidia-cuda-runtime")
    folder, clock = options.folder.absolute(), Countdown(60 * options.minutes)
    with tempfile.TemporaryDirectory() as scratch:
        build_stub(headers, Path(scratch), FAKES)
        os.environ["LD_LIBRARY_PATH"] = scratch
        os.environ["GRAPHC_CUBINS"] = str(folder)
        os.environ["GRAPHC_CACHE_DIR"] = str(Path(scratch) / "cache")

        def play(command: tuple[str, list[str]]) -> None:
            title, words = command
            before = _size(folder)
            if clock.left() < 1 or before > MOST_BYTES:
                print(f"{title}: left out", flush=True)
                return
            done = python(words, min(MOST_SECONDS, clock.left()))
            count = len(list(folder.glob("*.z")))
            print(
                f"{title}: {done.seconds:.0f} s; {count} kernels, {_size(folder) / 1e6:.1f} MB",
                flush=True,
            )

        wanted = [c for c in commands() if options.only in c[0]]
        with ThreadPoolExecutor(usable_cores()) as pool:
            list(pool.map(play, wanted))


def commands() -> Iterator[tuple[str, list[str]]]:
    """The commands of the stages by title, the most valuable first."""
    yield "smoke", ["-m", "tools.gpu_check.smoke", "cuda"]
    quiet = ["-m", "pytest", "-q", "--tb=no", "-p", "no:cacheprovider", "-m", "gpu"]
    yield "ops", [*quiet, "-k", "an_op_means", *TESTS]
    yield "models", [*quiet, "-k", "not an_op_means", *TESTS]
    yield "kernels", ["-m", "tests.cuda.steps", "cuda"]
    yield "calibration", ["-m", "tools.gpu_check.calibration", "cuda"]
    yield "host", ["-m", "tools.gpu_check.host", "cuda"]
    yield "bandwidth", ["-m", "tools.gpu_check.bandwidth", "cuda"]
    seen = dict.fromkeys([*goals.decisive(goals.CHOSEN), *goals.measurements(goals.CHOSEN)])
    for each in seen:
        if each.peer == "graphc" and each.mode == "train":
            yield each.name, command_of(each, "cuda", "0.01")


def _size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.glob("*.z"))


if __name__ == "__main__":
    main()
