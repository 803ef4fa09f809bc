"""How long an element of an op takes on this CPU, in operations of `graphc.base.target.CPU`.

`python -m tests.ops.operation_costs` prints the figure of every op beside the one it states.
"""

from __future__ import annotations

import numpy as np

import graphc
from graphc.base.target import CPU
from graphc.functions.array.tensors import cast
from graphc.ir import Type
from graphc.ops.base import Op, Pointwise, Random
from graphc.ops.random import PhiloxUniform
from graphc.trace import Tensor, emit
from tests.ops.sample import Sample, of
from tests.ops.samples import SAMPLES

TERMS, ELEMENTS, REPEATS = 4, 16384, 9


def samples() -> list[Sample]:
    """One sample of each op whose cost is stated."""
    draw = PhiloxUniform(7, 1, (ELEMENTS,))
    found = {type(draw): Sample(draw, (of("i32"),), ((0, 99),))}
    for sample in SAMPLES:
        if isinstance(sample.op, Pointwise):
            found.setdefault(type(sample.op), sample)
    return sorted(found.values(), key=lambda s: s.op.name)


def stated(op: Op) -> int:
    assert isinstance(op, Pointwise | Random)
    return op.operations


def measured(sample: Sample) -> float:
    """Operations per element: the time of a kernel that adds up the op's results for four sets of
    inputs, less that of one which adds up the inputs."""
    random = isinstance(sample.op, Random)
    shape = () if random else (ELEMENTS,)
    kinds = tuple(of(t.dtype, *shape) for t in sample.inputs)
    count = len(kinds)
    arrays = [a for i in range(TERMS) for a in _sized(sample, kinds).arrays(i)]

    def results(*xs: Tensor) -> Tensor:
        parts = (emit(sample.op, *xs[i : i + count]) for i in range(0, len(xs), count))
        if random:  # equal nodes would be one
            parts = (emit(PhiloxUniform(7, i, (ELEMENTS,)), xs[i * count]) for i in range(TERMS))
        return _total([cast(y, "f32") for y in parts])

    def inputs(*xs: Tensor) -> Tensor:
        parts = [graphc.broadcast_to(x, (ELEMENTS,)) if random else x for x in xs]
        return _total([cast(x, "f32") for x in parts])

    nanoseconds = 1000 * (_microseconds(results, arrays) - _microseconds(inputs, arrays))
    return nanoseconds / (TERMS * ELEMENTS) * CPU.rates.flops / 1000


def _sized(sample: Sample, kinds: tuple[Type, ...]) -> Sample:
    return Sample(sample.op, kinds, sample.ranges)


def _total(parts: list[Tensor]) -> Tensor:
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


def _microseconds(function: object, arrays: list[np.ndarray]) -> float:
    """Of the longest kernel of the function, the shortest of several times."""
    specs = [graphc.spec(a.shape, a.dtype) for a in arrays]
    program = graphc.compile(function, *specs, device="cpu", threads=1)
    times = []
    for _ in range(REPEATS):
        rows = program.profile(*arrays).rows
        times.append(max((row.mean for row in rows), default=0.0))
    return min(times)


if __name__ == "__main__":
    for sample in samples():
        print(f"{sample.op.name:16} {stated(sample.op):6} {measured(sample):8.0f}", flush=True)
