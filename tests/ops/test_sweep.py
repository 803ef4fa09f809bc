"""Every op on all its samples on every device that computes by kernels, against the op's meaning.

Samples are built many to a file, which is why a test is a block of them; its failure names each
that is wrong. Blocks take every n-th sample, so they take about equally long.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from graphc.ir import Node
from tests.ops.samples import SAMPLES
from tests.sim.playing import Played, simulator
from tests.support.sweep import Results, differences, on_cpu
from tests.tools import first_quick, need_command

BLOCKS = -(-len(SAMPLES) // 48)


def on_sim(nodes: Sequence[Node], check: bool = False) -> Results:
    played = Played(simulator(check=check), nodes)
    return [lambda arrays, node=node: played.run(node, arrays) for node in nodes]


def on_checked_sim(nodes: Sequence[Node]) -> Results:
    """Every access is checked: bounds, races, reads of what nothing has written."""
    return on_sim(nodes, check=True)


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
