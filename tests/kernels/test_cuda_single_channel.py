"""Convolutions of images of one channel whose taps are the k of products: in the simulator against
the reference, with its race check and with mistakes in the template, and compiled."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphc
from graphc.ir import Node
from graphc.kernels.cuda.convolution import single_channel
from graphc.kernels.cuda.convolution.halo_tile import Halo
from graphc.kernels.cuda.convolution.single_channel import SingleChannelTile
from graphc.kernels.lower import lower
from graphc.kernels.program.kernel import Kernel
from graphc.ops.fused import kernels_in
from graphc.runtime.sim.errors import LaunchError
from graphc.runtime.sim.native import ORDERS
from tests.kernels.cuda_harness import TARGET, arrays_of, assert_close, mistaken, usage_of
from tests.sim.playing import Played, simulator
from tests.tools import need_command

Case = tuple[tuple[int, ...], tuple[int, ...], dict[str, Any], int, int]
CASES: dict[str, Case] = {
    # x, filters, settings; lines of a block, its warps
    "first of LeNet": ((2, 1, 28, 28), (20, 1, 5, 5), {}, 24, 3),
    "few lines": ((2, 1, 28, 28), (20, 1, 5, 5), {}, 8, 4),
    "padded": ((3, 1, 12, 14), (16, 1, 3, 3), {"padding": 1}, 6, 3),
    "no whole runs": ((2, 1, 13, 15), (10, 1, 3, 5), {"padding": (0, 2)}, 11, 6),
    "strided": ((2, 1, 18, 33), (24, 1, 4, 4), {"padding": (1, 0), "stride": 2}, 9, 4),
    "dilated": ((2, 1, 14, 16), (8, 1, 3, 3), {"padding": 1, "dilation": 2}, 4, 3),
}


def program(name: str, device: str, streams: int = 1) -> Any:
    x, w, settings, *_ = CASES[name]

    def both(x: Any, first: Any, bias: Any, second: Any) -> Any:
        y = graphc.conv2d(x, first, **settings) + graphc.reshape(bias, (w[0], 1, 1))
        return graphc.conv2d(graphc.relu(y), second)

    specs = [graphc.spec(each) for each in (x, w, w[:1], (8, w[0], 3, 3))]
    options = {} if device == "reference" else {"streams": streams}
    return graphc.compile(both, *specs, device=device, precision="tf32", **options)


def first(name: str) -> Node:
    """The fused node of the first convolution, with the layouts that it has in a program."""
    nodes = kernels_in(program(name, "cuda").graph)
    return next(n for n in nodes if any(x.op.name == "conv2d" for x in n.body.nodes))


def take(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The case's tile, whatever it would cost."""
    (lines, warps), tiles = CASES[name][3:], single_channel._tiles

    def taken(patch: Halo, n: int) -> Iterator[SingleChannelTile]:
        yield next(t for t in tiles(patch, n) if t.lines == lines and t.warps == warps)

    monkeypatch.setattr(single_channel, "_tiles", taken)
    monkeypatch.setattr(single_channel, "_cycles", lambda *_: 0.0)


def lowered(node: Node) -> Kernel:
    kernel = lower(node, TARGET)
    assert "SingleChannelProduct" in kernel.source
    return kernel


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", CASES)
def test_convolutions_are_right(name: str, order: int, monkeypatch: pytest.MonkeyPatch) -> None:
    need_command("g++")
    node = first(name)
    take(name, monkeypatch)
    arrays = arrays_of(node)
    played = Played(simulator(check=True), [node], make=lowered)
    for got, want in zip(played.run(node, arrays, order), node.op.reference(*arrays), strict=True):
        assert_close(got, want, 25)


