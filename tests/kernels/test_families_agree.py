"""Random running results, sorts, gradients of gathers, scatters and pooling have the same bits by
the interpreter of nests, in C++ with vector registers, in CUDA on the simulated GPU and in plain C.
Running results of CUDA have an order of their own, which their nest states."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest

from graphc.kernels.c.lower import serial_nests
from graphc.kernels.cuda.lower import lower_cuda
from graphc.kernels.cuda.prefix import prefix as cuda_prefix
from graphc.kernels.loops.interpret import interpret
from graphc.kernels.loops.language import Nest
from graphc.kernels.loops.text import nest_text, parse_nest
from graphc.ops.base import Array
from graphc.ops.fused import KernelNode
from tests.kernels import cuda_harness
from tests.kernels.c_harness import assert_same_bits, build_c
from tests.kernels.harness import build
from tests.random_families import RandomFamily
from tests.sim.playing import Played, simulator
from tests.tools import need_command

FEW, MANY = 20, 40
"""Kernels in one file for each target, of which a compiler reads the headers once."""


def interpreted(node: KernelNode, nests: Sequence[Nest], inputs: Sequence[Array]) -> list[Array]:
    """The outputs by the interpreter, of nests that print and parse."""
    _, parameters = serial_nests(node)
    names = [m.name for m in parameters]
    arrays = [a.ravel().copy() for a in inputs]
    arrays += [np.zeros(v.type.size, v.type.numpy_dtype) for v in node.outputs]
    memory = dict(zip(names, arrays, strict=True))
    for nest in nests:
        assert parse_nest(nest_text(nest)) == nest
        with np.errstate(all="ignore"):
            interpret(nest, memory)
    made = names[len(inputs) :]
    return [memory[n].reshape(v.type.shape) for n, v in zip(made, node.outputs, strict=True)]


def on_cuda(node: KernelNode) -> list[Nest]:
    """The nest of a running result on CUDA, which lowering verifies."""
    found: list[Nest] = []
    with patch.object(cuda_prefix, "verify_nest", found.append):
        lower_cuda(node, cuda_harness.TARGET)
    return found


def assert_agreement(seeds: Sequence[int], folder: Path) -> None:
    need_command("g++", "clang++")
    programs = [RandomFamily(seed) for seed in seeds]
    nodes = [p.node for p in programs]
    device = Played(simulator(), nodes)
    built = zip(programs, seeds, build(nodes), build_c(nodes, folder), strict=True)
    for program, seed, cpu, plain in built:
        node, what = program.node, f"{program.family}, seed {seed}"
        want = interpreted(node, serial_nests(node)[0], program.arrays)
        assert_same_bits(plain.run(program.arrays), want, f"C, {what}")
        assert_same_bits(cpu.run(program.arrays), want, f"C++, {what}")
        if program.family == "running":
            want = interpreted(node, on_cuda(node), program.arrays)
        assert_same_bits(device.run(node, program.arrays), want, f"CUDA, {what}")


@pytest.fixture(autouse=True)
def denormals(monkeypatch: pytest.MonkeyPatch):
    """As in the interpreter; by default CUDA takes them for zeros."""
    monkeypatch.setenv("GRAPHC_DENORMALS", "keep")


@pytest.mark.parametrize("first", range(0, 40, FEW))
def test_all_targets_agree(first: int, tmp_path: Path):
    assert_agreement(range(first, first + FEW), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1000, 2000, MANY))
def test_all_targets_agree_on_many(first: int, tmp_path: Path):
    assert_agreement(range(first, first + MANY), tmp_path)
