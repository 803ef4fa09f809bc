"""Values without inputs: constants and index ramps."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from graphc.base.dtypes import BFLOAT16, array_of, is_bfloat16
from graphc.base.errors import GraphError
from graphc.ir import DTYPES, Type, dtype_name
from graphc.ops.base import Array, Source


@dataclass(frozen=True)
class Elements:
    """The contents of an array, compared by dtype, shape and digest (of all three).

    `array` is read-only; None if only the digest is known, as after parsing a dump.
    """

    dtype: str
    shape: tuple[int, ...]
    digest: str
    array: Array | None = field(default=None, compare=False, repr=False)

    @classmethod
    def of(cls, value: Any) -> Elements:
        """A copy of `value`, row-major."""
        array = np.array(value, order="C")
        array = array.view(BFLOAT16) if is_bfloat16(array.dtype) else array
        array.flags.writeable = False
        dtype = dtype_name(array.dtype)
        digest = hashlib.sha256(f"{dtype}{array.shape}".encode() + array.tobytes())
        return cls(dtype, array.shape, digest.hexdigest()[:16], array)


PLACED = "constant."
"""What the name of the state value begins with that holds a constant in memory; then its digest."""

INLINE_ELEMENTS = 16
"""A constant of at most this many elements is printed into the kernels that read it."""


@dataclass(frozen=True)
class Constant(Source):
    """y[i] = value[i]."""

    value: Elements
    name: ClassVar[str] = "constant"
    called: ClassVar[str] = ""

    @classmethod
    def of(cls, value: Any) -> Constant:
        """The constant that holds a copy of `value`: an array, or anything NumPy makes one of."""
        return cls(Elements.of(value))

    takes_narrow: ClassVar[bool] = True

    def is_free(self, *inputs: Type) -> bool:
        return math.prod(self.value.shape) <= INLINE_ELEMENTS

    @property
    def array(self) -> Array:
        """The elements, or GraphError if only their digest is known."""
        if self.value.array is None:
            kind = Type(self.value.shape, self.value.dtype)
            raise GraphError(f"constant: the elements of {kind} {self.value.digest} are not known")
        return self.value.array

    def infer(self, *inputs: Type) -> tuple[Type, ...]:
        return (Type(self.value.shape, self.value.dtype),)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        return (self.array,)


@dataclass(frozen=True)
class Iota(Source):
    """y[i_0, ..., i_r] = i_axis."""

    shape: tuple[int, ...]
    axis: int
    dtype: str = "i32"
    name: ClassVar[str] = "iota"

    def infer(self, *inputs: Type) -> tuple[Type, ...]:
        assert 0 <= self.axis < len(self.shape)
        return (Type(self.shape, self.dtype),)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        extents = [1] * len(self.shape)
        extents[self.axis] = self.shape[self.axis]
        ramp = array_of(np.arange(self.shape[self.axis]), DTYPES[self.dtype]).reshape(extents)
        return (np.broadcast_to(ramp, self.shape),)
