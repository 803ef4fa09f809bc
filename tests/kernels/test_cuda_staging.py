"""Kernels whose blocks stage the pixels that they read, each of its kind whatever it would cost: in
the simulator against the reference, with its race check and with mistakes in the template, and
compiled. `test_cuda_halo.py` has those of halo.cuh."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphc
from graphc.ir import Node
from graphc.kernels.cuda.convolution import halo, halo_gradient
from graphc.kernels.cuda.convolution.halo_gradient import HaloGradientTile, Im2colTile
from graphc.kernels.cuda.convolution.staging import HaloTile
from graphc.kernels.lower import lower
from graphc.kernels.program.kernel import Kernel
from graphc.ops.fused import kernels_in
from graphc.runtime.sim.errors import LaunchError
from graphc.runtime.sim.native import ORDERS
from tests.kernels.cuda_harness import TARGET, arrays_of, assert_close, mistaken, usage_of
from tests.sim.playing import Played, simulator
from tests.tools import need_command

DILATED = {"padding": (2, 4), "dilation": (2, 4)}
Mistake = tuple[str, str, str] | tuple[str, str]
"""What stands in a header and what takes its place; the header, if it is not the family's own."""


@dataclass(frozen=True)
class Family:
    """A header, its template, the op that it computes, and the tests of it.

    Attributes:
        cases: shapes of images and filters, settings, and the numbers of a tile by name.
        compiled: the cases whose kernels are compiled.
        case: the case that is played with mistakes, and for every number of streams.
        broken, wrong: mistakes that the checks find, and that make other sums.
    """

    header: str
    template: str
    op: str
    cases: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any], tuple[int, ...]]]
    take: Callable[[pytest.MonkeyPatch, tuple[int, ...]], None]
    compiled: tuple[str, ...]
    case: str
    broken: dict[str, Mistake]
    wrong: dict[str, Mistake]

    def program(self, name: str, device: str, streams: int = 1) -> Any:
        """The gradient of filters, or a convolution with a bias, and another one behind it."""
        _, w, settings, _ = self.cases[name]

        def loss(w: Any, x: Any) -> Any:
            y = graphc.conv2d(x, w, **settings)
            return graphc.sum(y * y)

        def both(x: Any, first: Any, bias: Any, second: Any) -> Any:
            y = graphc.conv2d(x, first, **settings) + graphc.reshape(bias, (w[0], 1, 1))
            return graphc.conv2d(graphc.relu(y), second)

        made = both if self.op == "conv2d" else graphc.grad(loss)
        options = {} if device == "reference" else {"streams": streams}
        specs = [graphc.spec(shape) for shape in self.shapes(name)]
        return graphc.compile(made, *specs, device=device, precision="tf32", **options)

    def shapes(self, name: str) -> list[tuple[int, ...]]:
        x, w, *_ = self.cases[name]
        return [x, w, w[:1], (8, w[0], 3, 3)] if self.op == "conv2d" else [w, x]

    def node(self, name: str, monkeypatch: pytest.MonkeyPatch) -> Node:
        """The fused node with the layouts that it has in a program, whose tile is the case's."""
        nodes = kernels_in(self.program(name, "cuda").graph)
        self.take(monkeypatch, self.cases[name][3])
        return next(n for n in nodes if any(x.op.name == self.op for x in n.body.nodes))

    def lowered(self, node: Node) -> Kernel:
        kernel = lower(node, TARGET)
        assert self.template in kernel.source
        return kernel

    def terms(self, name: str) -> int:
        """How many products a sum has."""
        (n, _, h, w), (_, _, *taps), *_ = self.cases[name]
        return int(np.prod(taps)) if self.op == "conv2d" else n * h * w

    def played(self, node: Node, mistake: Mistake | None = None) -> Played:
        need_command("g++")
        if mistake is None:
            return Played(simulator(check=True), [node], make=self.lowered)
        right, wrong, header = (*mistake, self.header)[:3]
        changed = mistaken(header, (right, wrong))
        return Played(simulator(check=True), [node], changed, self.lowered)


def tried(tile: Callable[[HaloGradientTile], HaloTile]) -> Callable[..., Iterator[HaloTile]]:
    """That tile alone, which fits."""

    def tiles(bare: HaloGradientTile) -> Iterator[HaloTile]:
        found = tile(bare)
        assert [*found.fitted()]
        yield found

    return tiles


