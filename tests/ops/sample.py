"""What a sample of an op is, and the shapes that pointwise ops are tried on."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import numpy as np
import pytest

from graphc.base.dtypes import convert
from graphc.ir import FLOATS, Type
from graphc.ops import Op

Range = tuple[float, float]


@dataclass(frozen=True)
class Sample:
    """An op, the types of its inputs, and from where their elements are drawn.

    `ranges` holds (low, high) per input, or one for all: floats are uniform in it, integers are
    drawn from low to high inclusive, booleans are either.
    """

    op: Op
    inputs: tuple[Type, ...]
    ranges: tuple[Range, ...] = ((-2.0, 2.0),)

    def __str__(self) -> str:
        return f"{self.op.name}({', '.join(map(str, self.inputs))})"

    @property
    def differentiable(self) -> bool:
        """Whether the op has a gradient rule that gives something for these inputs."""
        has_rule = type(self.op).grad is not Op.grad
        return has_rule and any(t.dtype in FLOATS for t in self.inputs)

    def arrays(self, seed: int = 0) -> tuple[np.ndarray, ...]:
        """Row-major elements for the inputs, the same ones for the same seed."""
        random = np.random.default_rng(seed)
        ranges = self.ranges * len(self.inputs) if len(self.ranges) == 1 else self.ranges
        return tuple(_draw(random, t, r) for t, r in zip(self.inputs, ranges, strict=False))

    def with_floats(self, dtype: str) -> Sample:
        """The same sample with every float of another width."""
        inputs = tuple(Type(t.shape, dtype) if t.dtype in FLOATS else t for t in self.inputs)
        op = self.op
        if getattr(op, "dtype", None) in FLOATS:
            op = replace(op, dtype=dtype)  # type: ignore[call-arg]
        return replace(self, op=op, inputs=inputs)


def for_each_op(samples: Iterable[Sample]) -> Callable[[Callable[[Sample], None]], object]:
    """Makes one test per op of a check of one sample, which stays the test's `check`. Thousands of
    tests would take longer to hand around than to run; a failure shows the sample's types."""
    families: dict[str, list[Sample]] = {}
    for sample in samples:
        families.setdefault(sample.op.name, []).append(sample)

    def made(check: Callable[[Sample], None]) -> object:
        @pytest.mark.parametrize("op", families)
        def test(op: str) -> None:
            for sample in families[op]:
                check(sample)

        test.__doc__, test.check = check.__doc__, check  # type: ignore[attr-defined]
        return test

    return made


def _draw(random: np.random.Generator, kind: Type, limits: Range) -> np.ndarray:
    low, high = limits
    if kind.dtype == "bool":
        return random.integers(0, 2, kind.shape).astype(np.bool_)
    if kind.dtype in FLOATS:
        return convert(np.asarray(random.uniform(low, high, kind.shape)), kind.numpy_dtype)
    low = max(low, 0) if kind.dtype == "u8" else low
    return random.integers(int(low), int(high), kind.shape, endpoint=True).astype(kind.numpy_dtype)


def f32(*shape: int) -> Type:
    return Type(shape, "f32")


def of(dtype: str, *shape: int) -> Type:
    return Type(shape, dtype)


ALONE = (
    (3, 5),
    (),
    (0, 4),
    (1, 131),
    (1,),
    (15,),
    (16,),
    (17,),
    (2, 3, 4),
    (2, 1, 3, 1, 5),
    (33, 7),
    (4, 0, 2),
)
"""Shapes of one operand: no axes, no elements, one element, about a vector, up to five axes."""

PAIRS = (
    ((3, 5), (3, 5)),
    ((4, 1, 7), (3, 1)),
    ((), (2, 33)),
    ((0, 3), (1, 3)),
    ((17,), (1,)),
    ((1,), ()),
    ((5, 16), (16,)),
    ((3, 1), (1, 15)),
    ((2, 1, 3, 1, 2), (4, 1, 3, 1)),
    ((1, 131), (2, 1)),
    ((2, 0), (2, 1)),
    ((1, 5), (33, 1)),
    ((2, 3, 4), (4,)),
)
"""Shapes of two operands: equal, broadcast to the left, to the right, to both, nothing at all."""


def one(op: Op, low: float = -2.0, high: float = 2.0, dtype: str = "f32") -> list[Sample]:
    """A pointwise op of one operand, on all shapes."""
    return [Sample(op, (Type(s, dtype),), ((low, high),)) for s in ALONE]


def two(op: Op, *ranges: Range, dtypes: tuple[str, ...] = ("f32",)) -> list[Sample]:
    """A pointwise op of two operands, on all pairs of shapes for the first dtype and on four of
    them, from a place that depends on the dtype, for the others."""
    samples = []
    for number, dtype in enumerate(dtypes):
        pairs = PAIRS if not number else (PAIRS * 2)[number * 3 :][:4]
        samples += [
            Sample(op, (Type(a, dtype), Type(b, dtype)), ranges or ((-3.0, 3.0),)) for a, b in pairs
        ]
    return samples
