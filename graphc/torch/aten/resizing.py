"""Images of other sizes, and samples of images."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from graphc import functions as f
from graphc.base.source_lines import error
from graphc.torch.aten.rules import aten, pull
from graphc.trace import Tensor


def _resize(
    x: Tensor, size: Sequence[int], mode: str, align_corners: bool, scales: Sequence[Any]
) -> Tensor:
    """`scales` are those that the user gave, if any: graphc takes the ratio of the extents."""
    for old, new, scale in zip(x.shape[2:], size, scales, strict=True):
        if scale is not None and old * scale != new and not align_corners:
            raise error(f"interpolate: {old} elements times {scale} are not {new}")
    return f.interpolate(x, tuple(size), mode=mode, align_corners=align_corners)


def _register(name: str, mode: str, aligns: bool) -> None:
    def head(given: Sequence[Any]) -> tuple[bool, Sequence[Any]]:
        """(align_corners, scales) of the arguments behind the sizes."""
        return (given[0], given[1:]) if aligns else (False, given)

    def resized(x: Tensor, size: Sequence[int], given: Sequence[Any]) -> Tensor:
        align, scales = head(given)
        return _resize(x, size, mode, align, [*scales, *[None] * (len(size) - len(scales))])

    def forward(x: Tensor, size: Sequence[int], *given: Any) -> Tensor:
        return resized(x, size, given)

    def vector(x: Tensor, size: Sequence[int] | None, *given: Any) -> Tensor:
        align, (factors,) = head(given)
        if size is None:
            size = [int(n * s) for n, s in zip(x.shape[2:], factors, strict=True)]
        return _resize(x, size, mode, align, factors or [None] * len(size))

    def backward(dy: Tensor, size: Sequence[int], shape: Sequence[int], *given: Any) -> Tensor:
        (dx,) = pull(lambda x: resized(x, size, given), dy, f.zeros(tuple(shape), dy.dtype))
        return dx

    rules: dict[str, Callable[..., Any]] = {
        name: forward, f"{name}.vec": vector, f"{name}_backward": backward
    }  # fmt: skip
    for operator, rule in rules.items():
        aten(operator)(rule)


for _name, _mode, _aligns in (
    ("upsample_nearest1d", "nearest", False),
    ("upsample_nearest2d", "nearest", False),
    ("upsample_nearest3d", "nearest", False),
    ("_upsample_nearest_exact1d", "nearest-exact", False),
    ("_upsample_nearest_exact2d", "nearest-exact", False),
    ("upsample_linear1d", "linear", True),
    ("upsample_bilinear2d", "bilinear", True),
    ("upsample_trilinear3d", "trilinear", True),
    ("upsample_bicubic2d", "bicubic", True),
):
    _register(_name, _mode, _aligns)


@aten("grid_sampler_2d")
def grid_sampler_2d(
    x: Tensor, grid: Tensor, interpolation: int, padding: int, align_corners: bool
) -> Tensor:
    if grid.dtype in ("f16", "bf16"):
        raise error("grid_sample: PyTorch rounds places of 16 bits, so that it takes other pixels")
    mode = ("bilinear", "nearest", "bicubic")[interpolation]
    outside = ("zeros", "border", "reflection")[padding]
    return f.grid_sample(x, grid, mode, outside, align_corners)


@aten("col2im")
def col2im(
    x: Tensor,
    output_size: Sequence[int],
    kernel: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    stride: Sequence[int],
) -> Tensor:
    return f.fold(x, *map(tuple, (output_size, kernel, dilation, padding, stride)))


@aten("im2col")
def im2col(
    x: Tensor,
    kernel: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    stride: Sequence[int],
) -> Tensor:
    return f.unfold(x, *map(tuple, (kernel, dilation, padding, stride)))


@aten("grid_sampler_2d_backward")
def grid_sampler_2d_backward(
    dy: Tensor,
    x: Tensor,
    grid: Tensor,
    interpolation: int,
    padding: int,
    align_corners: bool,
    wanted: Sequence[bool],
) -> tuple[Tensor | None, Tensor | None]:
    """The gradients by x and grid, those that are `wanted`."""
    options = (interpolation, padding, align_corners)
    dx, dgrid = None, None
    if wanted[0]:
        (dx,) = pull(lambda x: grid_sampler_2d(x, grid, *options), dy, x)
    if wanted[1]:
        (dgrid,) = pull(lambda grid: grid_sampler_2d(x, grid, *options), dy, grid)
    return dx, dgrid
