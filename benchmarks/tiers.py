"""How fast prebuilt kernels are beside compiled ones: `python -m benchmarks.tiers --worst 10`.

Each kernel of a workload's training step (or forward pass, where it has no other) plays alone on
one thread, compiled and prebuilt in turn, on the same random arrays; the least processor time of
several rounds counts. For each workload a row: its kernels, how many of them no prebuilt function
computes, the geometric mean and the least of the compiled kernel's time as a share of the prebuilt
one's, over kernels that take a microsecond or more, and the same share for all of the workload's
kernels together, as often as a step launches each. Then the same by template. Without names of
workloads, all that a CPU computes within seconds.
"""

from __future__ import annotations

import argparse
import ctypes
import math
import os
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.run import compiled
from benchmarks.workload import Workload
from benchmarks.workloads import find
from graphc.base.target import Target
from graphc.ir import Graph, Node, Type
from graphc.ir.state import aligned_empty
from graphc.kernels.lower import cpu_name, prebuilt
from graphc.kernels.program.kernel import Kernel
from graphc.ops.loops.scan import bodies
from graphc.runtime.compilers.compiler import find_compiler
from graphc.runtime.compilers.prebuilt_library import PrebuiltLibrary, build_library
from graphc.runtime.compilers.shared_objects import cpu_target
from graphc.runtime.plan.plan import Launch, Loop, Step

SOURCE = Path(__file__).with_name("tiers.cpp")
DEFAULT = (
    "mlp-small-b100",
    "mlp-4x256-b16",
    "mnist-cnn-b100",
    "flux-conv-b100",
    "lstm-h256-b32",
    "gru-h64-b256",
    "conv-backward-b8",
    "resnet18-b1",
    "gpt4-b8",
    "pw-chain",
    "pw-layernorm",
    "pw-batchnorm",
    "pw-softmax",
    "pw-gelu",
)
ROUNDS, MICROSECONDS = 5, 2000.0
SHORTEST = 1.0
"""The least microseconds of a compiled kernel that counts by itself: shorter ones only begin."""


@dataclass(frozen=True)
class Measured:
    """A kernel's microseconds of processor time, compiled and prebuilt; `prebuilt` is NaN where no
    prebuilt function computes it."""

    name: str
    template: str
    launches: int
    compiled: float
    prebuilt: float

    @property
    def share(self) -> float:
        """The compiled kernel's time as a share of the prebuilt one's."""
        return self.compiled / self.prebuilt


def measured(workload: Workload, library: PrebuiltLibrary, clock: ctypes.CDLL) -> list[Measured]:
    """Each different kernel of a workload."""
    mode = "train" if "train" in workload.modes else "forward"
    os.environ["GRAPHC_TIER"] = "1"
    options = {"device": "cpu", "threads": 1, "streams": 1}
    program = compiled(workload, workload.data(), mode, options)
    plan = program.plan
    assert plan is not None
    nodes, launches = dict(_nodes(program.graph)), _launches(plan.steps)
    alike = dict[object, list[str]]()
    for name, kernel in plan.kernels.items():
        alike.setdefault((kernel.canonical, kernel.offsets, kernel.inplace), []).append(name)
    found = []
    for names in alike.values():
        name, target = names[0], cpu_target()
        kernel, address = plan.kernels[name], program._executable.functions[name]
        own = _Kernel(nodes[name], kernel, target, library)
        times = own.times(clock, address)
        count = sum(launches[n] for n in names)
        found.append(Measured(name, kernel.template, count, *times))
    return found


class _Kernel:
    """A kernel with arguments in memory."""

    def __init__(
        self, node: Node, kernel: Kernel, target: Target, library: PrebuiltLibrary
    ) -> None:
        self.kernel = kernel
        described = prebuilt(node, kernel, target)
        self.prebuilt = library.address(described.symbol) if described else None
        data = np.frombuffer(described.data if described else b"\0", np.uint8)
        self.arrays = [_bytes(data.nbytes)]
        self.arrays[0][: data.nbytes] = data
        self.arrays += [_random(v.type) for v in (*node.inputs, *node.outputs)]
        self.arrays.append(_bytes(kernel.workspace))
        places = [self.arrays[0].ctypes.data]
        places += [a.ctypes.data + kernel.offset(n) for n, a in enumerate(self.arrays[1:])]
        self.table = (ctypes.c_void_p * len(places))(*places)

    def times(self, clock: ctypes.CDLL, address: int) -> tuple[float, float]:
        """Microseconds of the compiled kernel and of the prebuilt one."""
        functions = [a for a in (address, self.prebuilt) if a is not None]
        best = [math.inf] * len(functions)
        repeats = [1] * len(functions)
        for _ in range(1 + ROUNDS):
            for i, function in enumerate(functions):
                best[i] = min(best[i], self._time(clock, function, repeats[i]))
                repeats[i] = max(1, min(10_000, int(MICROSECONDS / best[i])))
        return best[0], best[1] if len(best) > 1 else math.nan

    def _time(self, clock: ctypes.CDLL, address: int, repeats: int) -> float:
        phases = (ctypes.c_int * len(self.kernel.phases))(*self.kernel.phases)
        arguments = ctypes.c_void_p(ctypes.addressof(self.table) + ctypes.sizeof(ctypes.c_void_p))
        seconds = clock.play(ctypes.c_void_p(address), arguments, phases, len(phases), repeats)
        return 1e6 * float(seconds) / repeats


