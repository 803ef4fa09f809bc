"""Gradients of filters whose rows are taps and channels together: in the simulator against the
reference, with its race check and with mistakes in the template, and compiled."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphc
from graphc.ir import Node
from graphc.kernels.cuda.convolution import halo_gradient, im2col_gradient
from graphc.kernels.cuda.convolution.halo_gradient import HaloGradientTile
from graphc.kernels.cuda.convolution.im2col_gradient import Im2colTile
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
    # x, filters, settings; rows, lines of a step, warps below each other, parts of k
    "second of LeNet": ((3, 20, 12, 12), (50, 20, 5, 5), {}, (512, 8, 8, 2)),
    "rows of two blocks": ((2, 20, 12, 12), (50, 20, 5, 5), {}, (256, 4, 8, 1)),
    "first of LeNet": ((2, 1, 28, 28), (20, 1, 5, 5), {}, (32, 8, 1, 5)),
    "shares": ((2, 12, 12, 12), (12, 12, 3, 3), {"padding": 1}, (64, 4, 2, 4)),
    "a plane, padded": ((3, 1, 12, 12), (16, 1, 3, 3), {"padding": 1}, (16, 2, 1, 4)),
    "four channels": ((2, 4, 9, 12), (24, 4, 3, 3), {"padding": (0, 3)}, (48, 1, 1, 1)),
    "strided": ((2, 16, 17, 18), (20, 16, 3, 3), {"padding": (1, 0), "stride": 2}, (160, 3, 2, 2)),
    "dilated": ((2, 8, 12, 12), (18, 8, 3, 3), DILATED, (80, 4, 1, 1)),
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
    n, lines, down, splits = CASES[name][3]

    def tiles(bare: HaloGradientTile) -> Iterator[Im2colTile]:
        sizes = bare.x, bare.y, bare.outputs, bare.columns, bare.rows
        found = [*im2col_gradient._fitted(Im2colTile(*sizes, bare.rows, n, lines, 1, down))]
        assert found
        yield from found

    monkeypatch.setattr(halo_gradient, "_tiles", lambda bare: iter(()))
    monkeypatch.setattr(im2col_gradient, "_tiles", tiles)
    monkeypatch.setattr(im2col_gradient, "_splits", lambda *_: iter([(0.0, splits)]))


def lowered(node: Node) -> Kernel:
    kernel = lower(node, TARGET)
    assert "Im2colGradient" in kernel.source
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
    take("shares", clean_environment)
    x, w, *_ = CASES["shares"]
    rng = np.random.default_rng(5)
    arrays = [rng.normal(size=shape).astype(np.float32) for shape in (w, x)]
    first, *others = (program("shares", "sim", n)(*arrays) for n in (1, 2, 4))
    for other in others:
        np.testing.assert_array_equal(other, first)
    wanted = program("shares", "reference")(*arrays)
    scale = float(np.abs(wanted).max())
    np.testing.assert_allclose(first, wanted, rtol=0, atol=2.0**-10 * scale)


def test_channels_that_nobody_wrote_are_not_read(clean_environment: pytest.MonkeyPatch) -> None:
    """Of pixels that take more room than their 22 channels."""
    clean_environment.setenv("GRAPHC_CHECK", "race")
    clean_environment.setattr(im2col_gradient, "_cycles", lambda *_: -1.0)

    def loss(first: Any, second: Any, x: Any) -> Any:
        y = graphc.conv2d(graphc.relu(graphc.conv2d(x, first, padding=(0, 1))), second)
        return graphc.sum(y * y)

    shapes = (22, 1, 3, 3), (8, 22, 3, 3), (2, 1, 10, 12)
    rng = np.random.default_rng(3)
    arrays = [rng.normal(size=shape).astype(np.float32) for shape in shapes]
    specs = [graphc.spec(shape) for shape in shapes]
    made = graphc.grad(loss, (0, 1))
    settings = {"precision": "tf32", "disable": "fuse_products"}
    program = graphc.compile(made, *specs, device="sim", **settings)
    assert any("Im2colGradient" in k.source for k in program.plan.kernels.values())
    wanted = graphc.compile(made, *specs, device="reference", precision="tf32")(*arrays)
    for got, want in zip(program(*arrays), wanted, strict=True):
        scale = float(np.abs(want).max())
        np.testing.assert_allclose(got, want, rtol=0, atol=2.0**-9 * scale)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("nvrtc", [True, False], ids=["NVRTC", "nvcc"])
@pytest.mark.parametrize("name", ["second of LeNet", "first of LeNet", "shares"])
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
}
WRONG = {
    "taps are one pixel aside": ("beside + Halo::left * pixel +", "beside +"),
    "a part takes a step too few": ("least + (part < more)", "least + (part < more - 1)"),
    "x is not rounded": ("each_x(step, [&](int at, int, bool) { nearest(at); });", ""),
    "a share is left out": ("s = 1; s < shares", "s = 2; s < shares"),
    "what is beside a line is not cleared": ("shared[y / reach", "if (y < 0) shared[y / reach"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_protocol_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    need_command("g++")
    node = gradient("shares")
    take("shares", monkeypatch)
    played = Played(
        simulator(check=True), [node], mistaken("im2col_gradient", BROKEN[name]), lowered
    )
    with pytest.raises(LaunchError):
        for order in ORDERS:
            played.run(node, arrays_of(node), order)


@pytest.mark.parametrize("name", WRONG)
def test_wrong_sums_show(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    need_command("g++")
    node = gradient("shares")
    take("shares", monkeypatch)
    arrays = arrays_of(node)
    changed = mistaken("im2col_gradient", WRONG[name])
    played = Played(simulator(check=True), [node], changed, lowered)
    try:
        (got,) = played.run(node, arrays)
    except LaunchError:
        return
    with pytest.raises(AssertionError):
        assert_close(got, node.op.reference(*arrays)[0], terms("shares"))


def test_filters_of_few_channels_are_taken_so() -> None:
    def taken(channels: int, size: int, precision: str = "tf32") -> bool:
        def loss(w: Any, x: Any) -> Any:
            y = graphc.conv2d(x, w)
            return graphc.sum(y * y)

        compiled = graphc.compile(
            graphc.grad(loss),
            graphc.spec((20, channels, 5, 5)),
            graphc.spec((1000, channels, size, size)),
            device="cuda",
            precision=precision,
        )
        return any("Im2colGradient" in k.source for k in compiled.plan.kernels.values())

    assert taken(1, 28) and taken(20, 12)
    assert not taken(1, 27) and not taken(18, 12)
    assert not taken(20, 12, "float32") and not taken(20, 12, "bfloat16")