def take_gradient(monkeypatch: pytest.MonkeyPatch, numbers: tuple[int, ...]) -> None:
    m, n, lines, splits = numbers
    taken = tried(lambda bare: replace(bare, m=m, n=n, lines=lines))
    monkeypatch.setattr(halo_gradient, "_tiles", taken)
    monkeypatch.setattr(HaloGradientTile, "parts_of_k", lambda _: (splits,))
    monkeypatch.setattr(HaloGradientTile, "cycles", lambda *_: 0.0)


def take_im2col(monkeypatch: pytest.MonkeyPatch, numbers: tuple[int, ...]) -> None:
    n, lines, down, splits = numbers

    def tile(bare: HaloGradientTile) -> HaloTile:
        sizes = bare.image, lines, n, 8, 1, bare.y, bare.outputs, bare.columns, bare.rows
        return Im2colTile(*sizes, bare.concurrent, bare.rows, down)

    monkeypatch.setattr(halo_gradient, "_tiles", lambda bare: iter(()))
    monkeypatch.setattr(halo_gradient, "_im2col_tiles", tried(tile))
    monkeypatch.setattr(Im2colTile, "parts_of_k", lambda _: (splits,))
    monkeypatch.setattr(Im2colTile, "cycles", lambda *_: 0.0)


def take_single(monkeypatch: pytest.MonkeyPatch, numbers: tuple[int, ...]) -> None:
    tiles = halo._single_tiles

    def taken(*arguments: Any) -> Iterator[HaloTile]:
        yield next(t for t in tiles(*arguments) if (t.lines, t.warps) == numbers)

    monkeypatch.setattr(halo, "_single_tiles", taken)
    monkeypatch.setattr(halo.SingleChannelTile, "cycles", lambda *_: 0.0)


UNWAITED = ("  copy_wait<0>();\n    round", "  round", "staging")
NOBODY_WAITS = ("block.sync();  // step", "// step", "staging")
SHORT_PART = ("least + (part < more)", "least + (part < more - 1)", "staging")
UNROUNDED = ("near.at[i] = float_to_tf32(four.at[i])", "near.at[i] = four.at[i]")
UNCLEARED = ("to[at + (x < beside", "if (y < 0) to[at + (x < beside", "staging")

