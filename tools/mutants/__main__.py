"""Change one place of the sources at a time, and report whether a test fails.

    python -m tools.mutants --seed 1 --list
    python -m tools.mutants --seed 1 --log mutants.jsonl --first 0 --last 50

It edits files in place, so it needs a checkout of its own. Mutants in the log are skipped. `--near`
runs only the test files whose names or imports match the changed module; what survives them is then
tried without it.
"""

from __future__ import annotations

import argparse
import ast
import functools
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tools.mutants.sites import PythonSites, Site, header_sites

ROOT = Path(__file__).resolve().parent.parent.parent
SECONDS = 900
"""Time limit of one group of test files; a mutant that exceeds it counts as found."""


@dataclass(frozen=True)
class Area:
    """A part of the sources: the number of mutants to draw, and the groups of tests that concern
    them, in turn."""

    count: int
    sources: tuple[str, ...]
    tests: tuple[tuple[str, ...], ...]


def _named(folder: str, *names: str) -> tuple[str, ...]:
    return tuple(f"tests/{folder}test_{name}.py" for name in names)


_CPU = _named("kernels/", "pointwise", "reduce", "sort", "contract")
_CUDA = _named("kernels/", "cuda_ops", "cuda_reduce", "cuda_contract", "cuda_attend", "cuda_tensor")
_OTHER = _named(
    "kernels/", "attend", "prefix", "conv_channels", "conv_winograd", "sections", "relayout"
)
_PROGRAMS = _named("", "random_programs", "recurrent_programs", "training_programs")
_PLANS = (
    *("planner", "arena", "serial_order", "streams"),
    *("loop_plans", "training_plans", "wavefront"),
)
_PROOFS = ("verify", "checked_loops", "loop_proof", "certificate", "track", "training_plans")
AREAS = {
    "passes": Area(
        36,
        ("graphc/passes/**/*.py",),
        (
            ("tests/passes",),
            _named("", "compositions", "mixed_programs", "random_scans", "stages"),
            ("tests/networks", *_PROGRAMS),
        ),
    ),
    "generators": Area(
        30,
        ("kernels/cpu/**/*.py", "kernels/cuda/**/*.py", "kernels/program/*.py"),
        (_CPU, _CUDA, _OTHER, ("tests/sim/test_sim_programs.py", *_PROGRAMS)),
    ),
    "ops": Area(
        22,
        ("graphc/ops/**/*.py",),
        (
            _named("ops/", "meaning", "samples", "axes"),
            ("tests/functions",),
            _named("ops/", "sweep"),
            ("tests/passes", "tests/nn"),
            ("tests/kernels",),
        ),
    ),
    "headers": Area(
        20, ("kernels/cpu/**/*.h", "kernels/cuda/**/*.cuh"), (_CPU, _CUDA, _OTHER, _PROGRAMS)
    ),
    "planner": Area(
        12,
        ("runtime/planner/**/*.py",),
        (_named("runtime/", *_PLANS), ("tests/runtime",), ("tests/networks",)),
    ),
    "layers": Area(
        10, ("graphc/nn/**/*.py",), (("tests/nn",), ("tests/functions",), ("tests/models",))
    ),
    "verifier": Area(
        8, ("runtime/proof/*.py",), (_named("runtime/", *_PROOFS), ("tests/runtime",))
    ),
    "gradients": Area(
        6,
        ("graphc/gradients/*.py", "graphc/program/vmap.py"),
        (
            ("tests/ops/test_meaning.py", *_named("functions/", "second_gradients", "scan")),
            ("tests/functions", "tests/test_vmap.py"),
            ("tests/passes", "tests/test_random_scans.py"),
        ),
    ),
    "optim": Area(
        6,
        ("graphc/optim/*.py",),
        (_named("", "optim", "optim_state", "groups", "clipping", "freezing", "against_torch"),),
    ),
}
"""Where mutants are drawn; messages, assertions, types, costs and module constants are left out."""


@dataclass(frozen=True)
class Mutant:
    """A change of one file."""

    area: str
    path: str
    line: int
    site: Site
    old: str

    def __str__(self) -> str:
        change = f"{self.old[:50]!r} -> {self.site.new[:50]!r}"
        return f"{self.area} {self.site.kind} {self.path}:{self.line} {change}"


