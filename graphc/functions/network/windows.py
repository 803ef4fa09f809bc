"""Check the arguments of functions that slide a window over images."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import ParamSpec, TypeVar

from graphc.functions.array.elementwise.precision import factors
from graphc.functions.array.shape.padding import pad
from graphc.functions.array.shape.shapes import expand_dims, reshape, squeeze
from graphc.functions.array.tensors import as_tensor, error, is_integer
from graphc.ir import TensorLike, tree
from graphc.trace import Tensor

P = ParamSpec("P")
T = TypeVar("T")
Size = int | Sequence[int]

_EXPECTED = ("", ", or two of them", ", or three of them")


def sizes(name: str, argument: str, value: object, axes: int, at_least: int = 1) -> tuple[int, ...]:
    """Return `value` as one integer per axis, from that many or from one, or raise GraphError."""
    items = tuple(value) if isinstance(value, Sequence) else (value,)
    items = items * axes if len(items) == 1 else items
    given = tuple(int(i) for i in items if is_integer(i) and i >= at_least)
    if not len(given) == len(items) == axes:
        raise error(
            f"{name}: {argument} expected an integer of {at_least} or more{_EXPECTED[axes - 1]}, "
            f"got {value!r}"
        )
    return given


def single(name: str, argument: str, value: object, at_least: int = 1) -> int:
    """Return `value` as an integer, from one or a tuple of one, or raise GraphError."""
    return sizes(name, argument, value, 1, at_least)[0]


def pair(name: str, argument: str, value: object, at_least: int = 1) -> tuple[int, int]:
    """Return `value` as (rows, columns), from one integer or two, or raise GraphError."""
    rows, columns = sizes(name, argument, value, 2, at_least)
    return rows, columns


def triple(name: str, argument: str, value: object, at_least: int = 1) -> tuple[int, int, int]:
    """Return `value` as (depth, rows, columns), from one integer or three, or raise GraphError."""
    depth, rows, columns = sizes(name, argument, value, 3, at_least)
    return depth, rows, columns


def of_images(axes: int) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Decorate a function of x [n, c, ...] with `axes` spatial axes to take x [c, ...] too.

    It becomes a batch of one, whose axis the results lack. A `weight` must have as many axes as a
    batch; the function itself raises an error for another one.
    """

    def decorated(function: Callable[P, T]) -> Callable[P, T]:
        @functools.wraps(function)
        def batched(*args: P.args, **kwargs: P.kwargs) -> T:
            positional = list(args) if args else [kwargs.pop("x", None)]
            x = as_tensor(positional[0])
            weight = positional[1] if len(positional) > 1 else kwargs.get("weight")
            shape = getattr(weight, "shape", None)
            if x.ndim != axes + 1 or (shape is not None and len(shape) != axes + 2):
                return function(*(x, *positional[1:]), **kwargs)  # type: ignore[arg-type]
            results = function(*(expand_dims(x, 0), *positional[1:]), **kwargs)  # type: ignore[arg-type]

            def alone(_: str, y: object) -> object:
                return squeeze(y, 0) if isinstance(y, Tensor) else y

            images: T = tree.map_leaves(alone, results)
            return images

        return batched

    return decorated


def by_depth(
    name: str,
    pool: Callable[[Tensor, Size, Size, Size, slice], Tensor],
    x: TensorLike,
    kernel_size: Size,
    stride: Size | None,
    padding: Size,
) -> Tensor:
    """Pool windows of images first, then their results along the depth.

    `pool` gets a slice that says which of the three axes it pools.
    """
    tensor = of_rank(name, x, 5)
    size = triple(name, "kernel_size", kernel_size)
    steps = size if stride is None else triple(name, "stride", stride)
    around = triple(name, "padding", padding, at_least=0)
    n, c, d, h, w = tensor.shape
    inner, outer = slice(1, 3), slice(0, 1)
    flat = reshape(tensor, (n, c * d, h, w))
    images = pool(flat, size[inner], steps[inner], around[inner], inner)
    p, q = images.shape[2:]
    columns = reshape(images, (n, c, d, p * q))
    y = pool(columns, (size[0], 1), (steps[0], 1), (around[0], 0), outer)
    return reshape(y, (n, c, y.shape[2], p, q))


