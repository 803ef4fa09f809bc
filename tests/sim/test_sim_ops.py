"""Every op's CUDA text on the simulated GPU, against the op's meaning; no check finds anything."""

from __future__ import annotations

import numpy as np
import pytest

from graphc.ir import Node, Value
from tests.kernels.cuda_harness import assert_close, single
from tests.ops.samples import SAMPLES, Sample
from tests.sim.playing import Played, simulator

NUMBERS = range(len(SAMPLES))


def node_of(sample: Sample, number: int) -> Node:
    inputs = [Value(f"x{i}", t) for i, t in enumerate(sample.inputs)]
    return single(sample.op, inputs, f"{sample.op.name}_{number}")


NODES = [node_of(sample, number) for number, sample in enumerate(SAMPLES)]


@pytest.fixture(scope="module", params=[False, True], ids=["fast", "check"])
def played(request: pytest.FixtureRequest) -> Played:
    return Played(simulator(check=request.param), NODES)


@pytest.mark.parametrize("number", NUMBERS, ids=[str(s) for s in SAMPLES])
def test_an_op_means_the_same_on_the_simulated_device(played: Played, number: int):
    sample = SAMPLES[number]
    arrays = sample.arrays()
    with np.errstate(all="ignore"):
        expected = sample.op.reference(*arrays)
    length = max([1, *(a.size for a in arrays)])
    for got, want in zip(played.run(NODES[number], arrays), expected, strict=True):
        assert_close(got, want, length)