def _bytes(count: int) -> np.ndarray:
    array: np.ndarray = aligned_empty((max(64, count),), np.uint8)
    return array


def _random(type: Type) -> np.ndarray:
    """Normal floats, small integers, as many bytes as a value of this type has."""
    memory, random = _bytes(type.nbytes), np.random.default_rng(0)
    dtype = type.numpy_dtype
    count = type.nbytes // dtype.itemsize
    if dtype.kind == "f":
        numbers = random.standard_normal(count).astype(dtype)
    else:
        numbers = random.integers(0, 2, count).astype(dtype)
    memory[: numbers.nbytes] = numbers.view(np.uint8)
    return memory


def _nodes(graph: Graph) -> Iterator[tuple[str, Node]]:
    """The nodes of kernels by the kernels' names."""
    for each in (graph, *bodies(graph)):
        for node in each.nodes:
            if node.op.name not in ("reshape", "scan"):
                yield cpu_name(node), node


def _launches(steps: Sequence[Step], times: int = 1) -> dict[str, int]:
    """How often a call launches each kernel."""
    found = dict[str, int]()
    for step in steps:
        if isinstance(step, Loop):
            for name, count in _launches(step.steps, times * step.count).items():
                found[name] = found.get(name, 0) + count
        elif isinstance(step, Launch):
            found[step.kernel] = found.get(step.kernel, 0) + times
    return found


def row(name: str, kernels: Sequence[Measured]) -> str:
    """A line of the table."""
    known = [k for k in kernels if not math.isnan(k.prebuilt)]
    if not known:
        return f"| {name} | {len(kernels)} | {len(kernels)} | | | |"
    shares = [k.share for k in known if k.compiled >= SHORTEST] or [k.share for k in known]
    mean = math.exp(sum(map(math.log, shares)) / len(shares))
    least = min(shares)
    whole = sum(k.launches * k.compiled for k in known) / sum(
        k.launches * k.prebuilt for k in known
    )
    waiting = len(kernels) - len(known)
    return f"| {name} | {len(kernels)} | {waiting} | {mean:.2f} | {least:.2f} | {whole:.2f} |"


def build_clock(folder: str) -> ctypes.CDLL:
    """The functions of `tiers.cpp`."""
    library = Path(folder) / "tiers.so"
    command = [*find_compiler().command, "-O2", "-shared", "-fPIC", str(SOURCE), "-o", str(library)]
    subprocess.run(command, check=True)
    clock = ctypes.CDLL(str(library))
    clock.play.restype = ctypes.c_double
    return clock


def print_tables(found: Mapping[str, Sequence[Measured]], worst: int) -> None:
    """The tables of all workloads, and the `worst` kernels."""
    head = "kernels | without | geometric mean | least | step |"
    print(f"| workload | {head}\n| --- | --- | --- | --- | --- | --- |")
    for name, kernels in found.items():
        print(row(name, kernels))
    every = [k for kernels in found.values() for k in kernels]
    print(row("all", every))
    print(f"\n| template | {head}\n| --- | --- | --- | --- | --- | --- |")
    for template in sorted({k.template for k in every}):
        print(row(template, [k for k in every if k.template == template]))
    if worst:
        print("\n| slowest | workload | compiled, us | prebuilt, us | share |")
        print("| --- | --- | --- | --- | --- |")
    named = [(k, name) for name, kernels in found.items() for k in kernels]
    slow = sorted((x for x in named if x[0].compiled >= SHORTEST), key=lambda x: x[0].share)
    for k, name in [x for x in slow if not math.isnan(x[0].prebuilt)][:worst]:
        print(f"| {k.name} | {name} | {k.compiled:.1f} | {k.prebuilt:.1f} | {k.share:.2f} |")


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the tables that the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("workloads", nargs="*", default=DEFAULT)
    parser.add_argument("--worst", type=int, default=0, help="also list so many kernels")
    options = parser.parse_args(arguments)
    library = build_library()
    with tempfile.TemporaryDirectory() as folder:
        clock = build_clock(folder)
        found = {name: measured(find(name), library, clock) for name in options.workloads}
    print_tables(found, options.worst)


if __name__ == "__main__":
    main()
