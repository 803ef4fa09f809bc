"""Products of bf16 by AMX's tile registers. A CPU without them computes by loops what they would,
bit by bit: the kernels have one text."""

from __future__ import annotations

import ctypes
import math
import re
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphc
from graphc.base.dtypes import convert, shown
from graphc.ir import DTYPES
from graphc.runtime.compilers import shared_objects
from graphc.runtime.compilers.shared_objects import FLAGS, KERNEL_HEADERS, find_compiler
from tests.support.amx import disassembled
from tests.support.pairs import EPS, FORMS, numbers, played, recurrent, turned
from tests.tools import first_quick

SOURCE = """#include "cpu/shared/amx.h"
using namespace graphc;
extern "C" void add(const uint32_t* x, const uint32_t* y, float* sums, long stride) {
  TileRegisters tiles;
  tiles.zero<7>();
  tiles.load<0>(sums, 4 * stride);
  tiles.load<4>(x, TILE_BYTES);
  tiles.load<6>(y, TILE_BYTES);
  tiles.multiply<0, 4, 6>();
  tiles.store<0>(sums, 4 * stride);
}
"""
INSTRUCTIONS = ("ldtilecfg", "tilezero", "tileloadd", "tdpbf16ps", "tilestored", "tilerelease")


@pytest.fixture
def tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    target = replace(
        shared_objects.cpu_target(), lanes=16, multiplies_pairs=True, multiplies_tiles=True
    )
    monkeypatch.setattr(shared_objects, "cpu_target", lambda: target)


def built(folder: Path, *flags: str) -> Path:
    (folder / "tiles.cpp").write_text(SOURCE)
    made = folder / "tiles.so"
    command = [*find_compiler().command, *FLAGS, f"-I{KERNEL_HEADERS}", *flags]
    subprocess.run([*command, str(folder / "tiles.cpp"), "-o", str(made)], check=True)
    return made


def flushed(x: np.ndarray) -> np.ndarray:
    return np.where(np.abs(x) < np.finfo(np.float32).tiny, np.copysign(np.float32(0), x), x)


def multiplied(x: np.ndarray, y: np.ndarray, sums: np.ndarray) -> np.ndarray:
    """What the instruction's description says, of x [16][32] and y [32][16]."""
    x, y, chains = flushed(x), flushed(y), []
    for first in (0, 1):  # a chain of even products and one of odd
        chain = np.zeros((16, 16), np.float32)
        for t in range(first, 32, 2):
            # The product of two bf16 is exact in double precision, and so is nearly every sum.
            exact = x[:, t, None].astype(np.float64) * y[t] + chain
            chain = flushed(exact.astype(np.float32))
        chains.append(chain)
    return flushed(flushed(sums) + flushed(chains[0] + chains[1]))


@pytest.mark.parametrize("flags", [(), ("-mno-avx512f",), ("-DGRAPHC_LANES=4", "-mno-fma")])
def test_the_loops_do_what_the_instruction_does(flags: tuple[str, ...], tmp_path: Path):
    random = np.random.default_rng(0)
    x, y = (
        random.standard_normal(s) * 2.0 ** random.integers(-9, 9, s) for s in ((16, 32), (32, 16))
    )
    x[1], y[:, 1] = x[1] * 2.0**-120, y[:, 1] * 2.0**-40  # their products are denormals
    x[2, 3], y[5, 2], x[3, 0], x[4] = np.inf, np.nan, 2.0**-130, 1e30
    y[:, 4] = 1e30
    x, y = (shown(convert(v.astype(np.float32), DTYPES["bf16"])) for v in (x, y))
    sums = random.standard_normal((16, 16)).astype(np.float32)
    sums[:, 5], sums[1, 1] = 2.0**-140, 0
    with np.errstate(all="ignore"):
        want = multiplied(x, y, sums)
    rows = (x.view(np.uint32) >> 16).astype(np.uint16)
    columns = (y.view(np.uint32) >> 16).astype(np.uint16).reshape(16, 2, 16).transpose(0, 2, 1)
    columns = np.ascontiguousarray(columns)
    wide = np.full((16, 21), 7, np.float32)
    wide[:, :16] = sums
    made = built(tmp_path, "-DGRAPHC_EMULATE_AMX", *flags)
    pointers = (a.ctypes.data_as(ctypes.c_void_p) for a in (rows, columns, wide))
    ctypes.CDLL(str(made)).add(*pointers, ctypes.c_long(21))
    got = wide[:, :16]
    assert (wide[:, 16:] == 7).all()
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    there = ~np.isnan(want)
    same = got.view(np.uint32)[there] == want.view(np.uint32)[there]
    assert same.mean() > 0.99, "but for sums that round twice here"
    np.testing.assert_allclose(got, want, rtol=2**-20, atol=1e-5)
    assert got[1, 1] == 0 and np.isinf(got[4, 4])


