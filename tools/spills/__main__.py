"""List kernels that spill, and exit with status 1 if any does: `python -m tools.spills`.

    python -m tools.spills --workloads resnet50-b32 --settings tf32 --compilers nvrtc

Compiled kernels are cached in GRAPHC_CACHE_DIR.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections.abc import Collection, Mapping, Sequence

from benchmarks.workloads import WORKLOADS
from graphc.runtime.cuda.compile import CudaCompiler
from tools.spills.cases import SETTINGS, asked, texts
from tools.spills.compiling import COMPILERS, Spill, spills, usages

KNOWN: Mapping[str, Collection[str]] = {
    "workloads": WORKLOADS,
    "settings": SETTINGS,
    "archs": ("sm_90a", "sm_80"),
    "compilers": COMPILERS,
}


def main(arguments: Sequence[str] | None = None) -> None:
    options = parser().parse_args(arguments)
    wanted = {name: _known(name, getattr(options, name)) for name in KNOWN}
    compilers = {name: _installed(name) for name in wanted["compilers"]}
    count = 0
    for workload, settings in itertools.product(wanted["workloads"], wanted["settings"]):
        archs = [arch for arch in wanted["archs"] if arch in SETTINGS[settings].archs]
        made = texts(WORKLOADS[workload], SETTINGS[settings]) if archs else {}
        for arch, name in itertools.product(archs, compilers):
            title = f"{workload} {settings} {name} {arch}"
            with asked(SETTINGS[settings]):
                count += len(tried(title, made, compilers[name], arch, options.threads))
    print(f"{count} spill")
    sys.exit(1 if count else 0)


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="spills", description="Compile the kernels of workloads; list those that spill."
    )
    for name, values in KNOWN.items():
        text = ",".join(values)
        parser.add_argument(f"--{name}", default=text, help=f"of {text}")
    parser.add_argument("--threads", type=int, default=1, help="kernels compiled at a time")
    return parser


def tried(
    title: str, made: dict[str, str], compiler: CudaCompiler, arch: str, threads: int
) -> list[Spill]:
    """The spills of the texts `made`, printed below a line that says what was compiled."""
    began, found = time.monotonic(), {}
    shown = sys.stderr.isatty()
    for name, symbols in usages(made, compiler, arch, threads):
        found[name] = symbols
        if shown:
            print(f"\r{title}: {len(found)}", end="", file=sys.stderr, flush=True)
    listed, seconds = spills(found), time.monotonic() - began
    counts = f"{len(made)} kernels, {len(found)} texts, {len(listed)} spill, {seconds:.0f} s"
    lines = [f"{title}: {counts}", *(f"  {spill}" for spill in listed)]
    print("\r" * shown + "\n".join(lines), flush=True)
    return listed


def _known(option: str, words: str) -> list[str]:
    for word in words.split(","):
        if word not in KNOWN[option]:
            known = ", ".join(KNOWN[option])
            raise SystemExit(f"{option}: expected some of {known}, got {word!r}")
    return words.split(",")


def _installed(name: str) -> CudaCompiler:
    found = COMPILERS[name]()
    if found is None:
        raise SystemExit(f"compilers: {name} is not there")
    return found


if __name__ == "__main__":
    main()
