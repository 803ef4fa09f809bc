"""Random pointwise kernels have the same bits by the interpreter of nests, in C++ with vector
registers, in CUDA on the simulated GPU and in plain C."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from graphc.kernels.loops.interpret import interpret
from graphc.kernels.loops.plain import plain_nest
from graphc.kernels.loops.rewrites import bind, hoist, split_last
from graphc.kernels.program.access import Domain
from graphc.kernels.program.body.names import Identifiers
from graphc.kernels.program.pieces import space
from graphc.kernels.program.pointwise_nest import group_outputs, make_pointwise_nest
from graphc.ops.base import Array
from graphc.ops.fused import KernelNode
from tests.kernels.c_harness import assert_same_bits, build_c
from tests.kernels.harness import build
from tests.random_pointwise import RandomPointwise
from tests.sim.playing import Played, simulator
from tests.tools import need_command

FEW, MANY = 10, 25
"""Kernels in one file for each target, of which a compiler reads the headers once."""


def interpreted(node: KernelNode, inputs: Sequence[Array]) -> list[Array]:
    """The outputs by the interpreter, in chunks of registers of eight lanes."""
    body = node.body
    pointers = Identifiers().pointers(body)
    memory = {pointers[v]: a.ravel().copy() for v, a in zip(body.inputs, inputs, strict=True)}
    for v in body.outputs:
        memory[pointers[v]] = np.zeros(v.type.size, v.type.numpy_dtype)
    for outputs in group_outputs(body):
        shape = space(body, outputs[0]) or (1,)
        part = make_pointwise_nest(body, outputs, Domain(shape, len(shape) - 1, 8), pointers)
        interpret(split_last(hoist(bind(plain_nest(part.merged), "chunk"))), memory)
    return [memory[pointers[v]].reshape(v.type.shape) for v in body.outputs]


def assert_agreement(seeds: Sequence[int], folder: Path) -> None:
    need_command("g++", "clang++")
    programs = [RandomPointwise(seed) for seed in seeds]
    nodes = [p.node for p in programs]
    device = Played(simulator(), nodes)
    built = zip(programs, seeds, build(nodes), build_c(nodes, folder), strict=True)
    for program, seed, cpu, plain in built:
        with np.errstate(all="ignore"):
            want = interpreted(program.node, program.arrays)
        assert_same_bits(plain.run(program.arrays), want, f"C, seed {seed}")
        assert_same_bits(cpu.run(program.arrays), want, f"C++, seed {seed}")
        assert_same_bits(device.run(program.node, program.arrays), want, f"CUDA, seed {seed}")


def assert_c_is_as_cpp(seeds: Sequence[int], folder: Path) -> None:
    """Of kernels that call elementary functions, which CUDA and NumPy compute in other ways."""
    programs = [RandomPointwise(seed, functions=True) for seed in seeds]
    nodes = [p.node for p in programs]
    built = zip(programs, seeds, build(nodes), build_c(nodes, folder), strict=True)
    for program, seed, cpu, plain in built:
        got, want = plain.run(program.arrays), cpu.run(program.arrays)
        assert_same_bits(got, want, f"seed {seed}")


@pytest.fixture(autouse=True)
def denormals(monkeypatch: pytest.MonkeyPatch):
    """As in the interpreter; by default CUDA takes them for zeros."""
    monkeypatch.setenv("GRAPHC_DENORMALS", "keep")


@pytest.mark.parametrize("first", range(0, 30, FEW))
def test_all_targets_agree(first: int, tmp_path: Path):
    assert_agreement(range(first, first + FEW), tmp_path)


@pytest.mark.parametrize("first", range(5000, 5020, FEW))
def test_functions_are_those_of_the_cpu(first: int, tmp_path: Path):
    assert_c_is_as_cpp(range(first, first + FEW), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(100, 1100, MANY))
def test_all_targets_agree_on_many(first: int, tmp_path: Path):
    assert_agreement(range(first, first + MANY), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(5100, 5300, MANY))
def test_many_functions_are_those_of_the_cpu(first: int, tmp_path: Path):
    assert_c_is_as_cpp(range(first, first + MANY), tmp_path)
