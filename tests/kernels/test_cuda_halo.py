"""Convolutions whose blocks hold the pixels that they read: in the simulator against the reference,
with its race check, and compiled."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import graphc
from graphc.kernels.cuda.convolution.halo import HaloProductTile
from graphc.kernels.cuda.convolution.halo_gradient import Im2colTile
from graphc.kernels.cuda.convolution.staging import Image, ImageAxis, _met, met_share
from graphc.kernels.program.kernel import Kernel
from tests.support.cuda_tensor import EPS, arrays
from tests.tools import need_command

TILES: dict[str, list[Any]] = {
    "unpadded": [(5, 4, 24, 24), (20, 4, 3, 3), (50, 20, 5, 5), (24, 50, 3, 3)],
    "of images": [(17, 8, 10, 8), (16, 8, 3, 3), (32, 16, 3, 3), (24, 32, 3, 3)],
    "in parts": [(2, 8, 14, 22), (64, 8, 3, 3), (64, 64, 3, 3), (24, 64, 3, 3)],
    "dilated": [(5, 4, 12, 8), (36, 4, 3, 3), (40, 36, 3, 3), (24, 40, 3, 3)],
    "strided": [(2, 4, 34, 34), (32, 4, 3, 3), (40, 32, 3, 3), (24, 40, 3, 3)],
}
SETTINGS: dict[str, dict[str, Any]] = {
    "unpadded": {},
    "of images": {"padding": 1},
    "in parts": {"padding": 1},
    "dilated": {"padding": (0, 2), "dilation": (1, 2)},
    "strided": {"padding": 1, "stride": 2},
}


def gradients(name: str) -> Any:
    """The gradients of three convolutions, the second of the case's settings."""

    def loss(x: Any, *filters: Any) -> Any:
        y = graphc.max_pool2d(graphc.relu(graphc.conv2d(x, filters[0], padding=1)), 2)
        y = graphc.relu(graphc.conv2d(y, filters[1], **SETTINGS[name]))
        y = graphc.conv2d(y, filters[2], padding=1)
        return graphc.sum(y * y)

    return graphc.grad(loss, (0, 1, 2, 3))


def compiled(name: str, device: str, precision: str, streams: int = 1) -> Any:
    specs = [graphc.spec(shape) for shape in TILES[name]]
    options = {} if device == "reference" else {"streams": streams}
    return graphc.compile(gradients(name), *specs, device=device, precision=precision, **options)


def patched(program: Any) -> list[Kernel]:
    return [k for k in program.plan.kernels.values() if "HaloProduct" in k.source]


@pytest.fixture
def preferred(monkeypatch: pytest.MonkeyPatch) -> None:
    """Patches are taken wherever they can be, those with the most fragments of a warp first."""

    def cycles(tile: HaloProductTile, *_: Any) -> float:
        return 1 / (tile.held + tile.images + tile.parts + tile.taps)

    monkeypatch.setattr(HaloProductTile, "cycles", cycles)
    monkeypatch.setenv("GRAPHC_CHECK", "race")


@pytest.mark.parametrize(
    ("name", "precision"), [*((name, "tf32") for name in TILES), ("of images", "bfloat16")]
)
def test_convolutions_of_patches_are_right(preferred: None, name: str, precision: str):
    values = arrays(TILES[name], "float32")
    program = compiled(name, "sim", precision)
    assert len(patched(program)) >= 3
    wanted = compiled(name, "reference", precision)(*values)
    rounding = 2.0**-11 if precision == "tf32" else EPS["bfloat16"]
    for got, want in zip(program(*values), wanted, strict=True):
        # A number that lies between two others may be rounded to either: few of a sum are.
        scale = float(np.abs(want).max())
        np.testing.assert_allclose(got, want, rtol=0, atol=2 * rounding * scale)


@pytest.mark.parametrize("name", ["of images", "in parts"])
def test_blocks_share_the_channels(name: str, monkeypatch: pytest.MonkeyPatch):
    """A launch adds what the blocks of the parts leave."""

    def cycles(tile: HaloProductTile, *_: Any) -> float:
        return 1 / (tile.splits + tile.taps / 10)

    monkeypatch.setattr(HaloProductTile, "cycles", cycles)
    monkeypatch.setenv("GRAPHC_CHECK", "race")
    values = arrays(TILES[name], "float32")
    program = compiled(name, "sim", "tf32")
    cut = [k for k in patched(program) if "StorePartial" in k.source]
    assert cut and all("added in order" in k.choice for k in cut)
    wanted = compiled(name, "reference", "tf32")(*values)
    for got, want in zip(program(*values), wanted, strict=True):
        scale = float(np.abs(want).max())
        np.testing.assert_allclose(got, want, rtol=0, atol=2.0**-10 * scale)


def biased(device: str) -> Any:
    """A convolution of 22 channels and their bias, whose image lies with its channels last."""

    def both(x: Any, first: Any, bias: Any, second: Any) -> Any:
        y = graphc.relu(graphc.conv2d(x, first, padding=1) + graphc.reshape(bias, (22, 1, 1)))
        return graphc.conv2d(y, second, padding=1)

    specs = [graphc.spec(s) for s in BIASED]
    return graphc.compile(both, *specs, device=device, precision="tf32")


BIASED = ((3, 8, 10, 9), (22, 8, 3, 3), (22,), (8, 22, 3, 3))


@pytest.mark.parametrize("patches", [False, True])
def test_columns_that_are_no_whole_runs_leave_in_runs(patches: bool, request: Any):
    if patches:
        request.getfixturevalue("preferred")
    values = arrays(BIASED, "float32")
    program = biased("sim")
    (first,) = (k for k in program.plan.kernels.values() if "N = 22," in k.source)
    assert "int run = 4;" in first.source and ("HaloProduct" in first.source) == patches
    wanted = biased("reference")(*values)
    np.testing.assert_allclose(
        program(*values), wanted, rtol=0, atol=2.0**-10 * np.abs(wanted).max()
    )


