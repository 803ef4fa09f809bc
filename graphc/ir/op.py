"""The base of all ops: attributes, types, reference in NumPy, gradient, axes.

An op is a frozen dataclass; its fields are its attributes. `graphc.ops.base` has the families.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from dataclasses import fields, is_dataclass
from inspect import get_annotations
from typing import Any, ClassVar, cast

import numpy as np

from graphc.base.dtypes import convert, is_narrow, widened
from graphc.base.errors import BUGS, GraphError, described
from graphc.base.source_lines import error
from graphc.ir.facts import Facts
from graphc.ir.types import Array, Type, dtype_name
from graphc.ir.vocabulary import Gradients, Tensors, Vocabulary

Flags = Sequence[bool]
Axes = tuple[int | None, ...]
"""For each axis of an input the axis of the output with the same index; see `Op.axis_map`."""
REGISTRY: dict[str, type[Op]] = {}
"""Every op class by its name; the only global state but the configuration."""

TAKEN = {n for n in vars(Facts) if not n.startswith("_")} - {"name", "own_template"}
"""What an attribute of a user's op cannot be called."""


class Op(Facts):
    """Base class of all ops; a subclass that sets `name` is registered under it."""

    widens: ClassVar[bool] = True
    """Whether floats of two bytes are widened for `reference`; False for an op that holds a graph,
    whose nodes each do so themselves."""

    def multiplying(self, dtype: str) -> Op:
        """Return the op that rounds the factors it holds itself to `dtype`."""
        return self

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        given = get_annotations(cls).items()
        taken = [n for n, kind in given if n in TAKEN and "ClassVar" not in str(kind)]
        if taken and cls.is_own():
            raise error(
                f"{cls.__qualname__}: every op says {taken[0]!r} of itself (graphc/ir/facts.py): "
                "give the attribute another name"
            )
        if "name" in cls.__dict__ and cls.name:
            known = REGISTRY.get(cls.name, cls)
            again = known.__qualname__ == cls.__qualname__ and known.is_own() == cls.is_own()
            if not again:
                raise error(
                    f"an op named {cls.name!r} exists, {known.__module__}.{known.__qualname__}: "
                    f"give {cls.__qualname__} another name"
                )
            REGISTRY[cls.name] = cls

    def infer(self, *inputs: Type) -> tuple[Type, ...]:
        """Return the outputs' types, without layouts, or raise GraphError."""
        raise GraphError(f"{self.name} has no type rule: write infer")

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        """Return the outputs in NumPy, in the inputs' dtype; this defines the op."""
        raise GraphError(f"{self.name} has no meaning in NumPy: write reference")

    def grad(self, f: Vocabulary, inputs: Tensors, outputs: Tensors, grads: Tensors) -> Gradients:
        """Return the gradient of each input from those of the outputs, in traced tensors.

        `f` holds the functions for it. None means zero; `grads` holds None only where the op has
        several outputs. A gradient may keep the broadcast shape of the output: the caller sums it
        to the input's shape. It raises GraphError where there is no gradient.
        """
        raise GraphError(f"{self.name} has no gradient")

    def axis_map(self, *inputs: Type) -> tuple[tuple[Axes, ...], ...]:
        """Return, for each output and input, where each axis of the input goes.

        Axis a of an input goes to axis d of the output if element i along d depends, of all inputs
        with an axis that goes to d, on their elements i alone, in the same way for each i. SUMMED
        says that the output combines the elements along a, whose order does not matter; where
        several inputs have such axes they are summed together. None: otherwise, or not known.
        """
        outputs = self.infer(*inputs)
        return (tuple((None,) * t.rank for t in inputs),) * len(outputs)

    def batched(self, f: Vocabulary, inputs: Tensors, stacked: Flags, size: int) -> Tensors:
        """Return the outputs for each of `size` samples, on a new first axis of each output.

        `stacked` says which inputs have an axis for the samples, their first; the others are the
        same for all. Written in the tensor operations of `f`. An op without a rule is computed for
        one sample after the other.
        """
        return f.one_by_one(self, inputs, stacked, size)

    @property
    def draws(self) -> bool:
        """Whether equal samples give different results, since each draws its own numbers."""
        return False

    def evaluate(self, *inputs: Array) -> tuple[Array, ...]:
        """Return what `reference` returns, or raise GraphError if that is no tuple of arrays.

        f16 and bf16 are computed in float32, and results of these dtypes are rounded once.
        """
        narrow = self.widens and any(is_narrow(x.dtype) for x in inputs)
        try:
            results = self.reference(*(map(widened, inputs) if narrow else inputs))
        except BUGS as bug:
            if self.is_own():
                raise GraphError(f"{self.name}: reference raised {described(bug)}") from bug
            raise
        if not isinstance(results, tuple):
            raise GraphError(
                f"{self.name}: reference expected to return a tuple of arrays, "
                f"got {type(results).__name__}"
            )
        if not narrow and not self.is_own():
            return results
        types = self.infer(*(Type(x.shape, dtype_name(x.dtype)) for x in inputs))
        shapes = [np.shape(r) for r in results]
        if shapes != [t.shape for t in types]:
            raise GraphError(
                f"{self.name}: reference expected to return arrays of shapes "
                f"{_lists(t.shape for t in types)}, got {_lists(shapes)}"
            )
        if not narrow:
            return results
        return tuple(convert(r, t.numpy_dtype) for r, t in zip(results, types, strict=True))

    def differentiate(
        self,
        f: Vocabulary,
        inputs: Tensors,
        outputs: Tensors,
        grads: Gradients,
        lines: Sequence[str] = (),
    ) -> Gradients:
        """Return what `grad` returns, or raise GraphError unless it fits the inputs.

        `lines` are the user's, for the messages.
        """
        try:
            parts = self.grad(f, inputs, outputs, cast(Tensors, grads))
            if not isinstance(parts, tuple | list) or len(parts) != len(inputs):
                size = f" of {len(parts)}" if isinstance(parts, tuple | list) else ""
                raise GraphError(
                    f"{self.name}: grad expected to return a tuple of {len(inputs)} gradients, "
                    f"got {type(parts).__name__}{size}"
                )
        except BUGS as bug:
            if not self.is_own():
                raise
            line = f" ({lines[0]})" if lines else ""
            raise GraphError(f"{self.name}: grad raised {described(bug)}{line}") from bug
        except GraphError as error:
            if lines and f"({lines[0]}" not in str(error):
                error.args = (f"{error} ({lines[0]})",)
            raise
        return parts

    @classmethod
    def is_own(cls) -> bool:
        """Whether the class is the user's."""
        return not cls.__module__.startswith("graphc.")

    @property
    def attributes(self) -> dict[str, Any]:
        """Field name -> value, in the order of the fields."""
        kind: Any = type(self)
        return {name: getattr(self, name) for name in _field_names(kind)}


@functools.cache
def _field_names(kind: Any) -> tuple[str, ...]:
    return tuple(f.name for f in fields(kind)) if is_dataclass(kind) else ()


def _lists(shapes: Iterable[tuple[int, ...]]) -> str:
    return " and ".join(str(list(shape)) for shape in shapes) or "none"
