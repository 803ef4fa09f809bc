"""Show that results have the same bits: `python -m benchmarks.same_bits`.

Each row is a model. `train` takes ten training steps on every instruction set, number of threads
and of streams, tuned or not, and hashes the weights and the outputs of the last step. `forward`
runs batches of many sizes on every instruction set, and compares each sample with the same sample
of the largest batch. A row has one hash, or the table names the first value that differs.

    python -m benchmarks.same_bits lenet gpt --isa avx2 sse2 --batches 1 3 16
"""

from __future__ import annotations

import argparse
import hashlib
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

import numpy as np

from benchmarks.families.gpt import GPT
from benchmarks.families.pointwise import Pointwise
from benchmarks.families.recurrent import Recurrent
from benchmarks.families.resnet import ResNet
from benchmarks.families.stack import FLUX, LENET, Stack
from benchmarks.run import compiled
from benchmarks.workload import Array, Data, Draws, Tensors, Workload
from graphc.base.config import INSTRUCTION_SETS
from graphc.ir.state import elements
from graphc.program import Program
from graphc.runtime.cpu.executable import types_in
from graphc.runtime.plan.plan import Launch, Step


class Mixed(Workload):
    """What the other rows lack: average pooling, groups of channels, running sums."""

    gflop = 0.0

    def data(self) -> Data:
        draws = Draws(self.name)
        draws.layer("c1", (12, 3, 3, 3))
        draws.layer("c2", (20, 6, 3, 3))
        draws.norm("norm", 12)
        draws.layer("fc", (10, 20))
        x = draws.generator.randn(self.batch, 3, 13, 13).astype(np.float32)
        y = draws.generator.randint(0, 10, self.batch).astype(np.int32)
        return Data(draws.parameters, x, y)

    def forward(self, lib: Any, p: Tensors, x: Any, training: bool) -> Any:
        x = lib.gelu(lib.conv2d(x, p["c1.weight"], p["c1.bias"], 1, 1))
        x = lib.avg_pool2d(x, 3, 2, 1)
        x = lib.group_norm(x, 3, p["norm.weight"], p["norm.bias"])
        x = lib.conv2d(x, p["c2.weight"], p["c2.bias"], 2, 1, 1, 2)
        x = lib.cumsum(lib.avg_pool2d(lib.silu(x), 4).reshape(-1, 20), 1)
        return lib.linear(x, p["fc.weight"], p["fc.bias"])


ROWS: dict[str, Workload] = {
    "mixed": Mixed("mixed", 11),
    "lenet": Stack("lenet", 20, model=LENET),
    "flux": Stack("flux", 12, model=FLUX),
    "lstm": Recurrent("lstm", 8, cell="lstm", hidden=24, steps=7),
    "gru": Recurrent("gru", 9, cell="gru", hidden=32, steps=5),
    "gpt": GPT("gpt", 3, layers=2, features=48, heads=3, positions=45, symbols=70),
    "resnet18": ResNet("resnet18", 4, depth=18, pixels=32, classes=10),
    "layernorm": Pointwise("layernorm", 33, kind="layernorm", features=203),
    "softmax": Pointwise("softmax", 35, kind="softmax", features=150),
}
STEPS = 10
THREADS = (1, 2, 3)
STREAMS = (1, 2, 4)
BATCHES = (1, 2, 3, 7, 8, 15, 16, 17, 31, 33, 100)


@dataclass(frozen=True)
class Variant:
    """How a row is run."""

    isa: str
    threads: int = 1
    streams: int = 1
    tuned: bool = False
    batch: int = 0
    """0: that of the workload."""

    def __str__(self) -> str:
        parts = [self.isa, f"threads={self.threads}", f"streams={self.streams}"]
        parts += ["tuned"] * self.tuned + [f"batch={self.batch}"] * (self.batch > 0)
        return " ".join(parts)


@dataclass
class Result:
    """The results of one row, by variant."""

    name: str
    hashes: dict[Variant, str] = field(default_factory=dict)
    difference: str = ""
    """What differs first between two variants; "" if nothing does."""

    def __str__(self) -> str:
        count = len(set(self.hashes.values()))
        verdict = self.difference or next(iter(self.hashes.values()), "")
        return f"{self.name:<18} {len(self.hashes):>4} runs {count:>3} hashes  {verdict}"


def train_variants(isas: Sequence[str], whole: bool) -> list[Variant]:
    """Ways to train, all of them or a few; the first is what the others are compared with."""
    workers = [*product(THREADS, STREAMS)] if whole else [*zip(THREADS, STREAMS, strict=True)]
    tuned = (False, True) if whole else (False,)
    return [
        Variant(isa, threads, streams, tune)
        for isa, tune, (threads, streams) in product(isas, tuned, workers)
    ]


def train(name: str, variants: Iterable[Variant]) -> Result:
    """The weights after some steps, and the outputs of the last."""
    result = Result(f"{name} train")
    for variant in _shown(result.name, variants):
        result.hashes[variant] = digest(_trained(ROWS[name], variant, STEPS))
    first, *others = result.hashes
    for other in others:
        if result.hashes[other] != result.hashes[first]:
            difference = _first_difference(_traces(ROWS[name], "train", (first, other)))
            result.difference = f"{other} is not as {first}: {difference}"
            break
    return result