def test_results_have_the_same_bits_for_every_number_of_streams(preferred: None):
    values = arrays(TILES["of images"], "float32")
    first, *others = (compiled("of images", "sim", "tf32", n)(*values) for n in (1, 2, 4))
    for other in others:
        for a, b in zip(first, other, strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_patches_compile_without_spills(preferred: None, arch: str):
    need_command("nvcc")
    from graphc.runtime.cuda.compile import compile_cuda

    kernels = [k for name in TILES for k in patched(compiled(name, "cuda", "tf32"))]
    for kernel in {k.canonical: k for k in kernels}.values():
        used = compile_cuda(kernel.source, kernel.name, arch).usage
        assert not any(u.spilled for u in used.values()), kernel.name


def test_fragments_that_meet_no_pixel_are_left_out():
    rows = ImageAxis(12, 5, 1, -1, 0, 8)
    assert _met(rows).sum() == 40
    image = Image(100, rows, rows, 50, (3328, 416, 52), 4)
    assert met_share(image, 16, 12, 144) == pytest.approx(40 * 40 / 144 / 25)
    assert met_share(image, 1, 12, 9) > 0.5


def test_a_contraction_without_taps_has_no_patch():
    x, w = graphc.spec((8, 32, 8, 8)), graphc.spec((32, 32, 1, 1))
    program = graphc.compile(
        lambda x, w: graphc.relu(graphc.conv2d(graphc.conv2d(x, w), w)),
        x,
        w,
        device="cuda",
        precision="tf32",
    )
    assert not patched(program)


def test_channels_that_nobody_wrote_are_not_read(clean_environment: pytest.MonkeyPatch) -> None:
    """Of pixels that take more room than their 22 channels."""
    clean_environment.setenv("GRAPHC_CHECK", "race")
    clean_environment.setattr(Im2colTile, "cycles", lambda *_: -1.0)

    def loss(first: Any, second: Any, x: Any) -> Any:
        y = graphc.conv2d(graphc.relu(graphc.conv2d(x, first, padding=(0, 1))), second)
        return graphc.sum(y * y)

    shapes = (22, 1, 3, 3), (8, 22, 3, 3), (2, 1, 10, 12)
    values = arrays(shapes, "float32")
    specs = [graphc.spec(shape) for shape in shapes]
    made = graphc.grad(loss, (0, 1))
    settings = {"precision": "tf32", "disable": "fuse_products"}
    program = graphc.compile(made, *specs, device="sim", **settings)
    assert any("Im2colGradient" in k.source for k in program.plan.kernels.values())
    wanted = graphc.compile(made, *specs, device="reference", precision="tf32")(*values)
    for got, want in zip(program(*values), wanted, strict=True):
        scale = float(np.abs(want).max())
        np.testing.assert_allclose(got, want, rtol=0, atol=2.0**-9 * scale)


@pytest.mark.parametrize(
    ("template", "x", "filters", "options", "taken"),
    [
        ("HaloGradient", (8, 64, 28, 28), (64, 64, 3, 3), {}, True),
        ("HaloGradient", (8, 64, 28, 28), (64, 64, 3, 3), {"precision": "float32"}, False),
        ("HaloGradient", (8, 64, 28, 28), (64, 64, 3, 3), {"precision": "bfloat16"}, False),
        ("HaloGradient", (8, 64, 28, 28), (64, 32, 3, 3), {"groups": 2}, False),
        ("Im2colGradient", (1000, 1, 28, 28), (20, 1, 5, 5), {}, True),
        ("Im2colGradient", (1000, 20, 12, 12), (20, 20, 5, 5), {}, True),
        ("Im2colGradient", (1000, 1, 27, 27), (20, 1, 5, 5), {}, False),
        ("Im2colGradient", (1000, 18, 12, 12), (20, 18, 5, 5), {}, False),
        ("Im2colGradient", (1000, 20, 12, 12), (20, 20, 5, 5), {"precision": "float32"}, False),
        ("Im2colGradient", (1000, 20, 12, 12), (20, 20, 5, 5), {"precision": "bfloat16"}, False),
        ("SingleChannelProduct", (100, 1, 28, 28), (20, 1, 5, 5), {}, True),
        ("SingleChannelProduct", (100, 2, 28, 28), (20, 2, 5, 5), {}, False),
        ("SingleChannelProduct", (100, 1, 28, 28), (20, 1, 5, 5), {"precision": "float32"}, False),
        ("SingleChannelProduct", (100, 1, 28, 28), (20, 1, 5, 5), {"precision": "bfloat16"}, False),
    ],
)
def test_which_kernels_a_convolution_has(
    template: str, x: Any, filters: Any, options: dict[str, Any], taken: bool
) -> None:
    """Of gradients, and of convolutions with another one behind them."""
    groups = options.get("groups", 1)

    def loss(w: Any, x: Any) -> Any:
        y = graphc.conv2d(x, w, padding=int(template == "HaloGradient"), groups=groups)
        return graphc.sum(y * y)

    def both(first: Any, x: Any, second: Any) -> Any:
        return graphc.conv2d(graphc.relu(graphc.conv2d(x, first)), second)

    shapes, made = [filters, x], graphc.grad(loss)
    if template == "SingleChannelProduct":
        shapes, made = [filters, x, (8, 20, 3, 3)], both
    specs, precision = [graphc.spec(shape) for shape in shapes], options.get("precision", "tf32")
    program = graphc.compile(made, *specs, device="cuda", precision=precision)
    assert any(template in k.source for k in program.plan.kernels.values()) == taken
