"""Images of other sizes, and read at places that tensors say.

What an axis of a resized image takes from the one before is a known matrix, computed here.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphc import functions as f
from graphc.ir import Array
from graphc.onnx.operators.rules import (
    UnsupportedError,
    along,
    axes_from,
    integers,
    is_float,
    operator,
    wide,
)
from graphc.trace import Tensor


@dataclass(frozen=True)
class _Style:
    """How Resize goes from a place of the result to elements: its attributes."""

    mode: str
    coordinates: str
    nearest: str
    sharpness: float
    antialias: bool
    exclude_outside: bool


def _cubic(distance: Array, a: float) -> Array:
    d = np.abs(distance)
    inner = ((a + 2) * d - (a + 3)) * d * d + 1
    outer = ((d - 5) * d + 8) * d * a - 4 * a
    return np.where(d <= 1, inner, np.where(d < 2, outer, 0.0))


def _sources(
    count: int, extent: int, scale: float, coordinates: str, roi: Sequence[float]
) -> Array:
    """Where each of `count` places lies in an axis of `extent` elements."""
    x = np.arange(count, dtype=np.float64)
    width = scale * extent
    if coordinates == "align_corners":
        return x * ((extent - 1) / (width - 1)) if width != 1 else x * 0
    if coordinates == "asymmetric":
        return x / scale
    if coordinates == "tf_crop_and_resize":
        first, last = roi
        step = (last - first) * (extent - 1)
        inner = x * step / (width - 1) if width != 1 else x * 0 + step / 2
        return inner + first * (extent - 1)
    if coordinates == "pytorch_half_pixel" and width == 1:
        return x * 0 - 0.5
    centre = (x + 0.5) / scale - 0.5
    if coordinates == "half_pixel_symmetric":
        return centre + extent / 2 * (1 - count / width)
    return centre


def _weights(
    count: int, extent: int, scale: float, style: _Style, roi: Sequence[float]
) -> tuple[Array, Array]:
    """([count, extent]: what each place takes of each element; whether it lies outside)."""
    source = _sources(count, extent, scale, style.coordinates, roi)
    base = np.ceil(source) - 1
    ratio = source - base  # above 0, at most 1
    if style.mode == "nearest":
        right = {
            "round_prefer_floor": ratio > 0.5,
            "round_prefer_ceil": ratio >= 0.5,
            "floor": ratio >= 1,
            "ceil": ratio > 0,
        }[style.nearest]
        taps = [(0, ~right * 1.0), (1, right * 1.0)]
    else:
        narrow = min(scale, 1.0) if style.antialias else 1.0
        reach = 2 if style.mode == "cubic" else 1
        start = math.floor(-reach / narrow) + 1
        numbers = range(start, 2 - start)
        shares = [
            _cubic((i - ratio) * narrow, style.sharpness)
            if style.mode == "cubic"
            else np.clip(1 - np.abs((i - ratio) * narrow), 0, 1)
            for i in numbers
        ]
        total = sum(shares)
        taps = [(i, share / total) for i, share in zip(numbers, shares, strict=True)]
    matrix = np.zeros((count, extent))
    for i, share in taps:
        place = base + i
        if style.exclude_outside:
            share = np.where((place >= 0) & (place < extent), share, 0.0)
        inside = np.clip(place, 0, extent - 1).astype(np.int64)
        np.add.at(matrix, (np.arange(count), inside), share)
    if style.exclude_outside:
        matrix /= matrix.sum(1, keepdims=True)
    beyond = (source < 0) | (source > extent - 1)
    return matrix, beyond & (style.coordinates == "tf_crop_and_resize")


@operator("Resize", static="roi scales sizes")
def resize(
    x: Tensor,
    roi: Any = None,
    scales: Any = None,
    sizes: Any = None,
    antialias: int = 0,
    axes: Any = None,
    coordinate_transformation_mode: str = "half_pixel",
    cubic_coeff_a: float = -0.75,
    exclude_outside: int = 0,
    extrapolation_value: float = 0.0,
    keep_aspect_ratio_policy: str = "stretch",
    mode: str = "nearest",
    nearest_mode: str = "round_prefer_floor",
    opset: int = 11,
) -> Tensor:
    if opset < 11:  # the scales were the second input
        roi, scales = None, roi
        coordinate_transformation_mode, nearest_mode = "asymmetric", "floor"
    style = _Style(
        mode, coordinate_transformation_mode, nearest_mode, cubic_coeff_a, bool(antialias),
        bool(exclude_outside),
    )  # fmt: skip
    places = axes_from(axes, x.ndim)
    places = list(range(x.ndim)) if places is None else places
    factors, counts = _sizes(x, places, scales, sizes, keep_aspect_ratio_policy)
    crops = np.asarray([] if roi is None else roi, np.float64).reshape(-1)
    y = wide(x) if is_float(x) or mode == "nearest" else f.astype(x, "f32")
    for i, (axis, scale, count) in enumerate(zip(places, factors, counts, strict=True)):
        ends = (crops[i], crops[i + len(places)]) if crops.size else (0.0, 1.0)
        if scale == 1 and count == y.shape[axis] and ends == (0.0, 1.0):
            continue
        matrix, beyond = _weights(count, y.shape[axis], scale, style, ends)
        if mode == "nearest":
            y = f.take(y, f.as_tensor(matrix.argmax(1).astype(np.int64)), axis)
        else:
            y = along(matrix, y, axis)
        if beyond.any():
            shape = [1] * y.ndim
            shape[axis] = count
            outside = f.as_tensor(beyond.reshape(shape))
            y = f.where(outside, f.as_tensor(extrapolation_value, y.dtype), y)
    return f.astype(y, x.dtype)


def _sizes(
    x: Tensor, places: Sequence[int], scales: Any, sizes: Any, policy: str
) -> tuple[list[float], list[int]]:
    """The factor of each axis, and its new extent."""
    own = [x.shape[a] for a in places]
    if sizes is None or not np.size(sizes):
        factors = np.asarray(scales, np.float32).reshape(-1).tolist()
        counts = [int(np.float32(n) * np.float32(s)) for n, s in zip(own, factors, strict=True)]
    else:
        counts = integers(sizes)
        factors = [m / n for m, n in zip(counts, own, strict=True)]
        if policy != "stretch":
            best = min(factors) if policy == "not_larger" else max(factors)
            factors = [best] * len(own)
            counts = [int(best * n + 0.5) for n in own]
    if min(counts, default=1) < 1:
        raise UnsupportedError(f"Resize: extents of {counts} are not offered")
    return factors, counts


@operator("Upsample", static="scales")
def upsample(x: Tensor, scales: Any = None, mode: str = "nearest") -> Tensor:
    return resize(
        x,
        scales=scales,
        mode=mode,
        coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
    )


@operator("GridSample")
def grid_sample(
    x: Tensor,
    grid: Tensor,
    align_corners: int = 0,
    mode: str = "linear",
    padding_mode: str = "zeros",
) -> Tensor:
    """Sample images of any rank at the places on the grid's last axis.

    Places count from the last axis of the image; -1 and 1 are its edges.
    """
    extents = x.shape[2:]
    places = [
        _unscaled(f.select(grid, -1, len(extents) - 1 - axis), extent, bool(align_corners))
        for axis, extent in enumerate(extents)
    ]
    taps = [_taps(place, mode.removeprefix("bi")) for place in places]

    def at(place: Tensor, extent: int) -> Tensor:
        """The place moved inside; -1 where there are zeros."""
        if padding_mode == "zeros":
            inside = f.logical_and(f.greater_equal(place, 0), f.less(place, extent))
            return f.where(inside, place, -1.0)
        if padding_mode == "border":
            return f.clip(place, 0.0, extent - 1.0)
        if align_corners:
            turn = max(2 * (extent - 1), 1)
            place = f.remainder(f.abs(place), turn)
            return f.minimum(place, f.subtract(turn, place)) if extent > 1 else place
        place = f.remainder(place, 2 * extent)
        return f.minimum(place, f.subtract(2 * extent - 1, place))

    inside: list[Taps] = [
        [(at(place, extent), share) for place, share in along_axis]
        for along_axis, extent in zip(taps, extents, strict=True)
    ]
    return _weighed(x, inside)


Taps = list[tuple[Tensor, Tensor | None]]
"""Places along an axis, and how much of each is taken; None is all."""


def _unscaled(place: Tensor, extent: int, align_corners: bool) -> Tensor:
    """From -1 to 1 to the number of an element."""
    if align_corners:
        return f.multiply(f.add(place, 1), (extent - 1) / 2)
    return f.subtract(f.multiply(f.add(place, 1), extent / 2), 0.5)


def _taps(place: Tensor, mode: str) -> Taps:
    if mode == "nearest":
        return [(f.round(place), None)]
    base = f.floor(place)
    ratio = f.subtract(place, base)
    if mode == "linear":
        return [(base, f.subtract(1, ratio)), (f.add(base, 1), ratio)]
    a = -0.75

    def inner(d: Tensor) -> Tensor:
        return f.add(f.multiply(f.multiply(f.subtract(f.multiply(d, a + 2), a + 3), d), d), 1)

    def outer(d: Tensor) -> Tensor:
        slope = f.add(f.multiply(f.subtract(d, 5), d), 8)
        return f.subtract(f.multiply(f.multiply(slope, d), a), 4 * a)

    other = f.subtract(1, ratio)
    return [
        (f.subtract(base, 1), outer(f.add(ratio, 1))),
        (base, inner(ratio)),
        (f.add(base, 1), inner(other)),
        (f.add(base, 2), outer(f.add(other, 1))),
    ]


def _weighed(x: Tensor, taps: Sequence[Taps]) -> Tensor:
    """[n, c, ...]: the sum over the taps of all axes, whose places are [n, ...]; -1 gives zeros."""
    n, c, *extents = x.shape
    count = math.prod(extents)
    pixels = f.reshape(f.moveaxis(x, 1, -1), (n * count, c))
    total: Tensor | None = None
    for chosen in itertools.product(*taps):
        number: Any = 0
        inside: Any = None
        share: Tensor | None = None
        for (place, part), extent in zip(chosen, extents, strict=True):
            whole = f.astype(place, "i64")
            number = f.add(f.multiply(number, extent), whole)
            there = f.greater_equal(whole, 0)
            inside = there if inside is None else f.logical_and(inside, there)
            share = part if share is None or part is None else f.multiply(share, part)
        samples = np.arange(n).reshape(n, *[1] * (number.ndim - 1)) * count
        found = f.take(pixels, f.where(inside, f.add(number, samples), -1), 0)
        found = found if share is None else f.multiply(found, f.expand_dims(share, -1))
        total = found if total is None else f.add(total, found)
    assert total is not None
    return f.astype(f.moveaxis(total, -1, 1), x.dtype)


@operator("RoiAlign")
def roi_align(
    x: Tensor,
    rois: Tensor,
    batch_indices: Tensor,
    coordinate_transformation_mode: str = "half_pixel",
    mode: str = "avg",
    output_height: int = 1,
    output_width: int = 1,
    sampling_ratio: int = 0,
    spatial_scale: float = 1.0,
) -> Tensor:
    """[rois, c, h, w]: means, or the largest, of samples in each part of each region."""
    if not sampling_ratio:
        raise UnsupportedError(
            "RoiAlign: how many samples there are depends on values: sampling_ratio=0"
        )
    half = 0.5 if coordinate_transformation_mode == "half_pixel" else 0.0
    corners = f.subtract(f.multiply(rois, spatial_scale), half)
    lines: list[tuple[Tensor, Tensor]] = []
    counts = (output_height, output_width)
    for axis, (count, extent) in enumerate(zip(counts, x.shape[2:], strict=True)):
        first, last = f.select(corners, 1, 1 - axis), f.select(corners, 1, 3 - axis)
        size = f.subtract(last, first)
        size = size if half else f.maximum(size, 1.0)
        steps = (np.arange(count * sampling_ratio) + 0.5) / (count * sampling_ratio)
        place = f.add(
            f.expand_dims(first, 1), f.multiply(f.expand_dims(size, 1), f.as_tensor(steps, x.dtype))
        )
        inside = f.logical_and(f.greater_equal(place, -1), f.less_equal(place, extent))
        lines.append((f.clip(place, 0.0, extent - 1.0), inside))
    images = f.take(x, batch_indices, 0)
    (row, row_inside), (column, column_inside) = lines
    rows = [(f.expand_dims(p, 2), _share(s, 2)) for p, s in _clipped_taps(row, x.shape[2])]
    columns = [(f.expand_dims(p, 1), _share(s, 1)) for p, s in _clipped_taps(column, x.shape[3])]
    inside = f.logical_and(f.expand_dims(row_inside, 2), f.expand_dims(column_inside, 1))
    parts = [
        f.multiply(_weighed(images, [[(r, None)], [(c, None)]]), f.expand_dims(f.multiply(a, b), 1))
        for (r, a), (c, b) in itertools.product(rows, columns)
    ]
    combine: Callable[[Tensor, Tensor], Tensor] = f.add if mode == "avg" else f.maximum
    y = parts[0]
    for part in parts[1:]:
        y = combine(y, part)
    y = f.where(f.expand_dims(inside, 1), y, f.as_tensor(0, y.dtype))
    shape = (*y.shape[:2], output_height, sampling_ratio, output_width, sampling_ratio)
    cells = f.reshape(y, shape)
    return f.mean(cells, (3, 5)) if mode == "avg" else f.max(cells, (3, 5))


def _clipped_taps(place: Tensor, extent: int) -> list[tuple[Tensor, Tensor]]:
    """The two elements around a place that lies inside."""
    base = f.floor(place)
    ratio = f.subtract(place, base)
    above = f.minimum(f.add(base, 1), extent - 1.0)
    return [(base, f.subtract(1, ratio)), (above, ratio)]


def _share(share: Tensor, axis: int) -> Tensor:
    return f.expand_dims(share, axis)
