"""The same elements at other places, without copying: the consumer reads through the view."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from graphc.base.errors import GraphError
from graphc.ir import Type
from graphc.ir.affine import Sections, unit
from graphc.ir.vocabulary import Gradients, Tensors, Vocabulary
from graphc.ops.axes import Axes, aligned
from graphc.ops.base import Affine, Array, Flags, View
from graphc.ops.join import Pad


@dataclass(frozen=True)
class Reshape(View):
    """The same elements in the same row-major order, in another shape."""

    shape: tuple[int, ...]
    name: ClassVar[str] = "reshape"
    is_planned: ClassVar[bool] = True

    def infer(self, *inputs: Type) -> tuple[Type, ...]:
        (x,) = inputs
        if math.prod(self.shape) != x.size:
            raise GraphError(
                f"reshape: {x} has {x.size} elements, "
                f"shape {list(self.shape)} has {math.prod(self.shape)}"
            )
        return (Type(self.shape, x.dtype),)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        return (inputs[0].reshape(self.shape),)

    def grad(self, f: Vocabulary, inputs: Tensors, outputs: Tensors, grads: Tensors) -> Gradients:
        return (f.reshape(grads[0], inputs[0].shape),)

    def axis_map(self, *inputs: Type) -> tuple[tuple[Axes, ...], ...]:
        """To the axis of equal extent with as many rows before it."""
        places = {key: d for d, key in enumerate(_rows(self.shape))}
        own = _rows(inputs[0].shape)
        return ((tuple(places.get((n, rows)) if n != 1 else None for n, rows in own),),)

    def batched(self, f: Vocabulary, inputs: Tensors, stacked: Flags, size: int) -> Tensors:
        return (f.reshape(inputs[0], (size, *self.shape)),)

    def index(self, source: Type) -> tuple[Affine, ...] | None:
        """Affine if only axes of extent 1 come or go."""
        rank = len(self.shape)
        wide = [d for d, n in enumerate(self.shape) if n != 1]
        if [self.shape[d] for d in wide] != [n for n in source.shape if n != 1]:
            return None
        places = iter(wide)
        return tuple(unit(-1 if n == 1 else next(places), rank) for n in source.shape)


def _rows(shape: tuple[int, ...]) -> list[tuple[int, int]]:
    """For each axis its extent, and the product of those before it."""
    return [(n, math.prod(shape[:d])) for d, n in enumerate(shape)]


@dataclass(frozen=True)
class PermuteDims(View):
    """y[i_axes[0], i_axes[1], ...] = x[i_0, i_1, ...]: output axis d is input axis axes[d]."""

    axes: tuple[int, ...]
    name: ClassVar[str] = "permute_dims"

    def infer(self, *inputs: Type) -> tuple[Type, ...]:
        (x,) = inputs
        assert sorted(self.axes) == list(range(x.rank)), (self.axes, x)
        return (Type(tuple(x.shape[a] for a in self.axes), x.dtype),)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        return (inputs[0].transpose(self.axes),)

    def grad(self, f: Vocabulary, inputs: Tensors, outputs: Tensors, grads: Tensors) -> Gradients:
        return (f.permute_dims(grads[0], tuple(self.inverse)),)

    @property
    def inverse(self) -> tuple[int, ...]:
        """The permutation that undoes this one."""
        return tuple(self.axes.index(a) for a in range(len(self.axes)))

    def batched(self, f: Vocabulary, inputs: Tensors, stacked: Flags, size: int) -> Tensors:
        return (f.emit(PermuteDims((0, *(a + 1 for a in self.axes))), inputs[0]),)

    def index(self, source: Type) -> tuple[Affine, ...] | None:
        return tuple(unit(d, source.rank) for d in self.inverse)


@dataclass(frozen=True)
class BroadcastTo(View):
    """x repeated along new leading axes and axes of extent 1, as NumPy broadcasts."""

    shape: tuple[int, ...]
    name: ClassVar[str] = "broadcast_to"

    def infer(self, *inputs: Type) -> tuple[Type, ...]:
        (x,) = inputs
        extra = len(self.shape) - x.rank
        if extra < 0 or not self._fits(x.shape, self.shape[extra:]):
            raise GraphError(f"broadcast_to: {x} does not broadcast to {list(self.shape)}")
        return (Type(self.shape, x.dtype),)

    @staticmethod
    def _fits(source: tuple[int, ...], target: tuple[int, ...]) -> bool:
        return all(n in (1, m) for n, m in zip(source, target, strict=True))

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        return (np.broadcast_to(inputs[0], self.shape),)

    def grad(self, f: Vocabulary, inputs: Tensors, outputs: Tensors, grads: Tensors) -> Gradients:
        return (grads[0],)

    def batched(self, f: Vocabulary, inputs: Tensors, stacked: Flags, size: int) -> Tensors:
        x = aligned(f, inputs[0], len(self.shape))
        return (f.emit(BroadcastTo((size, *self.shape)), x),)

    def index(self, source: Type) -> tuple[Affine, ...] | None:
        rank = len(self.shape)
        extra = rank - source.rank
        return tuple(
            unit(-1 if n == 1 else extra + axis, rank) for axis, n in enumerate(source.shape)
        )


@dataclass(frozen=True)
class Slice(View):
    """y[i] = x[starts + steps * i], starts <= place < stops, steps > 0; one of each per axis."""

    starts: tuple[int, ...]
    stops: tuple[int, ...]
    steps: tuple[int, ...]
    name: ClassVar[str] = "slice"

    def infer(self, *inputs: Type) -> tuple[Type, ...]:
        (x,) = inputs
        assert len(self.starts) == len(self.stops) == len(self.steps) == x.rank
        shape = []
        for extent, start, stop, step in zip(
            x.shape, self.starts, self.stops, self.steps, strict=True
        ):
            assert 0 <= start <= stop <= extent and step > 0, (self, x)
            shape.append(-(-(stop - start) // step))
        return (Type(tuple(shape), x.dtype),)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        return (inputs[0][tuple(map(slice, self.starts, self.stops, self.steps))],)

    def grad(self, f: Vocabulary, inputs: Tensors, outputs: Tensors, grads: Tensors) -> Gradients:
        (x,), (y,) = inputs, outputs
        low, high = [], []
        for extent, n, start, step in zip(x.shape, y.shape, self.starts, self.steps, strict=True):
            low.append(start)
            high.append(extent - start - (0 if n == 0 else (n - 1) * step + 1))
        interior = tuple(step - 1 for step in self.steps)
        return (f.emit(Pad(tuple(low), tuple(high), interior), grads[0]),)

    def batched(self, f: Vocabulary, inputs: Tensors, stacked: Flags, size: int) -> Tensors:
        op = Slice((0, *self.starts), (size, *self.stops), (1, *self.steps))
        return (f.emit(op, inputs[0]),)

    def index(self, source: Type) -> tuple[Affine, ...] | None:
        rank = source.rank
        return tuple(unit(d, rank, self.steps[d], self.starts[d]) for d in range(rank))

    def section(self, source: Type) -> tuple[Sections, int] | None:
        shape = self.infer(source)[0].shape
        axes = [d for d, n in enumerate(source.shape) if shape[d] != n]
        if len(axes) != 1 or any(step != 1 for step in self.steps):
            return None
        (axis,) = axes
        extent, size, start = source.shape[axis], shape[axis], self.starts[axis]
        if size == 0 or extent % size or start % size:
            return None
        return Sections(axis, extent // size, size), start // size


@dataclass(frozen=True)
class Flip(View):
    """y[..., i, ...] = x[..., n - 1 - i, ...] along each of `axes`."""

    axes: tuple[int, ...]
    name: ClassVar[str] = "flip"

    def infer(self, *inputs: Type) -> tuple[Type, ...]:
        (x,) = inputs
        assert all(0 <= a < x.rank for a in self.axes), (self.axes, x)
        return (Type(x.shape, x.dtype),)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        return (np.flip(inputs[0], self.axes),)

    def grad(self, f: Vocabulary, inputs: Tensors, outputs: Tensors, grads: Tensors) -> Gradients:
        return (f.emit(self, grads[0]),)

    def batched(self, f: Vocabulary, inputs: Tensors, stacked: Flags, size: int) -> Tensors:
        return (f.emit(Flip(tuple(a + 1 for a in self.axes)), inputs[0]),)

    def index(self, source: Type) -> tuple[Affine, ...] | None:
        return tuple(
            unit(d, source.rank, -1, n - 1) if d in self.axes else unit(d, source.rank)
            for d, n in enumerate(source.shape)
        )