def test_a_cpu_with_amx_gets_its_instructions(tmp_path: Path):
    (tmp_path / "tiles.cpp").write_text(SOURCE)
    text = disassembled(tmp_path / "tiles.cpp")
    assert [name for name in INSTRUCTIONS if name not in text] == []
    assert re.search(r"tdpbf16ps %tmm6,\s*%tmm4,\s*%tmm0", text)


def test_a_kernel_for_a_cpu_with_amx(tiles: None, tmp_path: Path):
    """Two registers of rows, read where they lie, by two of a panel's."""
    program, _, _ = played(FORMS["nt"], numbers(64, 64), numbers(64, 64, seed=1))
    (kernel,) = (k for k in program.plan.kernels.values() if k.template == "contract")
    (tmp_path / "kernel.cpp").write_text(kernel.source)
    text = disassembled(tmp_path / "kernel.cpp", "-DGRAPHC_LANES=16")
    registers = re.findall(r"tdpbf16ps %tmm(\d),\s*%tmm(\d),\s*%tmm(\d)", text)
    of_sums = [("6", "4", "0"), ("6", "5", "2"), ("7", "4", "1"), ("7", "5", "3")]
    assert sorted(set(registers)) == of_sums
    assert text.count("tileloadd") == len(registers) and text.count("ldtilecfg") == 1


def by_tiles(program: Any) -> list[bool]:
    """Of each contraction, whether AMX multiplies it."""
    kernels = program.plan.kernels.values()
    return ["AMX = true" in k.source for k in kernels if k.template == "contract"]


SIZES = [(64, 64, 64), (17, 33, 77), (33, 100, 51), (100, 50, 65), (40, 48, 129), (128, 96, 200)]
"""Rows, columns and sums: whole registers, rests, halves of pairs, of 32 as well (k = 63)."""


@pytest.mark.parametrize("form", first_quick(2, FORMS))
def test_matrix_products_of_odd_sizes(form: str, tiles: None):
    for m, n, k in (*SIZES, (32, 16, 63)):
        a = numbers(*((k, m) if form[0] == "t" else (m, k)))
        b = numbers(*((n, k) if form[1] == "t" else (k, n)), seed=1)
        program, got, want = played(FORMS[form], a, b)
        assert by_tiles(program) == [True], (m, n, k)
        left, right = (v.T if t == "t" else v for v, t in zip((a, b), form, strict=True))
        magnitude = np.abs(left) @ np.abs(right)
        assert (np.abs(got - want) <= 2 * k * EPS * magnitude).all()


