"""Layers that reshape, shuffle and resize."""

from __future__ import annotations

from graphc import functions
from graphc.nn import check
from graphc.nn.module import Module
from graphc.trace import Tensor

Pair = int | tuple[int, int]


class Identity(Module):
    """Return the input.

    Example:
        >>> graphc.trace(nn.Identity(), graphc.spec((2, 3))).outputs[0].type.shape
        (2, 3)
    """

    def forward(self, x: Tensor) -> Tensor:
        return x


class Flatten(Module):
    """Merge a range of axes into one; the default keeps the batch.

    Args:
        start_dim: The first axis to merge.
        end_dim: The last axis to merge, which is included.

    Example:
        >>> graphc.trace(nn.Flatten(), graphc.spec((8, 3, 4, 4))).outputs[0].type.shape
        (8, 48)
    """

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        self.start_dim = check.axis("Flatten", "start_dim", start_dim)
        self.end_dim = check.axis("Flatten", "end_dim", end_dim)

    def forward(self, x: Tensor) -> Tensor:
        return functions.flatten(x, self.start_dim, self.end_dim)

    def describe(self) -> str:
        return f"start_dim={self.start_dim}, end_dim={self.end_dim}"


class Unflatten(Module):
    """Split an axis into several.

    Args:
        dim: The axis to split.
        unflattened_size: The sizes of the new axes, one of which may be -1.

    Example:
        >>> graphc.trace(nn.Unflatten(1, (3, -1)), graphc.spec((8, 48))).outputs[0].type.shape
        (8, 3, 16)
    """

    def __init__(self, dim: int, unflattened_size: tuple[int, ...] | list[int]) -> None:
        self.dim = check.axis("Unflatten", "dim", dim)
        if not isinstance(unflattened_size, (tuple, list)):
            check.fail(f"Unflatten: unflattened_size expected integers, got {unflattened_size!r}")
        self.unflattened_size = tuple(
            check.integer("Unflatten", "unflattened_size", n, at_least=-1) for n in unflattened_size
        )

    def forward(self, x: Tensor) -> Tensor:
        if not -x.ndim <= self.dim < x.ndim:
            check.fail(f"Unflatten: dim={self.dim} is no axis of x {x.value.type}")
        axis = self.dim % x.ndim
        shape = (*x.shape[:axis], *self.unflattened_size, *x.shape[axis + 1 :])
        return functions.reshape(x, shape)

    def describe(self) -> str:
        return f"dim={self.dim}, unflattened_size={self.unflattened_size}"


