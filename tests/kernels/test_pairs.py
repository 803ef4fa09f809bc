"""Products of bf16 two at a time: the instruction, the contractions that use it, and who does not.

A CPU without AVX512-BF16 is told here that it has it, and adds the products of a pair one by one;
one that multiplies tiles is told that it does not.
"""

from __future__ import annotations

import ctypes
import subprocess
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import graphc
from graphc import nn
from graphc.base.dtypes import convert, shown
from graphc.ir import DTYPES
from graphc.runtime.compilers import shared_objects
from graphc.runtime.compilers.shared_objects import FLAGS, KERNEL_HEADERS, find_compiler
from tests.support.pairs import EPS, FORMS, numbers, played, recurrent, turned

SOURCE = """#include "cpu/contract/contract_pairs.h"
using namespace graphc;
using namespace graphc::contract;
extern "C" void add(const bfloat* x, const bfloat* y, float* sums, long n) {
  for (long i = 0; i < n; i += W) {
    vec<float> sum = load(sums + i);
    add_pairs(sum, load_pairs<2 * W>(x + 2 * i), load_pairs<2 * W>(y + 2 * i));
    store(sums + i, sum);
  }
}
"""


@pytest.fixture
def pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    target = replace(shared_objects.cpu_target(), multiplies_pairs=True, multiplies_tiles=False)
    monkeypatch.setattr(shared_objects, "cpu_target", lambda: target)


@pytest.mark.parametrize("lanes", [None, 16, 8, 4])
def test_a_pair_is_two_multiply_adds_the_second_product_first(lanes: int | None, tmp_path):
    """By the instruction where this CPU has it (`None`), else by two."""
    (tmp_path / "pairs.cpp").write_text(SOURCE)
    command = [*find_compiler().command, *FLAGS, f"-I{KERNEL_HEADERS}"]
    if lanes is not None:
        command += [f"-DGRAPHC_LANES={lanes}", "-mno-avx512bf16"]
    subprocess.run(
        [*command, str(tmp_path / "pairs.cpp"), "-o", str(tmp_path / "pairs.so")], check=True
    )
    random = np.random.default_rng(0)
    n = 4096
    x, y = (random.standard_normal(2 * n) * 2.0 ** random.integers(-9, 9, 2 * n) for _ in "xy")
    x, y = (shown(convert(v.astype(np.float32), DTYPES["bf16"])) for v in (x, y))
    x[:4], y[:4], y[4] = [np.inf, 1, np.nan, 0], [2, np.inf, 1, 1], -np.inf
    sums = random.standard_normal(n).astype(np.float32)
    # An exact product and a sum in double precision, rounded to float: double rounding is rare.
    want = (sums + x[1::2].astype(np.float64) * y[1::2]).astype(np.float32)
    want = (want + x[::2].astype(np.float64) * y[::2]).astype(np.float32)
    bits = [(v.view(np.uint32) >> 16).astype(np.uint16) for v in (x, y)]
    pointers = (a.ctypes.data_as(ctypes.c_void_p) for a in (*bits, sums))
    ctypes.CDLL(str(tmp_path / "pairs.so")).add(*pointers, ctypes.c_long(n))
    np.testing.assert_array_equal(np.isnan(sums), np.isnan(want))
    assert (sums == want)[~np.isnan(want)].mean() > 0.999
    np.testing.assert_allclose(sums, want, rtol=2 * EPS)


def in_pairs(program: Any) -> list[bool]:
    """Of each contraction, whether it multiplies pairs."""
    kernels = program.plan.kernels.values()
    return ["PAIRS = true" in k.source for k in kernels if k.template == "contract"]


SIZES = [(64, 64, 64), (17, 33, 77), (1, 100, 51), (100, 1, 65), (40, 48, 129), (70, 9, 18)]


@pytest.mark.parametrize("form", FORMS)
def test_matrix_products_of_odd_sizes(form: str, pairs: None):
    """All in one program."""
    lefts = [numbers(*((k, m) if form[0] == "t" else (m, k))) for m, _, k in SIZES]
    rights = [numbers(*((n, k) if form[1] == "t" else (k, n)), seed=1) for _, n, k in SIZES]

    def products(*operands: Any) -> list[Any]:
        halves = operands[: len(SIZES)], operands[len(SIZES) :]
        return [FORMS[form](a, b) for a, b in zip(*halves, strict=True)]

    program, got, want = played(products, *lefts, *rights)
    assert in_pairs(program) == [True] * len(SIZES)
    for (_, _, k), a, b, one, other in zip(SIZES, lefts, rights, got, want, strict=True):
        left, right = (v.T if t == "t" else v for v, t in zip((a, b), form, strict=True))
        magnitude = np.abs(left) @ np.abs(right)
        assert (np.abs(one - other) <= 2 * k * EPS * magnitude).all()


