"""Every op on all its samples on every device that computes by kernels, against the op's meaning.

Samples are built many to a file, which is why a test is a block of them; its failure names each
that is wrong. Blocks take every n-th sample, so they take about equally long.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from graphc.ir import Node, Value
from graphc.ops.base import Array
from tests.kernels import harness
from tests.kernels.cuda_harness import assert_close, single
from tests.ops.samples import SAMPLES, Sample
from tests.sim.playing import Played, simulator
from tests.tools import first_quick, need_command

BLOCKS = -(-len(SAMPLES) // 48)

Results = list[Callable[[Sequence[Array]], list[Array]]]
"""For each node what computes its outputs."""


def on_cpu(nodes: Sequence[Node]) -> Results:
    """Chunks run in any order, between guards; see the harness."""
    return [built.run for built in harness.build(nodes)]


def on_sim(nodes: Sequence[Node], check: bool = False) -> Results:
    played = Played(simulator(check=check), nodes)
    return [lambda arrays, node=node: played.run(node, arrays) for node in nodes]


def on_checked_sim(nodes: Sequence[Node]) -> Results:
    """Every access is checked: bounds, races, reads of what nothing has written."""
    return on_sim(nodes, check=True)


def node_of(sample: Sample, number: int) -> Node:
    inputs = [Value(f"x{i}", t) for i, t in enumerate(sample.inputs)]
    return single(sample.op, inputs, f"{sample.op.name}_{number}")


@pytest.mark.parametrize("block", range(BLOCKS))
@pytest.mark.parametrize("device", [on_cpu, on_checked_sim], ids=lambda d: d.__name__[3:])
def test_ops_mean_the_same_on_every_device(
    device: Callable[[Sequence[Node]], Results], block: int
) -> None:
    assert_the_same(device, block)


@pytest.mark.parametrize("block", first_quick(BLOCKS // 4, range(BLOCKS)))
def test_ops_mean_the_same_where_no_access_is_checked(block: int) -> None:
    assert_the_same(on_sim, block)


def assert_the_same(device: Callable[[Sequence[Node]], Results], block: int) -> None:
    need_command("g++", "clang++")
    samples = SAMPLES[block::BLOCKS]
    wrong = differences(device, samples)
    assert not wrong, f"{len(wrong)} of {len(samples)} samples\n" + "\n".join(wrong)


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
