"""Write the graphs, plans and kernels of every workload's steps to files, one per step: `python -m
tools.write_kernel_texts build/before`, then the same for a changed checkout, then `diff -r`. A
change that must not affect what is computed leaves no difference.

Nothing is compiled or run, so the CPU kernels are those of a fixed CPU with AVX-512, and of one
with AVX2. Options select workloads, by parts of their names, and devices.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock, patch

from benchmarks.run import compiled
from benchmarks.workload import Workload
from benchmarks.workloads import WORKLOADS
from graphc.base.target import Caches, Target
from graphc.kernels.program.kernel import Kernel
from graphc.program import Program
from graphc.runtime.compilers import player_library, shared_objects, translation_units
from graphc.runtime.cpu import executable
from graphc.runtime.cpu.tiers import FirstTier

CACHES = Caches(32 << 10, 1 << 20)
CPUS = {
    "avx512": Target("cpu", 16, "x86_64 avx512 fixed", CACHES),
    "avx2": Target("cpu", 8, "x86_64 avx2 fixed", CACHES),
}
VARIANTS: dict[str, tuple[str, str, dict[str, str]]] = {
    "avx512": ("cpu", "float32", {}),
    "avx2": ("cpu", "float32", {}),
    "cuda": ("cuda", "float32", {}),
    "cuda-tf32": ("cuda", "tf32", {}),
    "cuda-bfloat16": ("cuda", "bfloat16", {}),
    "cuda-wgmma": ("cuda", "bfloat16", {"GRAPHC_WGMMA": "1", "GRAPHC_TMA": "1"}),
    "cuda-clusters": ("cuda", "tf32", {"GRAPHC_CLUSTERS": "1"}),
}
"""Device, precision and environment by name."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("out", type=Path, help="a folder")
    parser.add_argument("--workloads", nargs="*", default=[""], metavar="PART")
    parser.add_argument("--variants", nargs="*", default=list(VARIANTS), choices=list(VARIANTS))
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    for workload in WORKLOADS.values():
        if any(part in workload.name for part in arguments.workloads):
            write(workload, arguments.variants, arguments.out)


def write(workload: Workload, variants: list[str], out: Path) -> None:
    """A file for each mode and variant of a workload."""
    data = workload.data()
    for variant in variants:
        device, precision, environment = VARIANTS[variant]
        for mode in workload.modes:
            with unbuilt(CPUS.get(variant)), patch.dict("os.environ", environment):
                options = {"device": device, "precision": precision, "streams": 2, "threads": 2}
                program = compiled(workload, data, mode, options)
            name = f"{workload.name}.{mode}.{variant}.txt"
            (out / name).write_text("\n\n".join(texts(program)) + "\n")
            print(name, file=sys.stderr)


@contextlib.contextmanager
def unbuilt(target: Target | None) -> Iterator[None]:
    """Programs created within the block are planned, for `target` if they are the CPU's, and
    neither built nor remembered."""
    nothing, unloaded = contextlib.nullcontext(lambda: None), MagicMock(first=FirstTier())
    settings = {"GRAPHC_PLAN_CACHE": "0", "GRAPHC_TIER": "1"}
    with contextlib.ExitStack() as stack:
        stack.enter_context(patch.dict("os.environ", settings))
        if target is not None:
            stack.enter_context(patch.object(shared_objects, "cpu_target", lambda: target))
            stack.enter_context(patch.object(player_library, "begin_player", lambda: None))
            stack.enter_context(patch.object(translation_units, "building", lambda _: nothing))
            stack.enter_context(patch.object(executable, "load", lambda *_, **__: unloaded))
        yield


def texts(program: Program) -> Iterator[str]:
    """The graph, the plan, and everything about each kernel."""
    plan = program.plan
    assert plan is not None
    yield str(program.graph)
    yield str(plan)
    kernels = [*plan.kernels.values(), *(joined.kernel for joined in plan.joined)]
    for kernel in kernels:
        yield _record(kernel)
        yield kernel.source


def _record(kernel: Kernel) -> str:
    values: dict[str, Any] = {f.name: getattr(kernel, f.name) for f in fields(kernel)}
    del values["text"]
    lines = [f"  {name} = {value!r}" for name, value in values.items()]
    if kernel.device_functions is not None:
        lines.append(kernel.device_text)
    return "\n".join([f"== {kernel.name}", *lines])


if __name__ == "__main__":
    main()
