"""NEON: the CPU's kernels with four lanes and plain C, built by a cross compiler and run under
QEMU, have the bits that they have on this machine."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from graphc.ir import Type
from tests.kernels.c_harness import assert_same_bits, build_c
from tests.kernels.cross_harness import run_c, run_cpp
from tests.kernels.harness import single
from tests.kernels.test_c_functions import arity, operands, ops
from tests.kernels.test_targets_agree import interpreted
from tests.random_pointwise import RandomPointwise


def test_random_kernels_have_the_same_bits(tmp_path: Path):
    programs = [RandomPointwise(seed) for seed in range(30, 45)]
    nodes, inputs = [p.node for p in programs], [p.arrays for p in programs]
    with np.errstate(all="ignore"):
        want = [interpreted(p.node, p.arrays) for p in programs]
    for run in (run_cpp, run_c):
        for number, got in enumerate(run(nodes, inputs, tmp_path)):
            assert_same_bits(got, want[number], f"{run.__name__}, seed {30 + number}")


def test_functions_have_the_same_bits(tmp_path: Path):
    known = ops("f32")
    inputs = [operands("f32", arity(op)) for op in known]
    nodes = [
        single(op, [Type(a.shape, "f32") for a in arrays], f"{op.name}_{i}")
        for i, (op, arrays) in enumerate(zip(known, inputs, strict=True))
    ]
    here = [b.run(a) for b, a in zip(build_c(nodes, tmp_path), inputs, strict=True)]
    for run in (run_cpp, run_c):
        for op, got, want in zip(known, run(nodes, inputs, tmp_path), here, strict=True):
            assert_same_bits(got, want, f"{run.__name__}, {op}")
