"""Gradients of filters whose blocks keep the sums of all taps: in the simulator against the
reference, with its race check and with mistakes in the template, and compiled."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphc
from graphc.ir import Node
from graphc.kernels.cuda.convolution import halo_gradient
from graphc.kernels.cuda.convolution.halo_gradient import HaloGradientTile
from graphc.kernels.lower import lower
from graphc.kernels.program.kernel import Kernel
from graphc.ops.fused import kernels_in
from graphc.runtime.sim.errors import LaunchError
from graphc.runtime.sim.native import ORDERS
from tests.kernels.cuda_harness import TARGET, arrays_of, assert_close, mistaken, usage_of
from tests.sim.playing import Played, simulator
from tests.tools import need_command

Case = tuple[tuple[int, ...], tuple[int, ...], dict[str, Any], tuple[int, int, int, int]]
DILATED = {"padding": (2, 4), "dilation": (2, 4)}
CASES: dict[str, Case] = {
    # x, filters, settings; rows and columns of a tile, lines of a step, parts of k
    "padded": ((3, 32, 9, 12), (40, 32, 3, 3), {"padding": 1}, (32, 32, 2, 4)),
    "pairs of lines": ((2, 64, 8, 12), (64, 64, 3, 3), {"padding": 1}, (64, 64, 2, 3)),
    "whole images": ((5, 64, 7, 7), (24, 64, 3, 3), {"padding": 1}, (16, 64, 7, 1)),
    "strided": ((2, 16, 13, 18), (72, 16, 3, 3), {"padding": 1, "stride": 2}, (64, 16, 3, 2)),
    "dilated": ((2, 32, 12, 16), (20, 32, 3, 3), DILATED, (32, 32, 1, 5)),
    "tails of channels": ((2, 20, 13, 16), (50, 20, 3, 3), {"padding": (1, 2)}, (64, 32, 3, 2)),
    "unpadded": ((2, 16, 12, 12), (56, 16, 5, 5), {}, (64, 16, 8, 1)),
    "narrow": ((2, 3, 22, 24), (64, 3, 7, 7), {"padding": 3, "stride": 2}, (64, 4, 1, 3)),
    "narrow, whole images": ((3, 4, 6, 8), (32, 4, 3, 3), {"padding": 1}, (64, 4, 6, 1)),
}  # fmt: skip


def program(name: str, device: str, streams: int = 1) -> Any:
    x, w, settings, _ = CASES[name]

    def loss(w: Any, x: Any) -> Any:
        y = graphc.conv2d(x, w, **settings)
        return graphc.sum(y * y)

    specs = graphc.spec(w), graphc.spec(x)
    options = {} if device == "reference" else {"streams": streams}
    return graphc.compile(graphc.grad(loss), *specs, device=device, precision="tf32", **options)


def gradient(name: str) -> Node:
    """The fused node of the gradient, with the layouts that it has in a program."""
    nodes = kernels_in(program(name, "cuda").graph)
    (node,) = (n for n in nodes if any(x.op.name == "conv2d_wgrad" for x in n.body.nodes))
    return node


def take(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The case's tile and parts of k, whatever they would cost."""
    m, n, lines, splits = CASES[name][3]

    def tiles(bare: HaloGradientTile) -> Iterator[HaloGradientTile]:
        fitted = halo_gradient._fitted(replace(bare, m=m, n=n, lines=lines))
        assert fitted is not None
        yield fitted

    monkeypatch.setattr(halo_gradient, "_tiles", tiles)
    monkeypatch.setattr(halo_gradient, "_splits", lambda *_: iter([(0.0, splits)]))


def lowered(node: Node) -> Kernel:
    kernel = lower(node, TARGET)
    assert "HaloGradient" in kernel.source
    return kernel


def terms(name: str) -> int:
    (n, _, h, w), *_ = CASES[name]
    return n * h * w


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", CASES)
def test_gradients_are_right(name: str, order: int, monkeypatch: pytest.MonkeyPatch) -> None:
    need_command("g++")
    node = gradient(name)
    take(name, monkeypatch)
    arrays = arrays_of(node)
    played = Played(simulator(check=True), [node], make=lowered)
    for got, want in zip(played.run(node, arrays, order), node.op.reference(*arrays), strict=True):
        assert_close(got, want, terms(name))