@pytest.mark.parametrize("k", first_quick(1, [200, 1000]))
def test_rows_that_are_turned_are_kept_for_other_columns(k: int, tiles: None):
    """All tiles of them, or fewer, so that the next takes a place again."""
    a, b = numbers(k, 200), numbers(k, 70, seed=1)
    program, got, want = played(FORMS["tn"], a, b)
    (kernel,) = (x for x in program.plan.kernels.values() if "AMX = true" in x.source)
    kept, rows = (
        int(re.findall(rf"{n} = (\d+)", kernel.source)[0]) for n in ("X_TILES", "ROW_TILES")
    )
    assert 0 < kept < rows if k == 1000 else kept == rows
    assert (np.abs(got - want) <= 2 * k * EPS * (np.abs(a.T) @ np.abs(b))).all()


def test_few_rows_and_short_sums_go_in_pairs(tiles: None):
    for m, n, k in ((3, 64, 64), (70, 9, 18)):
        program, _, _ = played(FORMS["nn"], numbers(m, k), numbers(k, n, seed=1))
        assert by_tiles(program) == [False]


def test_the_plan_says_which_form(tiles: None):
    program, _, _ = played(FORMS["nn"], numbers(64, 64), numbers(64, 64, seed=1))
    choices = [k.choice for k in program.plan.kernels.values() if k.template == "contract"]
    assert ["bf16 by tiles (AMX)" in choice for choice in choices] == [True]


def test_batches_heads_and_what_follows(tiles: None):
    q, k, b = numbers(3, 41, 2, 70), numbers(3, 37, 2, 70, seed=1), numbers(37, seed=2)

    def scores(q: Any, k: Any, b: Any) -> Any:
        return graphc.relu(graphc.swapaxes(q, 1, 2) @ turned(graphc.swapaxes(k, 1, 2)) + b)

    program, got, want = played(scores, q, k, b)
    assert by_tiles(program) == [True]
    np.testing.assert_allclose(got, want, rtol=0, atol=4e-5)


def test_long_sums_in_parts(tiles: None):
    a, b = numbers(48, 20, 100), numbers(20, 100, 33, seed=1)

    def product(a: Any, b: Any) -> Any:
        return graphc.einsum("mij,ijn->mn", a, b)

    program, got, want = played(product, a, b)
    assert by_tiles(program) == [True]
    magnitude = np.einsum("mij,ijn->mn", np.abs(a), np.abs(b))
    assert (np.abs(got - want) <= 2 * 2000 * EPS * magnitude).all()


def test_what_is_not_finite_stays_in_its_row_and_column(tiles: None):
    a, b = numbers(41, 71), numbers(71, 40, seed=1)
    a[2, 70], a[35, 0], b[70, 7] = np.inf, np.nan, -np.inf
    program, got, want = played(FORMS["nn"], a, b)
    assert by_tiles(program) == [True]
    np.testing.assert_array_equal(np.isfinite(got), np.isfinite(want))
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))


def test_results_do_not_depend_on_threads(tiles: None):
    a, b = numbers(200, 300), numbers(300, 200, seed=1)
    results = [played(FORMS["nt"], a, b.T, threads=n)[1] for n in (1, 2)]
    np.testing.assert_array_equal(*results)
    x, w = numbers(4, 32, 30, 30), numbers(64, 32, 3, 3, seed=1)
    results = [played(graphc.conv2d, x, w, threads=n)[1] for n in (1, 2)]
    np.testing.assert_array_equal(*results)


def convolutions_by_tiles(program: Any) -> int:
    return sum("tiles::Convolution" in k.source for k in program.plan.kernels.values())


def gradients_by_tiles(program: Any) -> int:
    return sum("tiles::Gradient" in k.source for k in program.plan.kernels.values())


CONVOLUTIONS = [
    # images, channels in and out, rows, columns, taps, stride, padding, dilation
    ((8, 16, 32), (14, 14), (3, 3), 1, 1, 1),
    ((3, 32, 48), (13, 17), (3, 3), 2, 1, 1),
    ((2, 48, 16), (9, 15), (3, 5), 1, 2, 2),
    ((8, 32, 16), (7, 7), (1, 1), 1, 0, 1),
    ((2, 64, 80), (7, 7), (3, 3), 1, 1, 1),
    ((1, 32, 32), (8, 70), (3, 3), 1, 0, 1),
    ((2, 32, 64), (9, 9), (1, 1), 2, 0, 1),
]


