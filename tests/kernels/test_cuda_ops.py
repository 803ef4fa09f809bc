"""Every op as CUDA text: run on the host against the op's meaning, and built by nvcc."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from graphc.ir import Node, Value
from graphc.kernels.lower import lower
from graphc.runtime.cuda.compile import OPTIONS, Usage, parse_usage
from graphc.runtime.sim.native import BACKWARD, FORWARD
from tests.kernels.cuda_harness import (
    TARGET,
    assert_close,
    build_device,
    joined,
    single,
)
from tests.ops.samples import CORE, Sample
from tests.sim.playing import Played, simulator
from tests.tools import first_quick, need_command, need_nvrtc


def node_of(sample: Sample, number: int) -> Node:
    inputs = [Value(f"x{i}", t) for i, t in enumerate(sample.inputs)]
    return single(sample.op, inputs, f"{sample.op.name}_{number}")


NODES = [node_of(sample, number) for number, sample in enumerate(CORE)]
NUMBERS = range(len(CORE))
PER_FILE = 40
"""Kernels that NVRTC is given at once: it reads the headers once for all."""
SAVED = 64
"""Bytes that eigh and svd of float32 may spill, where registers are kept around the many calls of
CUDA's routines for divisions and square roots."""


@pytest.fixture(scope="module")
def played() -> Played:
    need_command("g++", "clang++")
    return Played(simulator(), NODES)


@pytest.mark.parametrize("number", NUMBERS, ids=[str(s) for s in CORE])
def test_the_text_computes_what_the_op_means(played: Played, number: int):
    sample, node = CORE[number], NODES[number]
    arrays = sample.arrays()
    with np.errstate(all="ignore"):
        expected = sample.op.reference(*arrays)
    length = max([1, *(a.size for a in arrays)])
    for got, want in zip(played.run(node, arrays), expected, strict=True):
        assert_close(got, want, length)


def test_no_result_depends_on_the_order_of_threads(played: Played):
    for sample, node in zip(CORE, NODES, strict=True):
        arrays = sample.arrays(seed=1)
        ahead, back = (played.run(node, arrays, order) for order in (FORWARD, BACKWARD))
        for a, b in zip(ahead, back, strict=True):
            np.testing.assert_array_equal(a, b, err_msg=str(sample))


def spilled(usage: Mapping[str, Usage]) -> set[str]:
    """The kernels that keep more in local memory than they may."""
    return {
        symbol
        for symbol, u in usage.items()
        if u.spilled > (SAVED if symbol.startswith(("eigh", "svd")) else 0)
    }


@pytest.mark.parametrize("arch", first_quick(1, ["sm_80", "sm_90a"]))
def test_nvcc_takes_the_text_of_every_op_and_spills_nothing(arch: str, tmp_path):
    compiler = need_command("nvcc")
    kernels = [lower(node, TARGET) for node in NODES]
    halves = [kernels[0::2], kernels[1::2]]
    folders = [tmp_path / "even", tmp_path / "odd"]
    for folder in folders:
        folder.mkdir()
    with ThreadPoolExecutor(2) as pool:
        usages = list(pool.map(lambda h, f: build_device(h, f, compiler, arch), halves, folders))
    usage = {symbol: u for part in usages for symbol, u in part.items()}
    assert set(usage) == {launch.symbol for k in kernels for launch in k.launches}
    assert spilled(usage) == set()


@pytest.mark.parametrize("arch", first_quick(1, ["sm_90a", "sm_80"]))
def test_nvrtc_takes_the_text_of_every_op_and_spills_nothing(arch: str, tmp_path):
    compiler = need_nvrtc()
    kernels = [lower(node, TARGET) for node in NODES]
    usage = {}
    for first in range(0, len(kernels), PER_FILE):
        text = tmp_path / f"kernels_{first}.cu"
        text.write_text(joined(kernels[first : first + PER_FILE]))
        _, log = compiler.compile(text, (*OPTIONS, f"-arch={arch}", *compiler.options))
        usage.update(parse_usage(log))
    assert set(usage) == {launch.symbol for k in kernels for launch in k.launches}
    assert spilled(usage) == set()