def test_results_have_the_same_bits_for_every_number_of_streams(
    clean_environment: pytest.MonkeyPatch,
) -> None:
    clean_environment.setenv("GRAPHC_CHECK", "race")
    take("padded", clean_environment)
    x, w, *_ = CASES["padded"]
    rng = np.random.default_rng(5)
    arrays = [rng.normal(size=shape).astype(np.float32) for shape in (w, x)]
    programs = [program("padded", "sim", n) for n in (1, 2, 4)]
    assert all("HaloGradient" in k.source for p in programs for k in wgrads(p))
    first, *others = (p(*arrays) for p in programs)
    for other in others:
        np.testing.assert_array_equal(other, first)
    wanted = program("padded", "reference")(*arrays)
    scale = float(np.abs(wanted).max())
    np.testing.assert_allclose(first, wanted, rtol=0, atol=2.0**-10 * scale)


def wgrads(compiled: Any) -> list[Kernel]:
    found = [k for k in compiled.plan.kernels.values() if "wgrad" in k.name]
    assert found
    return found


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("nvrtc", [True, False], ids=["NVRTC", "nvcc"])
@pytest.mark.parametrize("name", ["pairs of lines", "whole images", "narrow"])
def test_kernels_compile_and_spill_nothing(
    name: str, nvrtc: bool, arch: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = gradient(name)
    take(name, monkeypatch)
    kernel = lowered(node)
    monkeypatch.setenv("GRAPHC_CACHE_DIR", str(tmp_path))
    usage = usage_of(kernel, nvrtc, arch, tmp_path)
    assert not any(u.spilled for u in usage.values())


BROKEN = {
    "copies are not waited for": ("      copy_wait<0>();\n      round", "      round"),
    "nobody waits for a step": ("block.sync();  // step", "// step"),
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
}
WRONG = {
    "lines above the image count": ("exists = at >= 0 && at", "exists = at"),
    "taps are one pixel aside": ("+ Halo::left * pixel + place", "+ place"),
    "a part takes a step too few": ("least + (part < more)", "least + (part < more - 1)"),
    "nothing is rounded": ("near.at[i] = float_to_tf32(four.at[i])", "near.at[i] = four.at[i]"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_protocol_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    need_command("g++")
    case = "tails of channels" if "channels" in name else "padded"
    node = gradient(case)
    take(case, monkeypatch)
    played = Played(simulator(check=True), [node], mistaken("halo_gradient", BROKEN[name]), lowered)
    with pytest.raises(LaunchError):
        for order in ORDERS:
            played.run(node, arrays_of(node), order)


@pytest.mark.parametrize("name", WRONG)
def test_wrong_sums_show(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    need_command("g++")
    node = gradient("padded")
    take("padded", monkeypatch)
    arrays = arrays_of(node)
    changed = mistaken("halo_gradient", WRONG[name])
    played = Played(simulator(check=True), [node], changed, lowered)
    try:
        (got,) = played.run(node, arrays)
    except LaunchError:
        return
    with pytest.raises(AssertionError):
        assert_close(got, node.op.reference(*arrays)[0], terms("padded"))


def test_what_is_no_gradient_of_channels_last_in_tf32_has_no_such_tile() -> None:
    def taken(**options: Any) -> bool:
        def loss(w: Any, x: Any) -> Any:
            y = graphc.conv2d(x, w, padding=1, groups=options.get("groups", 1))
            return graphc.sum(y * y)

        filters = graphc.spec((64, 64 // options.get("groups", 1), 3, 3))
        compiled = graphc.compile(
            graphc.grad(loss),
            filters,
            graphc.spec((8, 64, 28, 28)),
            device="cuda",
            precision=options.get("precision", "tf32"),
        )
        return any("HaloGradient" in k.source for k in compiled.plan.kernels.values())

    assert taken()
    assert not taken(precision="float32")
    assert not taken(precision="bfloat16")
    assert not taken(groups=2)