def test_what_is_infinite_stays_where_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Places behind the last tap are no numbers times zero."""
    need_command("g++")
    node = first("first of LeNet")
    take("first of LeNet", monkeypatch)
    arrays = [a.copy() for a in arrays_of(node)]
    image = next(a for a in arrays if a.shape == CASES["first of LeNet"][0])
    image[0, 0, 10, 11] = np.inf
    (got,) = Played(simulator(check=True), [node], make=lowered).run(node, arrays)
    (want,) = node.op.reference(*arrays)
    np.testing.assert_array_equal(np.isinf(got), np.isinf(want))
    assert not np.isnan(got).any()


def test_results_have_the_same_bits_for_every_number_of_streams(
    clean_environment: pytest.MonkeyPatch,
) -> None:
    clean_environment.setenv("GRAPHC_CHECK", "race")
    take("padded", clean_environment)
    rng = np.random.default_rng(5)
    x, w, *_ = CASES["padded"]
    shapes = (x, w, w[:1], (8, w[0], 3, 3))
    arrays = [rng.normal(size=shape).astype(np.float32) for shape in shapes]
    one, *others = (program("padded", "sim", n)(*arrays) for n in (1, 2, 4))
    for other in others:
        np.testing.assert_array_equal(other, one)
    wanted = program("padded", "reference")(*arrays)
    np.testing.assert_allclose(one, wanted, rtol=0, atol=2.0**-10 * float(np.abs(wanted).max()))


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("nvrtc", [True, False], ids=["NVRTC", "nvcc"])
@pytest.mark.parametrize("name", ["first of LeNet", "no whole runs"])
def test_kernels_compile_and_spill_nothing(
    name: str, nvrtc: bool, arch: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = first(name)
    take(name, monkeypatch)
    kernel = lowered(node)
    monkeypatch.setenv("GRAPHC_CACHE_DIR", str(tmp_path))
    usage = usage_of(kernel, nvrtc, arch, tmp_path)
    assert not any(u.spilled for u in usage.values())


BROKEN = {
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
}
WRONG = {
    "taps are one pixel aside": ("shared + beside + Halo::left", "shared + beside"),
    "x is not rounded": ("run.at[j] = float_to_tf32(run.at[j])", "run.at[j] += 0"),
    "filters are not rounded": ("some.at[j] = float_to_tf32(some.at[j])", "some.at[j] += 0"),
    "filters are read at another tap": ("column * taps + tap]", "column * taps]"),
    "what is beside a line is not cleared": ("i < reach * gap", "i < 0 * gap"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_protocol_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    need_command("g++")
    case = "padded" if "behind" in name else "few lines"
    node = first(case)
    take(case, monkeypatch)
    played = Played(
        simulator(check=True), [node], mistaken("single_channel", BROKEN[name]), lowered
    )
    with pytest.raises(LaunchError):
        for order in ORDERS:
            played.run(node, arrays_of(node), order)


@pytest.mark.parametrize("name", WRONG)
def test_wrong_sums_show(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    need_command("g++")
    node = first("padded")
    take("padded", monkeypatch)
    arrays = arrays_of(node)
    played = Played(simulator(check=True), [node], mistaken("single_channel", WRONG[name]), lowered)
    try:
        (got,) = played.run(node, arrays)
    except LaunchError:
        return
    with pytest.raises(AssertionError):
        assert_close(got, node.op.reference(*arrays)[0], 9)


def test_images_of_one_channel_are_taken_so() -> None:
    def taken(channels: int, precision: str = "tf32") -> bool:
        def both(x: Any, first: Any, second: Any) -> Any:
            return graphc.conv2d(graphc.relu(graphc.conv2d(x, first)), second)

        specs = [graphc.spec((100, channels, 28, 28)), graphc.spec((20, channels, 5, 5))]
        last = graphc.spec((8, 20, 3, 3))
        made = graphc.compile(both, *specs, last, device="cuda", precision=precision)
        return any("SingleChannelProduct" in k.source for k in made.plan.kernels.values())

    assert taken(1)
    assert not taken(2) and not taken(1, "float32") and not taken(1, "bfloat16")
