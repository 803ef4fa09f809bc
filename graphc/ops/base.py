"""Base classes of ops, by family: attributes, type rule, meaning in NumPy, gradient, lowering.

An op is a frozen dataclass; its fields are its attributes. The families below say how a kernel
may compute it, which is all that fusion and lowering need to know about it:

- `Pointwise`: one scalar expression per element, with NumPy broadcasting of the inputs.
- `Reduction`: a combine over some axes.
- `View`: the same elements at other indices; an affine map from output index to input index.
- `Contraction`: a sum of products over affine reads of two operands.
- `Window`: one output element from a small window of the inputs' elements (pooling and its
  gradient), read in place.
- `Index`: reads at places that other inputs name.
- `Source`: no inputs (constants, iota).
- `Random`: elements from a counter-based generator, named by their logical index.

Two rules say what an op does to axes, and are what hoisting, layouts, fusion and `vmap` know of it:
`axis_map`, where each axis of an input is found in the outputs, and `batched`, what the op becomes
with one axis more. The families have them; an op outside of these has its own.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from graphc.base.dtypes import convert, is_narrow, widened
from graphc.base.errors import BUGS, GraphError, described
from graphc.ir import DTYPES, FLOATS, INTEGERS, Type
from graphc.ir import REGISTRY as REGISTRY
from graphc.ir import Array as Array
from graphc.ir import Flags as Flags
from graphc.ir import Op as Op
from graphc.ir.affine import Affine as Affine
from graphc.ir.affine import Iteration as Iteration
from graphc.ir.affine import Operand as Operand
from graphc.ir.ordered_sum import ordered_contraction, ordered_reduction
from graphc.ir.sum_order import SumOrder
from graphc.ir.types import dtype_name
from graphc.ir.vocabulary import Tensors, Vocabulary
from graphc.ops.axes import (
    SUMMED,
    Axes,
    aligned,
    broadcast_axes,
    iteration_axes,
    repeated,
    unsliced_axes,
)

NUMBERS = (*INTEGERS, *FLOATS)
ANY = tuple(DTYPES)
COMBINES: dict[str, Callable[[Array, Array], Array]] = {
    "sum": np.add,
    "prod": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
}
"""What kernels combine elements by."""
ORDERED: dict[str, tuple[Callable[[Array, Array], Array], float]] = {
    "sum": (np.add, 0.0),
    "prod": (np.multiply, 1.0),
}
"""Combinations of floats whose result depends on the order, with their neutral elements."""


@dataclass(frozen=True)
class Pointwise(Op):
    """One expression per element. All inputs have one dtype unless `infer` says otherwise.

    Ops without attributes need no decorator of their own: two of one class are equal.

    `expression` names the inputs a, b, c, and the op's fields through `{field}`: `"{a} + {b}"`,
    `"relu({a})"`. It may use functions that both devices have, in kernels/cpu/shared/elementary.h
    and kernels/cuda/shared/math.cuh. Numbers in it are integers: `1` has the dtype of the other
    operand, which `1.0f` has not.
    """

    pointwise: ClassVar[bool] = True
    in_registers: ClassVar[bool] = True
    expression: ClassVar[str] = ""
    meaning: ClassVar[Callable[..., Any]]
    """The NumPy function that computes the output."""
    accepts: ClassVar[tuple[str, ...]] = NUMBERS
    gives: ClassVar[str] = ""
    """The dtype of the output; "" for that of the inputs."""
    units: ClassVar[float] = 0.5
    """The largest error of a float32 result on a CPU, in units of its last place; 0.5 is exact but
    for the rounding."""
    operations: ClassVar[int] = 1
    """What an element costs, in operations of `graphc.base.target.CPU`: its time on a core with
    AVX-512 in units of 5 picoseconds, as measured (docs/ops.md). 1 is an operator of one
    instruction; an op whose expression calls a function says more."""

    def infer(self, *inputs: Type) -> tuple[Type, ...]:
        shape, dtype = broadcast_shapes(self.name, inputs), same_dtype(self.name, inputs)
        check_dtype(self.name, dtype, self.accepts, inputs)
        return (Type(shape, self.gives or dtype),)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        if not hasattr(type(self), "meaning"):
            raise GraphError(f"{self.name} has no meaning in NumPy: write meaning or reference")
        with np.errstate(all="ignore"):
            return (np.asarray(type(self).meaning(*inputs)),)

    def axis_map(self, *inputs: Type) -> tuple[tuple[Axes, ...], ...]:
        shape = _broadcast(*[t.shape for t in inputs])
        return (tuple(broadcast_axes(t.shape, shape) for t in inputs),)

    def batched(self, f: Vocabulary, inputs: Tensors, stacked: Flags, size: int) -> Tensors:
        rank = max(x.ndim - s for x, s in zip(inputs, stacked, strict=True))
        pairs = zip(inputs, stacked, strict=True)
        return (f.emit(self, *(aligned(f, x, rank) if s else x for x, s in pairs)),)

    def lack(self, *inputs: Type) -> str:
        return "" if self.expression else "a kernel needs its expression, got none"

    def scalar_expression(self, *names: str) -> str:
        """The C++ expression of the output element from those of the inputs."""
        known = dict(zip("abcd", names, strict=False)) | self.attributes
        try:
            return self.expression.format(**known)
        except (KeyError, IndexError) as error:
            raise GraphError(
                f"{self.name}: expression {self.expression!r} names {error.args[0]!r}, "
                f"expected one of {', '.join(known)}"
            ) from None
        except BUGS as bug:
            raise GraphError(
                f"{self.name}: expression {self.expression!r} is no format: {described(bug)}"
            ) from None


@dataclass(frozen=True)
class Reduction(Op):
    """Combines the elements along `axes` by `combine`: sum, prod, max or min.

    The input is one value. `axes` are sorted and not negative; `keepdims` keeps them with size 1.
    """

    order: str = field(default="", kw_only=True)
    """The order in which elements are combined, as `SumOrder` writes it with the numbers of axes;
    "" where none is stated."""

    in_registers: ClassVar[bool] = True
    combine: ClassVar[str] = ""
    axes: tuple[int, ...]
    keepdims: bool

    @property
    def accumulates(self) -> bool:
        return self.combine in ORDERED

    @property
    def reduced_axes(self) -> tuple[int, ...]:
        return self.axes

    def infer(self, *inputs: Type) -> tuple[Type, ...]:
        (x,) = inputs
        shape = tuple(
            1 if i in self.axes else n
            for i, n in enumerate(x.shape)
            if self.keepdims or i not in self.axes
        )
        return (Type(shape, x.dtype),)

    def axis_map(self, *inputs: Type) -> tuple[tuple[Axes, ...], ...]:
        rank, axes = inputs[0].rank, self.axes
        kept = [a for a in range(rank) if self.keepdims or a not in axes]
        return ((tuple(SUMMED if a in axes else kept.index(a) for a in range(rank)),),)

    def evaluate(self, *inputs: Array) -> tuple[Array, ...]:
        if not self.order:
            return super().evaluate(*inputs)
        (x,), axes = inputs, self.axes
        join, identity = ORDERED[self.combine]
        wide = widened(x) if is_narrow(x.dtype) else x
        kept = ordered_reduction(SumOrder.parse(self.order), wide, axes, join, identity)
        result = kept if self.keepdims else kept.squeeze(axes)
        return (convert(result, x.dtype),)

    def batched(self, f: Vocabulary, inputs: Tensors, stacked: Flags, size: int) -> Tensors:
        axes = tuple(a + 1 for a in self.axes)
        return (f.emit(replace(self, axes=axes), inputs[0]),)

    def lack(self, *inputs: Type) -> str:
        if self.combine in COMBINES:
            return ""
        names = ", ".join(COMBINES)
        return f"a kernel needs its combine, one of {names}, got {self.combine!r}"


class View(Op):
    """The same elements elsewhere. `index` says where, if an affine map does."""

    moves: ClassVar[bool] = True
    operations: ClassVar[int] = 0
    takes_narrow: ClassVar[bool] = True
    keeps_value: ClassVar[bool] = True

    def axis_map(self, *inputs: Type) -> tuple[tuple[Axes, ...], ...]:
        (x,), (y,) = inputs, self.infer(*inputs)
        index = self.index(x)
        return (((None,) * x.rank if index is None else unsliced_axes(index, x, y),),)

    def lack(self, *inputs: Type) -> str:
        (x,), index = inputs, self.index(*inputs)
        if index is not None and len(index) == x.rank:
            return ""
        got = "none" if index is None else f"{len(index)}"
        return f"a kernel needs its index, one Affine per axis of {x}, got {got}"


@dataclass(frozen=True)
class Contraction(Op):
    """A sum of products of two operands with affine, zero-padded reads."""

    order: str = field(default="", kw_only=True)
    """The order in which products are added, as `SumOrder` writes it with the names of `iteration`;
    "" where none is stated."""

    contracts: ClassVar[bool] = True
    in_memory: ClassVar[slice] = slice(None)

    @property
    def accumulates(self) -> bool:
        return True

    def evaluate(self, *inputs: Array) -> tuple[Array, ...]:
        if not self.order:
            return super().evaluate(*inputs)
        a, b = (widened(x) if is_narrow(x.dtype) else x for x in inputs)
        types = [Type(x.shape, dtype_name(x.dtype)) for x in inputs]
        iteration = self.iteration(*types)
        result = ordered_contraction(SumOrder.parse(self.order), iteration, a, b)
        (type,) = self.infer(*types)
        full = np.zeros(type.shape, result.dtype)
        full[tuple(map(slice, result.shape))] = result
        return (convert(full, type.numpy_dtype),)

    def axis_map(self, *inputs: Type) -> tuple[tuple[Axes, ...], ...]:
        return (iteration_axes(self.iteration(*inputs), *inputs),)

    def lack(self, *inputs: Type) -> str:
        self.iteration(*inputs)
        return ""


class Window(Op):
    """Computes an output element from a window of the inputs around an affine position.

    It is lowered to a device function of kernels/*/window.h, which gets the inputs' pointers,
    strides and the output's index. So the inputs must be inputs of the kernel, not values computed
    in it.
    """

    in_memory: ClassVar[slice] = slice(None)
    lane_axes: ClassVar[tuple[int, ...]] = (0,)


class Index(Op):
    """Reads a place that another input names. The table is an input of the kernel."""

    in_memory: ClassVar[slice] = slice(None)
    lane_axes: ClassVar[tuple[int, ...]] = ()


class Source(Op):
    """No inputs."""

    is_source: ClassVar[bool] = True
    operations: ClassVar[int] = 0

    def axis_map(self, *inputs: Type) -> tuple[tuple[Axes, ...], ...]:
        return ((),)

    def batched(self, f: Vocabulary, inputs: Tensors, stacked: Flags, size: int) -> Tensors:
        return (repeated(f, f.emit(self), size),)


class Random(Op):
    """Draws elements from a counter-based generator.

    Each depends on the attributes, on the scalar input (a step counter) and on its own logical
    row-major index, never on a layout or a device. Each sample draws numbers of its own; sample 0
    draws those of the op alone.
    """

    shape: tuple[int, ...]

    def axis_map(self, *inputs: Type) -> tuple[tuple[Axes, ...], ...]:
        return (((),),)

    def batched(self, f: Vocabulary, inputs: Tensors, stacked: Flags, size: int) -> Tensors:
        if any(stacked):
            return f.one_by_one(self, inputs, stacked, size)
        return (f.emit(replace(self, shape=(size, *self.shape)), *inputs),)  # type: ignore[type-var]

    @property
    def draws(self) -> bool:
        return True

    operations: ClassVar[int]
    """What an element costs, as of `Pointwise`."""


def broadcast_shapes(name: str, inputs: Sequence[Type]) -> tuple[int, ...]:
    """NumPy's broadcast shape, or GraphError."""
    try:
        return _broadcast(*[t.shape for t in inputs])
    except ValueError:
        raise GraphError(
            f"{name}: shapes do not broadcast: {' and '.join(map(str, inputs))}"
        ) from None


@functools.lru_cache(maxsize=4096)
def _broadcast(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    return np.broadcast_shapes(*shapes)


def same_dtype(name: str, inputs: Sequence[Type]) -> str:
    """The one dtype of all inputs, or GraphError."""
    dtypes = {t.dtype for t in inputs}
    if len(dtypes) != 1:
        raise GraphError(f"{name}: expected one dtype, got {' and '.join(map(str, inputs))}")
    return dtypes.pop()


def check_dtype(name: str, dtype: str, accepted: Sequence[str], inputs: Sequence[Type]) -> None:
    """GraphError unless `dtype` is one of `accepted`; `inputs` are shown in the message."""
    if dtype not in accepted:
        kinds = {NUMBERS: "numbers", FLOATS: "floats", INTEGERS: "integers", ("bool",): "booleans"}
        expected = kinds.get(tuple(accepted), " or ".join(accepted))
        raise GraphError(f"{name}: expected {expected}, got {' and '.join(map(str, inputs))}")