@pytest.mark.parametrize("sizes, image, taps, stride, padding, dilation", CONVOLUTIONS)
def test_convolutions_and_their_gradients(
    sizes, image, taps, stride, padding, dilation, tiles: None
):
    n, c, k = sizes
    x, w, b = numbers(n, c, *image), numbers(k, c, *taps, seed=1), numbers(k, 1, 1, seed=3)

    def conv(x: Any, w: Any, b: Any) -> Any:
        return graphc.conv2d(x, w, stride=stride, padding=padding, dilation=dilation) + b

    shape = graphc.compile(conv, *(graphc.spec(v.shape) for v in (x, w, b)), device="reference")
    dy = numbers(*shape(x, w, b).shape, seed=2)

    def both(x: Any, w: Any, b: Any, dy: Any) -> Any:
        def weighed(x: Any, w: Any) -> Any:
            return graphc.sum(conv(x, w, b) * dy)

        return conv(x, w, b), *graphc.grad(weighed, (0, 1))(x, w)

    program, got, want = played(both, x, w, b, dy)
    # A gradient of stride 2 is a convolution for each of its phases that has taps.
    assert convolutions_by_tiles(program) == (2 if stride == 1 else 1 + min(4, math.prod(taps)))
    assert gradients_by_tiles(program) == 1
    specs = (graphc.spec(v.shape) for v in (x, w, b, dy))
    sums = graphc.compile(both, *specs, device="reference")
    magnitudes = sums(*map(np.abs, (x, w, b, dy)))
    for one, other, magnitude in zip(got, want, magnitudes, strict=True):
        assert (np.abs(one - other) <= 64 * EPS * magnitude).all()


def test_weights_that_are_not_finite_do_not_meet_the_padding(tiles: None):
    x, w = numbers(2, 32, 9, 9), numbers(32, 32, 3, 3, seed=1)
    w[3, 5, 0, 1], w[7, 2, 1, 0], w[30, 31, 2, 2] = np.inf, np.nan, -np.inf

    def conv(x: Any, w: Any) -> Any:
        return graphc.conv2d(x, w, padding=1)

    program, got, _ = played(conv, x, w)
    assert convolutions_by_tiles(program) == 1
    want = graphc.compile(conv, graphc.spec(x.shape), graphc.spec(w.shape), device="cpu")(x, w)
    assert np.isfinite(want[:, (3, 7, 30)]).any() and not np.isfinite(want[:, (3, 7, 30)]).all()
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-4)


def weight_gradient(x: Any, dy: Any, w: Any, stride: int = 1) -> Any:
    """Of a convolution with `w` and a border of zeros; `w` says which shape alone."""

    def weighed(w: Any) -> Any:
        return graphc.sum(graphc.conv2d(x, w, stride=stride, padding=1) * dy)

    return graphc.grad(weighed)(w)


def test_weight_gradients_of_what_is_not_finite(tiles: None):
    """At corners, where most taps meet the padding instead, and at the end of a row."""
    x, dy = numbers(2, 32, 9, 9), numbers(2, 16, 9, 9, seed=1)
    w = np.zeros((16, 32, 3, 3), np.float32)
    x[0, 3, 0, 0], x[1, 5, 4, 8], dy[0, 7, 8, 8], dy[1, 9, 3, 0] = np.inf, np.nan, -np.inf, np.nan
    program, got, _ = played(weight_gradient, x, dy, w)
    assert gradients_by_tiles(program) == 1
    specs = (graphc.spec(v.shape) for v in (x, dy, w))
    want = graphc.compile(weight_gradient, *specs, device="cpu")(x, dy, w)
    assert 0.1 < np.isfinite(want).mean() < 0.99
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    np.testing.assert_array_equal(np.isinf(got), np.isinf(want))
    there = np.isfinite(want)
    np.testing.assert_allclose(got[there], want[there], rtol=0, atol=1e-4)


