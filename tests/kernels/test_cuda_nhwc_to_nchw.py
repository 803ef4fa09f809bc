"""Poolings that read images with their channels last and store them row-major, by way of shared
memory: in the simulator against the reference, with mistakes in the template, and compiled."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphc
from graphc.ir import Node
from graphc.kernels.lower import lower
from graphc.kernels.program.kernel import Kernel
from graphc.ops.fused import kernels_in
from graphc.runtime.cuda.compile import compile_cuda
from graphc.runtime.sim.errors import LaunchError
from graphc.runtime.sim.native import ORDERS
from tests.kernels.cuda_harness import TARGET, arrays_of, assert_close, mistaken
from tests.sim.playing import Played, simulator
from tests.tools import need_command, need_nvrtc

CHANNELS = (50, 6, 10, 3, 16)
WINDOWS: dict[str, dict[str, Any]] = {
    "tiles": {"kernel_size": 2},
    "overlapping": {"kernel_size": 3, "stride": 2, "padding": 1},
}


def network(window: str) -> Any:
    def loss(filters: Any, bias: Any, weight: Any, x: Any) -> Any:
        y = graphc.conv2d(x, filters, padding=1)
        y = graphc.relu(y + graphc.reshape(bias, (bias.shape[0], 1, 1)))
        y = graphc.max_pool2d(y, **WINDOWS[window])
        return graphc.sum(graphc.square(graphc.reshape(y, (y.shape[0], -1)) @ weight))

    return graphc.grad(loss, (0, 1, 2))


def arrays_for(channels: int) -> list[Any]:
    """So few pixels, four by four behind the pooling, that all three windows' sums are small."""
    random = np.random.default_rng(channels)
    shapes = (channels, 4, 3, 3), (channels,), (channels * 16, 8), (3, 4, 8, 8)
    scales = 0.2, 0.5, 0.05, 1.0
    pairs = zip(shapes, scales, strict=True)
    return [(random.normal(size=s) * scale).astype(np.float32) for s, scale in pairs]


def compiled(window: str, channels: int, device: str, **options: Any) -> Any:
    specs = [graphc.spec(a.shape) for a in arrays_for(channels)]
    return graphc.compile(network(window), *specs, device=device, **options)


def node_of(window: str, channels: int) -> Node:
    """The fused pooling, with the layouts that it has in a program."""
    nodes = kernels_in(compiled(window, channels, "cuda").graph)
    return next(n for n in nodes if n.body.nodes[0].op.name == "max_pool2d")


def lowered(node: Node) -> Kernel:
    return lower(node, TARGET)


@pytest.mark.parametrize("precision", ["float32", "tf32", "bfloat16"])
@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("channels", CHANNELS)
def test_gradients_are_those_of_the_reference(
    channels: int, window: str, precision: str, clean_environment: pytest.MonkeyPatch
) -> None:
    need_command("g++", "clang++")
    clean_environment.setenv("GRAPHC_CHECK", "race")
    program = compiled(window, channels, "sim", precision=precision)
    turned = [k for k in program.plan.kernels.values() if "store_turned" in k.source]
    assert len(turned) == (channels > 3)
    arrays = arrays_for(channels)
    wanted = compiled(window, channels, "reference", precision=precision)(*arrays)
    digits = {"float32": 18, "tf32": 9, "bfloat16": 6}[precision]
    for got, want in zip(program(*arrays), wanted, strict=True):
        scale = float(np.abs(want).max())
        np.testing.assert_allclose(got, want, rtol=0, atol=2.0**-digits * scale)


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("channels", [50, 16])
def test_elements_are_those_of_numpy(channels: int, window: str) -> None:
    need_command("g++", "clang++")
    node = node_of(window, channels)
    played, arrays = Played(simulator(check=True), [node]), arrays_of(node)
    for order in ORDERS:
        got = played.run(node, arrays, order)
        for mine, want in zip(got, node.op.reference(*arrays), strict=True):
            assert_close(mine, want, 1)


WRONG = {
    "lines of pixels are dense": ("waiting[i + j + (i + j) / Pixels]", "waiting[i + j]"),
    "runs begin one channel aside": ("run(pixel, channel);", "run(pixel, channel + 1);"),
    "what is no whole run is left out": ("j < Channels % Length", "j < Channels % Length - 1"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_mistake_shows(name: str) -> None:
    need_command("g++")
    node = node_of("tiles", 50)
    arrays = arrays_of(node)
    played = Played(simulator(check=True), [node], mistaken("pointwise", WRONG[name]), lowered)
    try:
        got = played.run(node, arrays)
    except LaunchError:
        return
    with pytest.raises(AssertionError):
        for mine, want in zip(got, node.op.reference(*arrays), strict=True):
            assert_close(mine, want, 1)


def test_a_missing_barrier_is_found() -> None:
    need_command("g++")
    node = node_of("tiles", 50)

    def broken(text: str) -> str:
        assert "  block.sync();\n" in text
        return text.replace("  block.sync();\n", "", 1)

    played = Played(simulator(check=True), [node], broken, lowered)
    with pytest.raises(LaunchError):
        for order in ORDERS:
            played.run(node, arrays_of(node), order)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("window", WINDOWS)
def test_kernels_spill_nothing(
    window: str, arch: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need_nvrtc()
    monkeypatch.setenv("GRAPHC_CACHE_DIR", str(tmp_path))
    kernel = lowered(node_of(window, 50))
    usage = compile_cuda(kernel.source, kernel.name, arch).usage
    assert not any(u.spilled for u in usage.values())
