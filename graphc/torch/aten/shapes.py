"""Operators that move elements: views, joins and cuts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from graphc import functions as f
from graphc.torch.aten.rules import aten, pull
from graphc.trace import Tensor

Dims = int | Sequence[int] | None


@aten("view", "reshape", "_unsafe_view", "view_copy")
def view(x: Tensor, shape: Sequence[int]) -> Tensor:
    return f.reshape(x, tuple(shape))


@aten("expand", "expand_copy")
def expand(x: Tensor, shape: Sequence[int], implicit: bool = False) -> Tensor:
    return f.expand(x, tuple(shape))


@aten("permute", "permute_copy")
def permute(x: Tensor, dims: Sequence[int]) -> Tensor:
    return f.permute_dims(x, tuple(dims))


@aten("transpose.int")
def transpose(x: Tensor, first: int, second: int) -> Tensor:
    return f.swapaxes(x, first, second) if x.ndim else x


@aten("t")
def t(x: Tensor) -> Tensor:
    return f.matrix_transpose(x) if x.ndim == 2 else x


@aten("unsqueeze")
def unsqueeze(x: Tensor, dim: int) -> Tensor:
    return f.expand_dims(x, dim)


@aten("squeeze", "squeeze.dim", "squeeze.dims")
def squeeze(x: Tensor, dim: Dims = None) -> Tensor:
    dims = range(x.ndim) if dim is None else (dim,) if isinstance(dim, int) else dim
    ones = {d % x.ndim for d in dims if x.ndim and x.shape[d] == 1}
    return f.reshape(x, tuple(n for axis, n in enumerate(x.shape) if axis not in ones))


@aten("repeat")
def repeat(x: Tensor, repeats: Sequence[int]) -> Tensor:
    return f.tile(x, tuple(repeats))


@aten("flip")
def flip(x: Tensor, dims: Sequence[int]) -> Tensor:
    return f.flip(x, tuple(dims)) if dims else x


@aten("roll")
def roll(x: Tensor, shifts: Any, dims: Any = ()) -> Tensor:
    axes = (dims,) if isinstance(dims, int) else tuple(dims)
    moves = (shifts,) if isinstance(shifts, int) else tuple(shifts)
    return f.roll(x, moves, axes) if axes else f.roll(x, moves[0])


@aten("diagonal")
def diagonal(x: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    return f.diagonal(x, offset, dim1, dim2)


@aten("tril")
def tril(x: Tensor, diagonal: int = 0) -> Tensor:
    return f.tril(x, k=diagonal)


@aten("triu")
def triu(x: Tensor, diagonal: int = 0) -> Tensor:
    return f.triu(x, k=diagonal)


@aten("cat")
def cat(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """Without those of shape (0,), which PyTorch joins with anything."""
    kept = [x for x in tensors if x.shape != (0,)] or list(tensors[:1])
    return f.concat(kept, dim)


@aten("stack")
def stack(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    return f.stack(list(tensors), dim)


@aten("split_with_sizes")
def split_with_sizes(x: Tensor, sizes: Sequence[int], dim: int = 0) -> list[Tensor]:
    ends = [sum(sizes[: i + 1]) for i in range(len(sizes))]
    return [slice_(x, dim, end - size, end) for size, end in zip(sizes, ends, strict=True)]


@aten("split.Tensor")
def split(x: Tensor, size: int, dim: int = 0) -> list[Tensor]:
    whole = x.shape[dim]
    return [slice_(x, dim, i, i + size) for i in range(0, whole, size)] if whole else [x]


@aten("unbind.int", "unbind_copy.int")
def unbind(x: Tensor, dim: int = 0) -> list[Tensor]:
    return [select(x, dim, i) for i in range(x.shape[dim])]


@aten("slice.Tensor")
def slice_(
    x: Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Tensor:
    return x[(*[slice(None)] * (dim % x.ndim), slice(start, end, step))]


@aten("narrow_copy")
def narrow_copy(x: Tensor, dim: int, start: int, length: int) -> Tensor:
    start += x.shape[dim] if start < 0 else 0
    return slice_(x, dim, start, start + length)


@aten("select.int")
def select(x: Tensor, dim: int, index: int) -> Tensor:
    return f.select(x, dim, index)


@aten("slice_scatter")
def slice_scatter(
    x: Tensor,
    source: Tensor,
    dim: int = 0,
    start: int | None = None,
    end: int | None = None,
    step: int = 1,
) -> Tensor:
    first, last, _ = slice(start, end).indices(x.shape[dim])
    return f.slice_scatter(x, source, dim, first, max(first, last), step)


@aten("select_scatter")
def select_scatter(x: Tensor, source: Tensor, dim: int, index: int) -> Tensor:
    return f.select_scatter(x, source, dim, index % x.shape[dim])


@aten("constant_pad_nd")
def constant_pad_nd(x: Tensor, pad: Sequence[int], value: float = 0) -> Tensor:
    """`pad` has (before, after) from the last axis on; what is negative is cut off."""
    widths = [(0, 0)] * (x.ndim - len(pad) // 2)
    widths += [(pad[i], pad[i + 1]) for i in reversed(range(0, len(pad), 2))]
    kept = tuple(
        slice(max(0, -before), n - max(0, -after))
        for n, (before, after) in zip(x.shape, widths, strict=True)
    )
    added = [(max(0, before), max(0, after)) for before, after in widths]
    return f.pad(x[kept] if x.ndim else x, added, value)


@aten("diagonal_scatter")
def diagonal_scatter(
    x: Tensor, source: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> Tensor:
    return f.diagonal_scatter(x, source, offset, dim1, dim2)


@aten("replication_pad1d_backward", "replication_pad2d_backward", "replication_pad3d_backward")
def replication_pad_backward(dy: Tensor, x: Tensor, padding: Sequence[int]) -> Tensor:
    widths = [(0, 0)] * (x.ndim - len(padding) // 2)
    widths += [(padding[i], padding[i + 1]) for i in reversed(range(0, len(padding), 2))]
    (dx,) = pull(lambda x: f.pad(x, widths, mode="replicate"), dy, x)
    return dx


@aten("unfold")
def unfold(x: Tensor, dim: int, size: int, step: int) -> Tensor:
    """Windows of `size` elements, `step` apart, along `dim`; the places in them are a last axis."""
    if x.ndim == 0:
        return f.reshape(x, (1,))[:size]
    dim %= x.ndim
    count = (x.shape[dim] - size) // step + 1
    starts = f.expand_dims(f.arange(0, count * step, step), 1)
    windows = f.take(x, f.add(starts, f.arange(size)), dim)
    return f.moveaxis(windows, dim + 1, -1)