@pytest.mark.parametrize(
    ("n", "c", "k", "size", "stride"),
    [(4, 32, 16, 30, 1), (4, 32, 48, 58, 1), (6, 64, 64, 15, 2), (3, 80, 208, 7, 1)],
)
def test_weight_gradients_by_blocks_parts_and_groups(
    n: int, c: int, k: int, size: int, stride: int, tiles: None
):
    rows = (size - 1) // stride + 1
    x, dy = numbers(n, c, size, size), numbers(n, k, rows, rows, seed=1)
    w = np.zeros((k, c, 3, 3), np.float32)

    def gradient(x: Any, dy: Any, w: Any) -> Any:
        return weight_gradient(x, dy, w, stride)

    program, got, want = played(gradient, x, dy, w)
    assert gradients_by_tiles(program) == 1
    magnitude = played(gradient, np.abs(x), np.abs(dy), w)[2]
    assert (np.abs(got - want) <= 64 * EPS * magnitude).all()
    np.testing.assert_array_equal(played(gradient, x, dy, w, threads=2)[1], got)


def test_a_weight_gradient_for_a_cpu_with_amx(tiles: None, tmp_path: Path):
    """Two registers of k by two of taps, then the last tap."""
    x, dy = numbers(2, 16, 9, 9), numbers(2, 32, 9, 9, seed=1)
    program, _, _ = played(weight_gradient, x, dy, np.zeros((32, 16, 3, 3), np.float32))
    (kernel,) = (k for k in program.plan.kernels.values() if "tiles::Gradient" in k.source)
    (tmp_path / "kernel.cpp").write_text(kernel.source)
    text = disassembled(tmp_path / "kernel.cpp", "-DGRAPHC_LANES=16")
    registers = set(re.findall(r"tdpbf16ps %tmm(\d),\s*%tmm(\d),\s*%tmm(\d)", text))
    of_two = {("6", "4", "0"), ("6", "5", "2"), ("7", "4", "1"), ("7", "5", "3")}
    assert registers == of_two | {("6", "5", "1")}


def test_a_recurrent_network_takes_four_sections(tiles: None):
    step, got = recurrent(16, device="cpu")
    assert any(by_tiles(step))
    _, want = recurrent(16, device="reference")
    np.testing.assert_allclose(got, want, rtol=2.0**-10)
    assert recurrent(16, device="cpu", threads=2, streams=2)[1] == got


def test_denormals_that_are_kept_go_as_floats(tiles: None, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("GRAPHC_DENORMALS", "keep")
    program, _, _ = played(FORMS["nn"], numbers(64, 64), numbers(64, 64, seed=1))
    assert by_tiles(program) == [False]


@pytest.mark.parametrize("allowed", [True, False])
def test_the_system_is_asked_where_the_cpu_has_tiles(
    allowed: bool, monkeypatch: pytest.MonkeyPatch
):
    features = ("amx_bf16", "amx_tile", "avx512_bf16", "avx512bw", "avx512f")
    monkeypatch.setattr(shared_objects, "cpu_features", lambda: features)
    monkeypatch.setattr(shared_objects, "allows_tiles", lambda: allowed)
    target = shared_objects._cpu_target.__wrapped__("")
    assert (target.multiplies_pairs, target.multiplies_tiles) == (True, allowed)
    monkeypatch.setattr(shared_objects, "cpu_features", lambda: features[1:])
    assert not shared_objects._cpu_target.__wrapped__("").multiplies_tiles


def test_a_system_that_refuses_is_no_error():
    if "amx_tile" in shared_objects.cpu_features():
        pytest.skip("this system allows it")
    assert shared_objects.allows_tiles() is False