class PixelShuffle(Module):
    """Move channels to pixels: [n, c * r^2, h, w] becomes [n, c, h * r, w * r].

    Args:
        upscale_factor: The factor r.

    Example:
        >>> graphc.trace(nn.PixelShuffle(2), graphc.spec((1, 8, 2, 2))).outputs[0].type.shape
        (1, 2, 4, 4)
    """

    def __init__(self, upscale_factor: int) -> None:
        self.upscale_factor = check.integer("PixelShuffle", "upscale_factor", upscale_factor)

    def forward(self, x: Tensor) -> Tensor:
        check.axes("PixelShuffle", x, "n, c, h, w")
        r, (n, c, h, w) = self.upscale_factor, x.shape
        if c % (r * r):
            check.fail(f"PixelShuffle: x {x.value.type} expected a multiple of {r * r} channels")
        y = functions.reshape(x, (n, c // (r * r), r, r, h, w))
        y = functions.permute_dims(y, (0, 1, 4, 2, 5, 3))
        return functions.reshape(y, (n, c // (r * r), h * r, w * r))

    def describe(self) -> str:
        return f"upscale_factor={self.upscale_factor}"


class PixelUnshuffle(Module):
    """Move pixels to channels: [n, c, h, w] becomes [n, c * r^2, h / r, w / r].

    Args:
        downscale_factor: The factor r.

    Example:
        >>> graphc.trace(nn.PixelUnshuffle(2), graphc.spec((1, 2, 4, 4))).outputs[0].type.shape
        (1, 8, 2, 2)
    """

    def __init__(self, downscale_factor: int) -> None:
        self.downscale_factor = check.integer(
            "PixelUnshuffle", "downscale_factor", downscale_factor
        )

    def forward(self, x: Tensor) -> Tensor:
        check.axes("PixelUnshuffle", x, "n, c, h, w")
        r, (n, c, h, w) = self.downscale_factor, x.shape
        if h % r or w % r:
            check.fail(f"PixelUnshuffle: x {x.value.type} expected multiples of {r} in h and w")
        y = functions.reshape(x, (n, c, h // r, r, w // r, r))
        y = functions.permute_dims(y, (0, 1, 3, 5, 2, 4))
        return functions.reshape(y, (n, c * r * r, h // r, w // r))

    def describe(self) -> str:
        return f"downscale_factor={self.downscale_factor}"


class ChannelShuffle(Module):
    """Interleave the channels of groups: one of each group in turn.

    Args:
        groups: The number of groups that the channels form.

    Example:
        >>> x = np.array([[[1], [2], [3], [4]]], np.float32)
        >>> graphc.compile(nn.ChannelShuffle(2), graphc.spec(x.shape))(x).ravel()
        array([1., 3., 2., 4.], dtype=float32)
    """

    def __init__(self, groups: int) -> None:
        self.groups = check.integer("ChannelShuffle", "groups", groups)

    def forward(self, x: Tensor) -> Tensor:
        n, c, *pixels = x.shape
        if c % self.groups:
            check.fail(
                f"ChannelShuffle: x {x.value.type} expected a multiple of {self.groups} channels"
            )
        y = functions.reshape(x, (n, self.groups, c // self.groups, *pixels))
        return functions.reshape(functions.swapaxes(y, 1, 2), x.shape)

    def describe(self) -> str:
        return f"groups={self.groups}"


class Unfold(Module):
    """Return the windows of images [n, c, h, w] as columns [n, c * r * s, p * q].

    Args:
        kernel_size: The size of the windows, one number or (rows, columns).
        dilation: The distance between elements of a window.
        padding: Zeros around the images.
        stride: The step of the windows.

    Example:
        >>> graphc.trace(nn.Unfold(2), graphc.spec((1, 3, 4, 4))).outputs[0].type.shape
        (1, 12, 9)
    """

    def __init__(
        self, kernel_size: Pair, dilation: Pair = 1, padding: Pair = 0, stride: Pair = 1
    ) -> None:
        layer = type(self).__name__
        self.kernel_size = check.sizes(layer, "kernel_size", kernel_size, 2)
        self.dilation = check.sizes(layer, "dilation", dilation, 2)
        self.padding = check.sizes(layer, "padding", padding, 2, at_least=0)
        self.stride = check.sizes(layer, "stride", stride, 2)

    def forward(self, x: Tensor) -> Tensor:
        return functions.unfold(x, self.kernel_size, self.dilation, self.padding, self.stride)

    def describe(self) -> str:
        return (
            f"kernel_size={self.kernel_size}, dilation={self.dilation}, padding={self.padding}, "
            f"stride={self.stride}"
        )


class Fold(Unfold):
    """Add up windows, the columns [n, c * r * s, p * q], to images [n, c, *output_size].

    Args:
        output_size: The size of the images, one number or (rows, columns).
        kernel_size: The size of the windows.
        dilation: The distance between elements of a window.
        padding: How much is cut from each side of the images.
        stride: The step of the windows.

    Example:
        >>> graphc.trace(nn.Fold(4, 2), graphc.spec((1, 12, 9))).outputs[0].type.shape
        (1, 3, 4, 4)
    """

    def __init__(
        self,
        output_size: Pair,
        kernel_size: Pair,
        dilation: Pair = 1,
        padding: Pair = 0,
        stride: Pair = 1,
    ) -> None:
        super().__init__(kernel_size, dilation, padding, stride)
        self.output_size = check.sizes("Fold", "output_size", output_size, 2)

    def forward(self, x: Tensor) -> Tensor:
        windows = (self.kernel_size, self.dilation, self.padding, self.stride)
        return functions.fold(x, self.output_size, *windows)

    def describe(self) -> str:
        return f"output_size={self.output_size}, {super().describe()}"


class Upsample(Module):
    """Resize images [n, c, ...]: `graphc.interpolate`.

    Args:
        size: The size of the result, one number or one per axis.
        scale_factor: The factor of the size, one number or one per axis.
        mode: "nearest", "linear", "bilinear", "trilinear" or "bicubic".
        align_corners: Whether the centres of corner elements stay in place.
        recompute_scale_factor: Must be None or False.

    Example:
        >>> graphc.trace(nn.Upsample(8), graphc.spec((1, 3, 4, 4))).outputs[0].type.shape
        (1, 3, 8, 8)
    """

    def __init__(
        self,
        size: int | tuple[int, ...] | None = None,
        scale_factor: float | tuple[float, ...] | None = None,
        mode: str = "nearest",
        align_corners: bool | None = None,
        recompute_scale_factor: bool | None = None,
    ) -> None:
        layer = type(self).__name__
        if (size is None) == (scale_factor is None):
            check.fail(
                f"{layer}: expected either size or scale_factor, "
                f"got size={size} and scale_factor={scale_factor}"
            )
        if recompute_scale_factor:
            check.fail(f"{layer}: recompute_scale_factor expected False, size= says as much")
        self.size, self.scale_factor, self.mode = size, scale_factor, mode
        self.align_corners = bool(align_corners)

    def forward(self, x: Tensor) -> Tensor:
        return functions.interpolate(x, self.size, self.scale_factor, self.mode, self.align_corners)

    def describe(self) -> str:
        target = f"size={self.size}" if self.size else f"scale_factor={self.scale_factor}"
        return f"{target}, mode={self.mode!r}"


class UpsamplingNearest2d(Upsample):
    """Resize images [n, c, h, w] by the nearest element.

    Args:
        size: The size of the result, one number or (rows, columns).
        scale_factor: The factor of the size, one number or (rows, columns).

    Example:
        >>> graphc.trace(nn.UpsamplingNearest2d(8), graphc.spec((1, 3, 4, 4))).outputs[0].type.shape
        (1, 3, 8, 8)
    """

    def __init__(
        self,
        size: Pair | None = None,
        scale_factor: float | tuple[float, float] | None = None,
    ) -> None:
        super().__init__(size, scale_factor)


class UpsamplingBilinear2d(Upsample):
    """Resize images [n, c, h, w] bilinearly; the centres of corner pixels stay in place.

    Args:
        size: The size of the result, one number or (rows, columns).
        scale_factor: The factor of the size, one number or (rows, columns).

    Example:
        >>> layer = nn.UpsamplingBilinear2d(8)
        >>> graphc.trace(layer, graphc.spec((1, 3, 4, 4))).outputs[0].type.shape
        (1, 3, 8, 8)
    """

    def __init__(
        self,
        size: Pair | None = None,
        scale_factor: float | tuple[float, float] | None = None,
    ) -> None:
        super().__init__(size, scale_factor, "bilinear", True)
