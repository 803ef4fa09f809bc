"""The samples in the dtypes that their families leave out: a few of each op in each dtype that the
op accepts, and conversions from each dtype to each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from graphc.base.errors import GraphError
from graphc.ir import DTYPES, FLOATS, NARROW, Type
from graphc.ops import Cast
from tests.ops.sample import Sample
from tests.ops.samples import SAMPLES

WIDEST = 4096
"""Elements of the largest operand of a sample that is taken."""


def in_dtype(sample: Sample, dtype: str) -> Sample | None:
    """The sample with its floats in another dtype, integers drawn from whole numbers of the same
    range; None if the op does not accept it."""
    try:
        changed = sample.with_floats(dtype)
        if dtype not in FLOATS:
            inputs = tuple(
                replace(t, dtype=dtype) if t.dtype in FLOATS else t for t in sample.inputs
            )
            changed = replace(sample, inputs=inputs)
        changed.op.infer(*changed.inputs)
    except (GraphError, AssertionError):
        return None
    if dtype == "bool" and sample.op.name.endswith("_grad"):
        return None  # a sum of booleans is nobody's gradient
    return changed


def of_dtype(dtype: str, each: int) -> list[Sample]:
    """At most `each` samples of every op in `dtype`, of different shapes."""
    chosen: dict[str, dict[tuple[Type, ...], Sample]] = {}
    for sample in _candidates(SAMPLES):
        found = chosen.setdefault(sample.op.name, {})
        if len(found) < each and sample.inputs not in found:
            changed = in_dtype(sample, dtype)
            if changed is not None:
                found[sample.inputs] = changed
    return [s for found in chosen.values() for s in found.values()]


def _candidates(samples: Sequence[Sample]) -> Iterator[Sample]:
    for sample in samples:
        sizes = [t.size for t in sample.inputs]
        if any(t.dtype == "f32" for t in sample.inputs) and 1 < max(sizes) <= WIDEST:
            if all(sizes):
                yield sample


CASTS = [
    Sample(
        Cast(target),
        (Type((5, 37), source),),
        ((0.0, 100.0),) if "u8" in (source, target) else ((-90.0, 90.0),),
    )
    for source in DTYPES
    for target in DTYPES
    if source != target
]
"""Numbers that every dtype but bool holds, more or less exactly."""

NARROW_SAMPLES = {dtype: of_dtype(dtype, 2) for dtype in NARROW}
OTHER_SAMPLES = {dtype: of_dtype(dtype, 1) for dtype in DTYPES if dtype not in ("f32", *NARROW)}