def test_batches_and_several_heads(pairs: None):
    q, k = numbers(3, 21, 2, 33), numbers(3, 19, 2, 33, seed=1)

    def scores(q: Any, k: Any) -> Any:
        return graphc.swapaxes(q, 1, 2) @ turned(graphc.swapaxes(k, 1, 2))

    program, got, want = played(scores, q, k)
    assert in_pairs(program) == [True]
    np.testing.assert_allclose(got, want, rtol=0, atol=2e-5)


def test_what_is_not_finite_stays_in_its_row_and_column(pairs: None):
    """The missing half of a last pair is zero in both operands."""
    a, b = numbers(9, 31), numbers(31, 20, seed=1)
    a[2, 30], a[5, 0], b[30, 7] = np.inf, np.nan, -np.inf
    program, got, want = played(FORMS["nn"], a, b)
    assert in_pairs(program) == [True]
    np.testing.assert_array_equal(np.isfinite(got), np.isfinite(want))
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))


CONVOLUTIONS = [
    # images, channels in and out, rows, columns, taps, stride, padding, dilation
    ((8, 16, 32), (14, 14), (3, 3), 1, 1, 1),
    ((3, 32, 48), (13, 17), (3, 3), 2, 1, 1),
    ((2, 16, 16), (9, 15), (3, 5), 1, 2, 2),
    ((8, 32, 16), (7, 7), (1, 1), 1, 0, 1),
    ((2, 3, 32), (15, 13), (7, 7), 2, 3, 1),
]


@pytest.mark.parametrize("sizes, image, taps, stride, padding, dilation", CONVOLUTIONS)
def test_convolutions_and_their_gradients(
    sizes, image, taps, stride, padding, dilation, pairs: None
):
    n, c, k = sizes
    x, w = numbers(n, c, *image), numbers(k, c, *taps, seed=1)

    def conv(x: Any, w: Any) -> Any:
        return graphc.conv2d(x, w, stride=stride, padding=padding, dilation=dilation)

    shape = graphc.compile(conv, *map(graphc.spec, (x.shape, w.shape)), device="reference")(x, w)
    dy = numbers(*shape.shape, seed=2)

    def all_three(x: Any, w: Any, dy: Any) -> Any:
        def weighed(x: Any, w: Any) -> Any:
            return graphc.sum(conv(x, w) * dy)

        return conv(x, w), *graphc.grad(weighed, (0, 1))(x, w)

    program, got, want = played(all_three, x, w, dy)
    sizes_of = graphc.compile(
        all_three, *(graphc.spec(v.shape) for v in (x, w, dy)), device="reference"
    )
    magnitudes = sizes_of(*map(np.abs, (x, w, dy)))
    if shared_objects.cpu_target().lanes == 16:  # of fewer, these batches may fill registers
        # The data gradient of three channels has no whole registers of them.
        assert sum(in_pairs(program)) == 2 if c == 3 else all(in_pairs(program))
    for one, other, magnitude in zip(got, want, magnitudes, strict=True):
        assert (np.abs(one - other) <= 64 * EPS * magnitude).all()


def test_a_recurrent_network_with_its_batch_in_the_lanes(pairs: None):
    step, got = recurrent(16, device="cpu")
    assert any(in_pairs(step))
    _, want = recurrent(16, device="reference")
    np.testing.assert_allclose(got, want, rtol=2.0**-10)
    assert recurrent(16, device="cpu", threads=1, streams=1)[1] == got
    assert recurrent(16, device="cpu", threads=2, streams=2)[1] == got


def test_what_a_loop_reads_is_rounded_outside_of_it_and_once():
    step, _ = recurrent(7, device="reference")
    lines = str(step.graph).splitlines()
    weights = [line for line in lines if " cast(" in line and "bf16[128,32]" in line]
    assert len(weights) == 1, "neither again in the loop, nor behind it"


def test_denormals_that_are_kept_are_multiplied_as_floats(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("GRAPHC_DENORMALS", "keep")
    a, b = numbers(5, 40), numbers(40, 20, seed=1)
    a[3, 7] = 2.0**-130
    b[:, 0] = 2.0**100
    program, got, want = played(FORMS["nn"], a, b)
    assert in_pairs(program) == [False]
    np.testing.assert_allclose(got, want, rtol=1e-5)


def test_models_of_bf16_multiply_pairs_without_being_asked(pairs: None):
    model = nn.Linear(40, 24).to("bfloat16")
    program = graphc.compile(model, graphc.spec((70, 40), "bfloat16"), device="cpu")
    assert in_pairs(program) == [True]
    reference = graphc.compile(model, graphc.spec((70, 40), "bfloat16"), device="reference")
    x = numbers(70, 40)
    np.testing.assert_allclose(program(x), reference(x), rtol=2.0**-7, atol=1e-6)
