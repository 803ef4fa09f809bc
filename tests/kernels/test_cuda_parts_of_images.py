"""Convolutions and gradients of parts of images, and behind images that are padded: kernels whose
blocks hold pixels take whole images, as what lies behind a part's borders is no zero."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import graphc
from graphc.kernels.cuda.convolution.staging import HaloTile
from tests.support.cuda_tensor import arrays
from tests.tools import need_command

CROPS = {
    "height": (..., slice(None, -2), slice(None)),
    "width": (..., slice(None, -4)),
    "images": (slice(None, -1),),
    "channels": (slice(None), slice(None, -4)),
}
SHAPES: dict[str, tuple[tuple[int, ...], int]] = {
    # an image with what is cropped, channels of the second filter
    "planes": ((3, 1, 14, 16), 20),
    "few": ((3, 8, 14, 16), 20),
    "many": ((3, 32, 14, 16), 32),
}


@pytest.fixture(autouse=True)
def held(clean_environment: pytest.MonkeyPatch) -> None:
    """Blocks hold pixels wherever they can."""
    need_command("g++", "clang++")
    clean_environment.setenv("GRAPHC_CHECK", "race")
    clean_environment.setattr(HaloTile, "worth", lambda *_: 1e9)


def assert_right(function: Any, shapes: list[tuple[int, ...]]) -> None:
    """The gradients of all arguments but the first are those of the reference."""

    def loss(*values: Any) -> Any:
        y = function(*values)
        return graphc.sum(y * y)

    gradients = graphc.grad(loss, tuple(range(1, len(shapes))))
    specs, values = [graphc.spec(each) for each in shapes], arrays(shapes, "float32")
    here, there = (
        graphc.compile(gradients, *specs, device=device, precision="tf32")(*values)
        for device in ("sim", "reference")
    )
    for got, want in zip(here, there, strict=True):
        scale = float(np.abs(want).max())
        np.testing.assert_allclose(got, want, rtol=0, atol=2.0**-9 * scale)


@pytest.mark.parametrize(
    ("images", "crop"),
    [(i, crop) for i in SHAPES for crop in CROPS if (i, crop) != ("planes", "channels")],
)
def test_convolutions_of_parts_are_right(images: str, crop: str) -> None:
    (n, c, h, w), channels = SHAPES[images]
    kept = c - 4 if crop == "channels" else c

    def both(x: Any, first: Any, second: Any) -> Any:
        y = graphc.conv2d(x[CROPS[crop]], first, padding=1)
        return graphc.conv2d(graphc.relu(y)[CROPS["height"]], second, padding=1)

    filters = [(channels, kept, 3, 3), (24, channels, 3, 3)]
    assert_right(both, [(n, c, h, w), *filters])


@pytest.mark.parametrize("padded", ["height", "width", "images", "channels"])
@pytest.mark.parametrize("images", ["few", "many"])
def test_gradients_behind_padded_images_are_right(images: str, padded: str) -> None:
    """Of which the gradients of the first filters read a part."""
    shape, channels = SHAPES[images]
    axis = ("images", "channels", "height", "width").index(padded)
    widths = tuple((0, 4 * (d == axis)) for d in range(4))

    def both(x: Any, first: Any, second: Any) -> Any:
        y = graphc.pad(graphc.conv2d(x, first, padding=1), widths)
        return graphc.conv2d(y, second, padding=1)

    more = channels + 4 * (padded == "channels")
    assert_right(both, [shape, (channels, shape[1], 3, 3), (16, more, 3, 3)])