def forward(name: str, isas: Sequence[str], batches: Sequence[int] = BATCHES) -> Result:
    """The outputs of each sample in batches of all sizes."""
    result, workload = Result(f"{name} forward"), replace(ROWS[name], batch=max(batches))
    axis, samples = _batch_axis(workload), workload.data()
    variants = [Variant(isa, batch=b) for isa in isas for b in sorted(batches, reverse=True)]
    whole: Array | None = None
    for variant in _shown(result.name, variants):
        program, data = _forward(workload, samples, variant)
        outputs = np.asarray(program(data.x))
        whole = outputs if whole is None else whole
        same = digest([whole.take(range(variant.batch), axis)]) == digest([outputs])
        result.hashes[variant] = digest([whole] if same else [outputs])
        if not same and not result.difference:
            pair = (variants[0], variant)
            difference = _first_difference(_traces(workload, "forward", pair))
            result.difference = f"{variant} is not as {variants[0]}: {difference}"
    return result


def digest(arrays: Iterable[Any]) -> str:
    """The hash of the bytes of arrays."""
    found = hashlib.sha256()
    for array in arrays:
        found.update(np.ascontiguousarray(array).tobytes())
    return found.hexdigest()[:12]


def _shown(name: str, variants: Iterable[Variant]) -> Iterator[Variant]:
    """The variants, each in the environment that it needs, with the progress on standard error."""
    before = os.environ.get("GRAPHC_ISA")
    try:
        for variant in variants:
            print(f"{name}: {variant}", file=sys.stderr)
            os.environ["GRAPHC_ISA"] = variant.isa
            yield variant
    finally:
        os.environ.pop("GRAPHC_ISA")
        if before is not None:
            os.environ["GRAPHC_ISA"] = before


def _options(variant: Variant) -> dict[str, Any]:
    return {
        "device": "cpu",
        "threads": variant.threads,
        "streams": variant.streams,
        "tune": variant.tuned,
    }


def _trained(workload: Workload, variant: Variant, steps: int) -> list[Array]:
    data = workload.data()
    program = compiled(workload, data, "train", _options(variant))
    for _ in range(steps):
        outputs = program(data.x, data.y)
    outputs = outputs if isinstance(outputs, list | tuple) else [outputs]
    state = program.state_dict()
    return [*(np.asarray(state[key]) for key in sorted(state)), *map(np.asarray, outputs)]


def _batch_axis(workload: Workload) -> int:
    return 1 if isinstance(workload, Recurrent) else 0


def _forward(workload: Workload, samples: Data, variant: Variant) -> tuple[Program, Data]:
    """The program of a batch, and its inputs: the first samples."""
    few = replace(workload, batch=variant.batch)
    axis = _batch_axis(workload)
    x, y = (a.take(range(variant.batch), axis) for a in (samples.x, samples.y))
    data = replace(samples, x=x, y=y)
    return compiled(few, data, "forward", _options(variant)), data


Trace = list[tuple[str, str, Array]]
"""Kernel, value and its elements, in the order in which they were written."""


def _traces(workload: Workload, mode: str, variants: Iterable[Variant]) -> list[Trace]:
    """What the kernels write in the first call."""
    found = []
    for variant in _shown("look", variants):
        if mode == "train":
            data = workload.data()
            program = compiled(workload, data, mode, _options(variant))
            inputs = [data.x, data.y]
        else:
            program, data = _forward(workload, workload.data(), variant)
            inputs = [data.x]
        found.append(_written(program, [np.ascontiguousarray(x) for x in inputs]))
    return found


def _written(program: Program, inputs: list[Array]) -> Trace:
    executable: Any = program._executable
    types, trace = types_in(executable.plan, executable._graph), Trace()

    def record(step: Step, _: object, io: Any, iterations: Any, reads: object) -> None:
        for place in step.writes if isinstance(step, Launch) else ():
            type = types.get(place.value)
            if type is not None and isinstance(step, Launch):
                array = executable._places.array(place.at(iterations), type, io)
                trace.append((step.kernel, place.value, elements(array, type).copy()))

    executable._check_step = record
    executable.run_checked(inputs)
    return trace


def _first_difference(traces: Sequence[Trace]) -> str:
    """The first value of the second trace whose elements are not those of the first."""
    first: dict[str, list[Array]] = {}
    for _, value, array in traces[0]:
        first.setdefault(value, []).append(array)
    for kernel, value, array in traces[1]:
        expected = first.get(value, [])
        other = expected.pop(0) if expected else None
        if other is None or other.ndim != array.ndim or other.dtype != array.dtype:
            continue
        shape = tuple(map(min, array.shape, other.shape))
        x, y = (a[tuple(map(slice, shape))] for a in (array, other))
        if x.tobytes() != y.tobytes():
            differ = x != y
            which = np.argwhere(differ)
            where = f", first at {which[0].tolist()}" if len(which) else ""
            return f"{value} {list(shape)} of {kernel}: {len(which)} elements{where}"
    return "no value that both write"


def main() -> None:
    parser = argparse.ArgumentParser(description="Show that results have the same bits.")
    parser.add_argument("rows", nargs="*", help=f"default: all of {', '.join(ROWS)}")
    parser.add_argument("--isa", nargs="+", choices=[*INSTRUCTION_SETS], default=["avx2"])
    parser.add_argument("--batches", nargs="+", type=int, default=BATCHES, metavar="N")
    parser.add_argument(
        "--all", action="store_true", help="all instruction sets, threads and streams, tuned too"
    )
    options = parser.parse_args()
    isas = [*INSTRUCTION_SETS] if options.all else options.isa
    results = []
    for name in options.rows or ROWS:
        for result in (
            train(name, train_variants(isas, options.all)),
            forward(name, isas, options.batches),
        ):
            results.append(result)
            print(result, flush=True)
    sys.exit(any(r.difference for r in results))


if __name__ == "__main__":
    main()
