"""Time LeNet in a browser: graphc in WebAssembly and TensorFlow.js, and graphc outside.

    python examples/train_in_browser/build.py PAGE
    npm install --prefix TFJS @tensorflow/tfjs @tensorflow/tfjs-backend-wasm
    python -m benchmarks.in_browser PAGE --tfjs TFJS/node_modules

All on one thread, in turns, in rounds; printed are the medians of the rounds' medians and, in
parentheses, the least times, in milliseconds.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

from tests.report.browser import chromium, served

Found = dict[tuple[str, str], list[list[float]] | str]
"""The milliseconds of each round's calls, or why there are none, by who and what."""
ROOT = Path(__file__).resolve().parent.parent
"""The project's folder."""
CALLS = {"step": 8, "classify": 8, "recognise": 8}
"""The functions of the page, with how often they are timed in a round."""
AT_ONCE = {"recognise": 20}
"""Calls that are timed together, as clocks of browsers are coarse."""
IN_BROWSER = {"graphc": 1.0, "tfjs wasm": 1.0, "tfjs cpu": 0.1}
"""What runs in the browser, with the part of the calls that it gets: some take half a minute."""
OUTSIDE = ("avx512", "avx2")
"""The instruction sets of graphc outside."""
TFJS = (
    "tfjs/dist/tf.min.js",
    "tfjs-backend-wasm/dist/tf-backend-wasm.min.js",
    "tfjs-backend-wasm/dist/tfjs-backend-wasm.wasm",
    "tfjs-backend-wasm/dist/tfjs-backend-wasm-simd.wasm",
    "tfjs-backend-wasm/dist/tfjs-backend-wasm-threaded-simd.wasm",
)
"""Files of TensorFlow.js in node_modules/@tensorflow."""
PAGE = """<!doctype html><meta charset="utf-8"><link rel="icon" href="data:,">
<script src="tf.min.js"></script><script src="tf-backend-wasm.min.js"></script>
<script type="module" src="in_browser.js"></script>
"""
"""The page that has them all."""
SECONDS = 500.0
"""How long a round's calls of one function may take."""


def main() -> None:
    """Print a table in milliseconds."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("page", type=Path, help="what build.py of the example wrote")
    parser.add_argument("--tfjs", type=Path, help="a folder node_modules with TensorFlow.js")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--outside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.outside:
        time_outside()
    elif options.tfjs is None:
        parser.error("--tfjs is missing")
    else:
        show(measure(options.page, options.tfjs, options.rounds))


def measure(page: Path, tfjs: Path, rounds: int) -> Found:
    """The milliseconds of each round's calls, or why there are none, by who and what."""
    found: Found = {}
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        copy(Path(folder), page, tfjs)
        # TensorFlow.js asks for its modules when it begins: the server goes on.
        port = stack.enter_context(served(Path(folder)))
        browser = stack.enter_context(chromium(Path(folder) / "profile"))
        browser.seconds = SECONDS
        browser.visit(port)
        browser.offline(False)
        outside = {isa: stack.enter_context(started(isa)) for isa in OUTSIDE}
        for number in range(rounds):
            for what, calls in CALLS.items():
                for who, part in IN_BROWSER.items():
                    count = max(1, round(part * calls))
                    if part == 1 or number < 2:
                        together = AT_ONCE.get(what, 1)
                        times = browser.js(f"measure({who!r}, {what!r}, {count}, {together})")
                        add(found, f"{who} in Chromium", what, times)
                for isa, process in outside.items():
                    add(found, f"graphc {isa}", what, ask(process, what, calls))
            print(f"round {number + 1} of {rounds}", file=sys.stderr)
    return found


def add(found: Found, who: str, what: str, times: list[float] | str) -> None:
    """Enter a round's times."""
    rounds = found.setdefault((who, what), [])
    if isinstance(times, str):
        found[who, what] = times
    elif isinstance(rounds, list):
        rounds.append(times)


def show(found: Found) -> None:
    """Print a table, in Markdown."""
    print("| | " + " | ".join(CALLS) + " |")
    print("| --- |" + " --- |" * len(CALLS))
    for who in dict.fromkeys(who for who, _ in found):
        cells = []
        for what in CALLS:
            rounds = found[who, what]
            cells.append(rounds if isinstance(rounds, str) else in_words(rounds))
        print(f"| {who} | " + " | ".join(cells) + " |")


def in_words(rounds: list[list[float]]) -> str:
    """The median of the rounds' medians, and the least of all times."""
    median = statistics.median(map(statistics.median, rounds))
    return f"{median:.3g} ({min(map(min, rounds)):.3g})"


def copy(folder: Path, page: Path, tfjs: Path) -> None:
    """Put all that the browser needs into a folder."""
    for path in (*(tfjs / "@tensorflow" / name for name in TFJS), *page.glob("digits*")):
        shutil.copyfile(path, folder / path.name)
    shutil.copyfile(Path(__file__).with_suffix(".js"), folder / "in_browser.js")
    (folder / "index.html").write_text(PAGE)


def started(isa: str) -> subprocess.Popen[str]:
    """A process that times graphc on one thread."""
    settings = {"GRAPHC_ISA": isa, "GRAPHC_NUM_THREADS": "1", "GRAPHC_TIER": "1"}
    return subprocess.Popen(
        [sys.executable, "-m", "benchmarks.in_browser", ".", "--outside"],
        env={**os.environ, **settings},
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def ask(process: subprocess.Popen[str], what: str, calls: int) -> list[float]:
    """The milliseconds of so many calls there."""
    assert process.stdin is not None and process.stdout is not None
    print(what, calls, file=process.stdin, flush=True)
    times: list[float] = json.loads(process.stdout.readline())
    return times


def time_outside() -> None:
    """Answer lines such as "step 8" with a list of milliseconds, until there are no more."""
    path = ROOT / "examples" / "train_in_browser" / "build.py"
    spec = spec_from_file_location("build", path)
    assert spec is not None and spec.loader is not None
    build = module_from_spec(spec)
    spec.loader.exec_module(build)
    images, labels = build.load_counts()
    programs = build.make_programs(build.LeNet())
    arguments = {
        "step": (images[: build.BATCH], labels[: build.BATCH]),
        "classify": (images[: build.BATCH],),
        "recognise": (images[:1],),
    }
    for line in sys.stdin:
        what, calls = line.split()
        times = []
        for _ in range(int(calls) + 1):  # the first does not count
            together = AT_ONCE.get(what, 1)
            begin = time.perf_counter()
            for _ in range(together):
                programs[what](*arguments[what])
            times.append(1000 * (time.perf_counter() - begin) / together)
        print(json.dumps(times[1:]), flush=True)


if __name__ == "__main__":
    main()
