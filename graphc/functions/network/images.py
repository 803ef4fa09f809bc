"""Shuffle pixels and channels, and sample images."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from graphc import ops
from graphc.functions.array.elementwise.elementwise import (
    abs,
    add,
    floor,
    greater_equal,
    less,
    logical_and,
    maximum,
    minimum,
    multiply,
    remainder,
    subtract,
    where,
)
from graphc.functions.array.elementwise.numeric import round
from graphc.functions.array.elementwise.precision import in_float32
from graphc.functions.array.linear.matrix_product import matmul
from graphc.functions.array.shape.rearrange import swapaxes
from graphc.functions.array.shape.shapes import expand_dims, permute_dims, reshape
from graphc.functions.array.tensors import as_tensor, cast, error, promoted, shape_of
from graphc.ir import Array, TensorLike
from graphc.trace import Tensor, emit


def pixel_shuffle(x: TensorLike, upscale_factor: int) -> Tensor:
    """Move channels to pixels: [..., c * r^2, h, w] becomes [..., c, h * r, w * r].

    Args:
        x: The images.
        upscale_factor: The factor r.

    Raises:
        GraphError: The number of channels is no multiple of r^2.

    Example:
        >>> graphc.compile(lambda: graphc.pixel_shuffle(np.ones((1, 8, 2, 2)), 2))().shape
        (1, 2, 4, 4)
    """
    tensor, r = as_tensor(x), upscale_factor
    if tensor.ndim < 3 or r < 1 or tensor.shape[-3] % r**2:
        raise error(f"pixel_shuffle: upscale_factor {r} does not fit x {tensor.value.type}")
    *batch, c, h, w = tensor.shape
    n = math.prod(batch)
    apart = permute_dims(reshape(tensor, (n, c // r**2, r, r, h, w)), (0, 1, 4, 2, 5, 3))
    return reshape(apart, (*batch, c // r**2, h * r, w * r))


def pixel_unshuffle(x: TensorLike, downscale_factor: int) -> Tensor:
    """Move pixels to channels: [..., c, h * r, w * r] becomes [..., c * r^2, h, w].

    Args:
        x: The images.
        downscale_factor: The factor r.

    Raises:
        GraphError: The size of the images is no multiple of r.

    Example:
        >>> graphc.compile(lambda: graphc.pixel_unshuffle(np.ones((1, 2, 4, 4)), 2))().shape
        (1, 8, 2, 2)
    """
    tensor, r = as_tensor(x), downscale_factor
    if tensor.ndim < 3 or r < 1 or tensor.shape[-1] % r or tensor.shape[-2] % r:
        raise error(f"pixel_unshuffle: downscale_factor {r} does not fit x {tensor.value.type}")
    *batch, c, h, w = tensor.shape
    n, p, q = math.prod(batch), h // r, w // r
    apart = permute_dims(reshape(tensor, (n, c, p, r, q, r)), (0, 1, 3, 5, 2, 4))
    return reshape(apart, (*batch, c * r**2, p, q))


def channel_shuffle(x: TensorLike, groups: int) -> Tensor:
    """Interleave the channels of groups: one of each group in turn.

    Args:
        x: The input [n, c, ...].
        groups: The number of groups that the channels form.

    Raises:
        GraphError: The number of channels is no multiple of `groups`.

    Example:
        >>> graphc.compile(lambda: graphc.channel_shuffle([[[1], [2], [3], [4]]], 2))()
        array([[[1],
                [3],
                [2],
                [4]]])
    """
    tensor = as_tensor(x)
    if tensor.ndim < 3 or groups < 1 or tensor.shape[1] % groups:
        raise error(f"channel_shuffle: {groups} groups do not fit x {tensor.value.type}")
    n, c, *rest = tensor.shape
    return reshape(swapaxes(reshape(tensor, (n, groups, c // groups, *rest)), 1, 2), tensor.shape)


@in_float32
def affine_grid(theta: TensorLike, size: Sequence[int], align_corners: bool = False) -> Tensor:
    """Return the sampling grid of an affine map, for `grid_sample`.

    Args:
        theta: The maps [n, 2, 3] from places of the result to places of the input.
        size: The size of the result (n, c, h, w).
        align_corners: Whether -1 and 1 are the centres of the corner pixels, or the edges of the
            image.

    Returns:
        Places (x, y) from -1 to 1: [n, h, w, 2].

    Raises:
        GraphError: The shapes do not fit.

    Example:
        >>> theta = [[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]]
        >>> graphc.compile(lambda: graphc.affine_grid(theta, (1, 1, 1, 2)))()
        array([[[[-0.5,  0. ],
                 [ 0.5,  0. ]]]], dtype=float32)
    """
    tensor, extents = as_tensor(theta), shape_of("affine_grid", size)
    if len(extents) != 4 or tensor.shape != (extents[0], 2, 3):
        raise error(
            f"affine_grid: expected theta [n, 2, 3] and size (n, c, h, w), "
            f"got {tensor.value.type} and {tuple(size)}"
        )
    n, _, h, w = extents
    rows, columns = (_centres(count, align_corners) for count in (h, w))
    places = np.stack([*np.meshgrid(columns, rows), np.ones((h, w))], -1).reshape(h * w, 3)
    base = as_tensor(places, tensor.dtype)
    return reshape(matmul(base, swapaxes(tensor, 1, 2)), (n, h, w, 2))


def _centres(count: int, align_corners: bool) -> Array:
    if align_corners:
        return np.linspace(-1, 1, count) if count > 1 else np.zeros(1)
    return (2 * np.arange(count) + 1) / count - 1


@in_float32
def grid_sample(
    x: TensorLike,
    grid: TensorLike,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool = False,
) -> Tensor:
    """Sample images at given places.

    Args:
        x: Images [n, c, h, w].
        grid: Places (x, y), of which -1 and 1 are the edges of the image: [n, p, q, 2].
        mode: "bilinear" interpolates between four pixels, "nearest" takes the nearest one.
        padding_mode: What lies outside of the image: "zeros", "border" pixels or a "reflection".
        align_corners: Whether -1 and 1 are the centres of the corner pixels, not the edges of the
            image.

    Returns:
        Images [n, c, p, q].

    Raises:
        GraphError: The shapes do not fit or a mode is unknown.

    Example:
        >>> x, grid = np.array([[[[1.0, 3.0]]]], np.float32), np.zeros((1, 1, 1, 2), np.float32)
        >>> graphc.compile(lambda: graphc.grid_sample(x, grid))()
        array([[[[2.]]]], dtype=float32)
    """
    tensor, places = promoted(x, grid)
    if tensor.ndim != 4 or places.ndim != 4 or places.shape[::3] != (tensor.shape[0], 2):
        raise error(
            f"grid_sample: expected x [n, c, h, w] and grid [n, p, q, 2], got "
            f"{tensor.value.type} and {places.value.type}"
        )
    if mode not in ("bilinear", "nearest"):
        raise error(f'grid_sample: mode expected "bilinear" or "nearest", got {mode!r}')
    if padding_mode not in ("zeros", "border", "reflection"):
        raise error(
            'grid_sample: padding_mode expected "zeros", "border" or "reflection", '
            f"got {padding_mode!r}"
        )
    n, c, h, w = tensor.shape
    across, down = (
        _pixel(places[..., i], extent, padding_mode, align_corners)
        for i, extent in ((0, w), (1, h))
    )
    pixels = reshape(permute_dims(tensor, (0, 2, 3, 1)), (n * h * w, c))
    first = emit(ops.Iota((n, 1, 1), 0, "i32"))

    def at(row: Tensor, column: Tensor) -> Tensor:
        """[n, p, q, c]: the pixels there, zeros outside."""
        inside = logical_and(*(_within(t, e) for t, e in ((row, h), (column, w))))
        number = add(multiply(add(multiply(first, h), cast(row, "i32")), w), cast(column, "i32"))
        return emit(ops.Take(0), pixels, where(inside, number, -1))

    if mode == "nearest":
        return permute_dims(at(round(down), round(across)), (0, 3, 1, 2))
    top, left = floor(down), floor(across)
    low, right = subtract(down, top), subtract(across, left)
    corners = [
        (top, left, multiply(subtract(1, low), subtract(1, right))),
        (top, add(left, 1), multiply(subtract(1, low), right)),
        (add(top, 1), left, multiply(low, subtract(1, right))),
        (add(top, 1), add(left, 1), multiply(low, right)),
    ]
    parts = [multiply(at(r, s), expand_dims(share, -1)) for r, s, share in corners]
    total = add(add(parts[0], parts[1]), add(parts[2], parts[3]))
    return permute_dims(total, (0, 3, 1, 2))


def _within(place: Tensor, extent: int) -> Tensor:
    return logical_and(greater_equal(place, 0), less(place, extent))


def _pixel(place: Tensor, extent: int, padding_mode: str, align_corners: bool) -> Tensor:
    """The place from -1 to 1 as a pixel's number, moved inside as asked."""
    if align_corners:
        number = multiply(add(place, 1), (extent - 1) / 2)
        low, high = 0.0, extent - 1.0
    else:
        number = multiply(subtract(multiply(add(place, 1), extent), 1), 0.5)
        low, high = -0.5, extent - 0.5
    if padding_mode == "zeros":
        return number
    if padding_mode == "reflection":
        span = high - low
        if not span:
            return multiply(number, 0)
        phase = remainder(abs(subtract(number, low)), 2 * span)
        number = add(minimum(phase, subtract(2 * span, phase)), low)
    return minimum(maximum(number, 0.0), extent - 1.0)
