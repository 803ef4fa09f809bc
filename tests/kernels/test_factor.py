"""Factorizations have the bits of their references, at every width of registers, in any batch and
on the simulated GPU; and their text is CUDA for a GPU."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest

from graphc.base.target import Target
from graphc.ir import Type
from graphc.kernels.lower import lower
from graphc.ops import Cholesky, Eigh, Lu, Op, Qr, Svd, TriangularSolve
from graphc.ops.base import Array
from tests.kernels.cuda_harness import KERNELS, TARGET
from tests.kernels.harness import build, single
from tests.sim.playing import Played, simulator
from tests.tools import first_quick, need_command

OPS: tuple[Op, ...] = (
    Cholesky(),
    Lu(),
    Qr(),
    Eigh(),
    Svd(),
    TriangularSolve(True),
    TriangularSolve(False, transposed=True, unit=True),
    TriangularSolve(False),
)
SHAPES = ((3, 1, 1), (40, 5, 5), (2, 8, 8), (2, 19, 19), (1, 45, 45))
"""Numbers and extents of matrices: below, at and above a group of columns, with rests."""


def inputs_of(op: Op, shape: tuple[int, ...], dtype: str, seed: int = 0) -> list[Array]:
    random = np.random.default_rng(seed)
    x = random.normal(size=shape)
    if isinstance(op, Cholesky):
        x = x @ np.swapaxes(x, 1, 2) + np.eye(shape[-1])
    if isinstance(op, TriangularSolve):
        x = x + 4 * np.eye(shape[-1])
    arrays = [x, random.normal(size=(*shape[:-1], 70))]
    return [a.astype(dtype) for a in arrays[: 1 + isinstance(op, TriangularSolve)]]


CASES = [
    (op, inputs_of(op, shape, "f4" if number % 2 else "f8", number))
    for number, shape in enumerate(SHAPES)
    for op in OPS
]
NODES = [
    single(op, [Type(a.shape, f"f{8 * a.itemsize}") for a in arrays], f"factor{i}")
    for i, (op, arrays) in enumerate(CASES)
]


def assert_bits(found: list[Array], expected: tuple[Array, ...], what: object) -> None:
    for a, b in zip(found, expected, strict=True):
        assert a.tobytes() == b.tobytes(), what


@pytest.mark.parametrize("width", first_quick(2, (16, 4, 8)))
def test_the_cpu_has_the_bits_of_the_reference(width: int) -> None:
    kernels = build(NODES, Target("cpu", width))
    for kernel, (op, arrays) in zip(kernels, CASES, strict=True):
        assert_bits(kernel.run(arrays), op.reference(*arrays), (op, arrays[0].shape))


def test_the_simulated_gpu_has_the_bits_of_the_reference() -> None:
    """Its accesses are checked: bounds, races, reads of what nothing has written."""
    need_command("g++", "clang++")
    device = Played(simulator(check=True), NODES)
    for node, (op, arrays) in zip(NODES, CASES, strict=True):
        assert_bits(device.run(node, arrays), op.reference(*arrays), (op, arrays[0].shape))


@pytest.mark.parametrize("op", OPS[:5])
def test_a_matrix_has_its_bits_in_any_batch(op: Op) -> None:
    (x,) = inputs_of(op, (9, 12, 12), "f4")
    whole = op.reference(x)
    for place in (0, 8):
        assert_bits([y[place] for y in whole], op.reference(x[place]), op)


def test_threads_share_one_large_matrix_and_its_bits_stay() -> None:
    """In a batch, a thread computes each alone. The last panel of 200 rows has pivots too."""
    cases = [
        (op, inputs_of(op, (1, n, n), dtype, n))
        for op in (Cholesky(), Lu())
        for n, dtype in ((161, "f8"), (200, "f4"))
    ]
    nodes = [
        single(op, [Type((count, *x.shape[1:]), f"f{8 * x.itemsize}")], f"large{number}_{count}")
        for number, (op, (x,)) in enumerate(cases)
        for count in (1, 2)
    ]
    kernels = iter(build(nodes, Target("cpu", 16)))
    for op, (x,) in cases:
        expected = op.reference(x)
        alone, both = next(kernels), next(kernels)
        assert len(alone.kernel.phases) > 3
        assert len(both.kernel.phases) == 1
        assert_bits(alone.run([x]), expected, op)
        found = both.run([np.concatenate([x, x])])
        for half in (slice(1), slice(1, 2)):
            assert_bits([y[half] for y in found], expected, op)


def test_each_kernel_adds_in_the_order_that_is_stated() -> None:
    for node in NODES:
        assert lower(node, Target("cpu", 16)).sums == "stated"


@pytest.mark.parametrize("arch", first_quick(1, ["sm_90a", "sm_80"]))
def test_nvcc_compiles_the_text(arch: str, tmp_path: Path) -> None:
    compiler = need_command("nvcc")
    sources = [lower(node, TARGET).source for node in NODES[-len(OPS) :]]
    text = tmp_path / "factors.cu"
    text.write_text("\n".join(sources))
    command = [compiler, "-std=c++20", "-fmad=false", f"-arch={arch}", "-cubin"]
    command += ["-Werror", "all-warnings", "-I", str(KERNELS), str(text)]
    made = subprocess.run(
        [*command, "-o", str(tmp_path / "factors.cubin")], capture_output=True, text=True
    )
    assert made.returncode == 0, made.stderr