def extended(
    x: Tensor, reach: Sequence[int], stride: Sequence[int], padding: Sequence[int], value: float
) -> Tensor:
    """Pad x at its end for windows that begin within the padding, but end beyond it."""
    more = []
    for n, k, s, p in zip(x.shape[2:], reach, stride, padding, strict=True):
        windows = -(-(n + 2 * p - k) // s) + 1
        windows -= (windows - 1) * s >= n + p
        more.append(max(0, (windows - 1) * s + k - n - 2 * p))
    return pad(x, [(0, 0), (0, 0), *((0, m) for m in more)], value) if any(more) else x


def of_rank(name: str, x: TensorLike, rank: int) -> Tensor:
    """Return x as a tensor of `rank` axes, or raise GraphError."""
    tensor = as_tensor(x)
    if tensor.ndim != rank:
        raise error(f"{name}: expected x of {rank} axes, got {tensor.value.type}")
    return tensor


def window(
    name: str, kernel_size: Size, stride: Size | None, padding: Size
) -> tuple[tuple[int, int], tuple[int, int], tuple[int, int]]:
    """Return kernel size, stride and padding as pairs."""
    size = pair(name, "kernel_size", kernel_size)
    steps = size if stride is None else pair(name, "stride", stride)
    return size, steps, pair(name, "padding", padding, at_least=0)


def row(
    name: str, kernel_size: Size, stride: Size | None, padding: Size
) -> tuple[tuple[int, int], tuple[int, int], tuple[int, int]]:
    """Return kernel size, stride and padding as pairs, for images of one row."""
    size = single(name, "kernel_size", kernel_size)
    step = size if stride is None else single(name, "stride", stride)
    return (1, size), (1, step), (0, single(name, "padding", padding, at_least=0))


def check_output_padding(
    name: str, extra: Sequence[int], stride: Sequence[int], dilation: Sequence[int]
) -> None:
    """Raise GraphError unless `extra` is below stride or dilation along each axis."""
    if any(e >= s and e >= d for e, s, d in zip(extra, stride, dilation, strict=True)):
        spaced = "" if set(dilation) == {1} else f" or dilation {tuple(dilation)}"
        raise error(f"{name}: output_padding {extra} is not below stride {stride}{spaced}")


def with_weight(name: str, x: TensorLike, weight: TensorLike, rank: int) -> tuple[Tensor, Tensor]:
    """Return x and weight in one dtype, or raise GraphError unless each has `rank` axes."""
    tensor, w = factors(x, weight)
    if tensor.ndim != rank or w.ndim != rank:
        raise error(
            f"{name}: x {tensor.value.type} and weight {w.value.type} must have {rank} axes each"
        )
    return tensor, w


def check_transposed(name: str, x: Tensor, weight: Tensor, rank: int, groups: int) -> None:
    """Raise GraphError unless x [n, k, ...] and weight [k, c / groups, ...] fit each other."""
    if x.ndim != rank or weight.ndim != rank or x.shape[1] != weight.shape[0]:
        raise error(
            f"{name}: x {x.value.type} and weight {weight.value.type} must have {rank} axes each "
            "and the same number of channels in axis 1 of x and axis 0 of weight"
        )
    channels = weight.shape[0]
    if not isinstance(groups, int) or groups < 1 or channels % groups:
        raise error(f"{name}: groups expected a divisor of {channels} channels, got {groups!r}")


def bias_of_channels(name: str, bias: TensorLike, channels: int) -> Tensor:
    """Return the bias, or raise GraphError unless it has one element per channel."""
    tensor = as_tensor(bias)
    if tensor.shape != (channels,):
        raise error(f"{name}: bias {tensor.value.type} does not fit the {channels} output channels")
    return tensor