def draw(root: Path, seed: int) -> list[Mutant]:
    """The mutants of a seed in the order in which they are tried; all kinds are equally likely."""
    rng = random.Random(seed)
    drawn = []
    for name, area in AREAS.items():
        kinds: dict[str, list[tuple[str, Site]]] = {}
        for path in sorted(p for pattern in area.sources for p in root.glob(pattern)):
            for site in _sites(path.suffix, path.read_text()) if "cost" not in path.name else ():
                kinds.setdefault(site.kind, []).append((str(path.relative_to(root)), site))
        taken: set[tuple[str, int]] = set()
        while len(taken) < area.count:
            where, site = rng.choice(kinds[rng.choice(sorted(kinds))])
            raw = (root / where).read_bytes()
            if (where, site.start) in taken or not _parses(where, changed(raw, site)):
                continue
            taken.add((where, site.start))
            line = raw[: site.start].count(b"\n") + 1
            drawn.append(Mutant(name, where, line, site, raw[site.start : site.stop].decode()))
    rng.shuffle(drawn)
    return drawn


@functools.cache
def _sites(suffix: str, text: str) -> tuple[Site, ...]:
    return tuple(PythonSites(text).sites if suffix == ".py" else header_sites(text))


def changed(raw: bytes, site: Site) -> bytes:
    """The file with the text at one place replaced."""
    return raw[: site.start] + site.new.encode() + raw[site.stop :]


def _parses(path: str, raw: bytes) -> bool:
    try:
        return not path.endswith(".py") or bool(ast.parse(raw))
    except SyntaxError:
        return False


def nearest_tests(root: Path, mutant: Mutant) -> tuple[str, ...]:
    """Up to four test files that are named after the module or import it, short ones first."""
    path = Path(mutant.path)
    parts = path.with_suffix("").parts
    package = ".".join(parts[:-1] if parts[0] == "graphc" else ("graphc", *parts[:-1]))
    word = re.compile(
        rf"\b{re.escape(package)}\.{path.stem}\b|from {re.escape(package)} import .*\b{path.stem}\b"
    )
    files = sorted(root.glob("tests/**/test_*.py"), key=lambda p: p.stat().st_size)
    own = [p for p in files if p.stem.removeprefix("test_").removeprefix("cuda_") == path.stem]
    found = [*own, *(p for p in files if p not in own and word.search(p.read_text()))]
    return tuple(str(p.relative_to(root)) for p in found[:4])


def outcome(root: Path, files: tuple[str, ...]) -> str:
    """ "survived", or why pytest failed."""
    here = [name for name in files if (root / name).exists()]
    options = ["-q", "-x", "-m", "not slow", "-p", "no:cacheprovider", "--tb=line"]
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest", *options, *here],
        cwd=root,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        said, _ = process.communicate(timeout=SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return "killed: takes too long"
    failed = [line for line in said.splitlines() if line.startswith(("FAILED", "ERROR"))]
    nothing = process.returncode in (0, 5)  # 5 is that there was no test
    return "survived" if nothing else f"killed: {(failed or ['by pytest itself'])[0][:200]}"


def tried(root: Path, mutant: Mutant, only_near: bool) -> str:
    """The result of the tests on a mutant. The file is restored whatever happens."""
    path = root / mutant.path
    raw = path.read_bytes()
    groups = (nearest_tests(root, mutant),) if only_near else AREAS[mutant.area].tests
    try:
        path.write_bytes(changed(raw, mutant.site))
        for group in filter(None, groups):
            if (said := outcome(root, group)) != "survived":
                return said
        return "survived"
    finally:
        path.write_bytes(raw)


def survived_near(record: dict[str, Any]) -> bool:
    """Whether a record of the log says that only the nearest tests ran, and none failed."""
    return bool(record["near"] and record["result"] == "survived")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--list", action="store_true", help="print the changes and end")
    parser.add_argument("--log", type=Path, default=Path("mutants.jsonl"))
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--last", type=int, default=None)
    parser.add_argument("--near", action="store_true", help="only the nearest files of tests")
    options = parser.parse_args()
    lines = options.log.read_text().splitlines() if options.log.exists() else []
    before = {record["number"]: record for record in map(json.loads, lines)}
    mutants = list(enumerate(draw(ROOT, options.seed)))[options.first : options.last]
    for number, mutant in mutants:
        record = before.get(number, {})
        if options.list:
            print(number, mutant)
        elif not record or (survived_near(record) and not options.near):
            begin = time.monotonic()
            result = tried(ROOT, mutant, options.near)
            seconds = round(time.monotonic() - begin)
            with options.log.open("a") as log:
                found = {"number": number, "result": result, "near": options.near}
                log.write(json.dumps({**found, "seconds": seconds, **asdict(mutant)}) + "\n")
            print(f"{number} {result} ({seconds} s): {mutant}", flush=True)


if __name__ == "__main__":
    main()
