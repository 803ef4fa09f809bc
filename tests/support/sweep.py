"""Helpers of test_sweep.py and of tests beside it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from graphc.ir import Node, Value
from graphc.ops.base import Array
from tests.kernels import harness
from tests.kernels.cuda_harness import assert_close, single
from tests.ops.samples import Sample

Results = list[Callable[[Sequence[Array]], list[Array]]]
"""For each node what computes its outputs."""


def on_cpu(nodes: Sequence[Node]) -> Results:
    """Chunks run in any order, between guards; see the harness."""
    return [built.run for built in harness.build(nodes)]


def node_of(sample: Sample, number: int) -> Node:
    inputs = [Value(f"x{i}", t) for i, t in enumerate(sample.inputs)]
    return single(sample.op, inputs, f"{sample.op.name}_{number}")


def differences(
    device: Callable[[Sequence[Node]], Results], samples: Sequence[Sample]
) -> list[str]:
    """The samples that give something else on the device than they mean."""
    results = device([node_of(s, number) for number, s in enumerate(samples)])
    wrong = []
    for sample, result in zip(samples, results, strict=True):
        arrays = sample.arrays()
        with np.errstate(all="ignore"):
            expected = sample.op.reference(*arrays)
        try:
            length = max([1, *(a.size for a in arrays)])
            for got, want in zip(result(arrays), expected, strict=True):
                assert_close(got, want, length)
        except Exception as error:
            wrong.append(f"{sample}: {type(error).__name__}: {error}")
    return wrong