GRADIENT = Family(
    "halo_gradient",
    "HaloGradient",
    "conv2d_wgrad",
    {  # rows and columns of a tile, lines of a step, parts of k
        "padded": ((3, 32, 9, 12), (40, 32, 3, 3), {"padding": 1}, (32, 32, 2, 4)),
        "pairs of lines": ((2, 64, 8, 12), (64, 64, 3, 3), {"padding": 1}, (64, 64, 2, 3)),
        "whole images": ((5, 64, 7, 7), (24, 64, 3, 3), {"padding": 1}, (16, 64, 7, 1)),
        "strided": ((2, 16, 13, 18), (72, 16, 3, 3), {"padding": 1, "stride": 2}, (64, 16, 3, 2)),
        "dilated": ((2, 32, 12, 16), (20, 32, 3, 3), DILATED, (32, 32, 1, 5)),
        "tails of channels": ((2, 20, 13, 16), (50, 20, 3, 3), {"padding": (1, 2)}, (64, 32, 3, 2)),
        "unpadded": ((2, 16, 12, 12), (56, 16, 5, 5), {}, (64, 16, 8, 1)),
        "narrow": ((2, 3, 22, 24), (64, 3, 7, 7), {"padding": 3, "stride": 2}, (64, 4, 1, 3)),
        "narrow, whole images": ((3, 4, 6, 8), (32, 4, 3, 3), {"padding": 1}, (64, 4, 6, 1)),
    },
    take_gradient,
    ("pairs of lines", "whole images", "narrow"),
    "padded",
    {
        "copies are not waited for": UNWAITED,
        "nobody waits for a step": NOBODY_WAITS,
        "dy has one buffer": ("first_of(i), i % 2, dy", "first_of(i), 0, dy"),
        "lines are copied where others read": ("there > step.first() ? there", "false ? there"),
        "sums leave while others multiply": (
            "        block.sync();\n#pragma unroll\n",
            "#pragma unroll\n",
        ),
        "sums are read before they are there": (
            "        block.sync();\n#pragma unroll 2",
            "#pragma unroll 2",
        ),
        "lines behind the image are copied": ("smaller(last + 1, Halo::H)", "last + 1"),
        "channels behind the last are copied": ("left > 4 ? 16 : left > 0 ? left * 4 : 0", "16"),
    },
    {
        "lines above the image count": ("exists = at >= 0 && at", "exists = at"),
        "taps are one pixel aside": ("+ Halo::left * pixel + place", "+ place"),
        "a part takes a step too few": SHORT_PART,
        "nothing is rounded": (*UNROUNDED, "staging"),
    },
)
IM2COL = Family(
    "im2col_gradient",
    "Im2colGradient",
    "conv2d_wgrad",
    {  # rows, lines of a step, warps below each other, parts of k
        "second of LeNet": ((3, 20, 12, 12), (50, 20, 5, 5), {}, (512, 8, 8, 2)),
        "rows of two blocks": ((2, 20, 12, 12), (50, 20, 5, 5), {}, (256, 4, 8, 1)),
        "first of LeNet": ((2, 1, 28, 28), (20, 1, 5, 5), {}, (32, 8, 1, 5)),
        "shares": ((2, 12, 12, 12), (12, 12, 3, 3), {"padding": 1}, (64, 4, 2, 4)),
        "a plane, padded": ((3, 1, 12, 12), (16, 1, 3, 3), {"padding": 1}, (16, 2, 1, 4)),
        "four channels": ((2, 4, 9, 12), (24, 4, 3, 3), {"padding": (0, 3)}, (48, 1, 1, 1)),
        "strided": (
            (2, 16, 17, 18),
            (20, 16, 3, 3),
            {"padding": (1, 0), "stride": 2},
            (160, 3, 2, 2),
        ),
        "dilated": ((2, 8, 12, 12), (18, 8, 3, 3), DILATED, (80, 4, 1, 1)),
    },
    take_im2col,
    ("second of LeNet", "first of LeNet", "shares"),
    "shares",
    {
        "copies are not waited for": UNWAITED,
        "nobody waits for a step": NOBODY_WAITS,
        "there is one buffer": ("copy(shared + i % 2 * buffer", "copy(shared"),
        "sums leave while others multiply": (
            "      block.sync();\n#pragma unroll\n      for (int n",
            "#pragma unroll\n      for (int n",
        ),
        "sums are read before they are there": (
            "      block.sync();\n#pragma unroll 2",
            "#pragma unroll 2",
        ),
        "lines behind the image are copied": ("top + y < Halo::H", "true"),
    },
    {
        "taps are one pixel aside": ("beside + Halo::left * pixel +", "beside +"),
        "a part takes a step too few": SHORT_PART,
        "x is not rounded": ("each_x(step, [&](int at, int, bool) { nearest(at); });", ""),
        "a share is left out": ("s = 1; s < shares", "s = 2; s < shares"),
        "what is beside a line is not cleared": UNCLEARED,
    },
)
SINGLE = Family(
    "single_channel",
    "SingleChannelProduct",
    "conv2d",
    {  # lines of a block, its warps
        "first of LeNet": ((2, 1, 28, 28), (20, 1, 5, 5), {}, (24, 3)),
        "few lines": ((2, 1, 28, 28), (20, 1, 5, 5), {}, (8, 4)),
        "padded": ((3, 1, 12, 14), (16, 1, 3, 3), {"padding": 1}, (6, 3)),
        "no whole runs": ((2, 1, 13, 15), (10, 1, 3, 5), {"padding": (0, 2)}, (11, 6)),
        "strided": ((2, 1, 18, 33), (24, 1, 4, 4), {"padding": (1, 0), "stride": 2}, (9, 4)),
        "dilated": ((2, 1, 14, 16), (8, 1, 3, 3), {"padding": 1, "dilation": 2}, (4, 3)),
    },
    take_single,
    ("first of LeNet", "no whole runs"),
    "padded",
    {
        "nobody waits for the lines": ("    block.sync();\n", ""),
        "sums are stored before they are read": (
            "      __syncwarp();\n#pragma unroll\n",
            "#pragma unroll\n",
        ),
        "sums are read before they are there": (
            "      __syncwarp();\n      constexpr",
            "      constexpr",
        ),
        "lines behind the image are read": ("top + y < Halo::H", "true"),
    },
    {
        "taps are one pixel aside": ("shared + beside + Halo::left", "shared + beside"),
        "x is not rounded": ("      round_run(run);\n", ""),
        "filters are not rounded": ("      round_run(some);\n", ""),
        "filters are read at another tap": ("column * taps + tap]", "column * taps]"),
        "what is beside a line is not cleared": UNCLEARED,
    },
)
FAMILIES = {each.header: each for each in (GRADIENT, IM2COL, SINGLE)}
OTHER_CASES = {
    ("halo_gradient", "channels behind the last are copied"): "tails of channels",
    ("single_channel", "nobody waits for the lines"): "few lines",
    ("single_channel", "sums are stored before they are read"): "few lines",
    ("single_channel", "sums are read before they are there"): "few lines",
}
"""The cases of mistakes that the family's own does not show."""


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(("header", "name"), [(h, n) for h, f in FAMILIES.items() for n in f.cases])
def test_results_are_right(
    header: str, name: str, order: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    family = FAMILIES[header]
    node = family.node(name, monkeypatch)
    arrays = arrays_of(node)
    results = family.played(node).run(node, arrays, order)
    for got, want in zip(results, node.op.reference(*arrays), strict=True):
        assert_close(got, want, family.terms(name))


@pytest.mark.parametrize("header", FAMILIES)
def test_results_have_the_same_bits_for_every_number_of_streams(
    header: str, clean_environment: pytest.MonkeyPatch
) -> None:
    family = FAMILIES[header]
    clean_environment.setenv("GRAPHC_CHECK", "race")
    family.take(clean_environment, family.cases[family.case][3])
    rng = np.random.default_rng(5)
    arrays = [rng.normal(size=s).astype(np.float32) for s in family.shapes(family.case)]
    programs = [family.program(family.case, "sim", n) for n in (1, 2, 4)]
    for program in programs:
        assert any(family.template in k.source for k in program.plan.kernels.values())
    first, *others = (program(*arrays) for program in programs)
    for other in others:
        np.testing.assert_array_equal(other, first)
    wanted = family.program(family.case, "reference")(*arrays)
    scale = float(np.abs(wanted).max())
    np.testing.assert_allclose(first, wanted, rtol=0, atol=2.0**-10 * scale)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("nvrtc", [True, False], ids=["NVRTC", "nvcc"])
@pytest.mark.parametrize(
    ("header", "name"), [(h, n) for h, f in FAMILIES.items() for n in f.compiled]
)
def test_kernels_compile_and_spill_nothing(
    header: str, name: str, nvrtc: bool, arch: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    family = FAMILIES[header]
    kernel = family.lowered(family.node(name, monkeypatch))
    monkeypatch.setenv("GRAPHC_CACHE_DIR", str(tmp_path))
    usage = usage_of(kernel, nvrtc, arch, tmp_path)
    assert not any(u.spilled for u in usage.values())


@pytest.mark.parametrize(
    ("header", "name"), [(h, n) for h, f in FAMILIES.items() for n in f.broken]
)
def test_a_broken_protocol_is_found(
    header: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    family = FAMILIES[header]
    node = family.node(OTHER_CASES.get((header, name), family.case), monkeypatch)
    played = family.played(node, family.broken[name])
    with pytest.raises(LaunchError):
        for order in ORDERS:
            played.run(node, arrays_of(node), order)


@pytest.mark.parametrize(("header", "name"), [(h, n) for h, f in FAMILIES.items() for n in f.wrong])
def test_wrong_sums_show(header: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    family = FAMILIES[header]
    node = family.node(family.case, monkeypatch)
    arrays = arrays_of(node)
    try:
        (got,) = family.played(node, family.wrong[name]).run(node, arrays)
    except LaunchError:
        return
    with pytest.raises(AssertionError):
        assert_close(got, node.op.reference(*arrays)[0], family.terms(family.case))


def test_what_is_infinite_stays_where_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Places behind the last tap are no numbers times zero."""
    node = SINGLE.node("first of LeNet", monkeypatch)
    arrays = [a.copy() for a in arrays_of(node)]
    image = next(a for a in arrays if a.shape == SINGLE.cases["first of LeNet"][0])
    image[0, 0, 10, 11] = np.inf
    (got,) = SINGLE.played(node).run(node, arrays)
    (want,) = node.op.reference(*arrays)
    np.testing.assert_array_equal(np.isinf(got), np.isinf(want))
    assert not np.isnan(got).any()
