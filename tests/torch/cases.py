"""Many cases as one program, and what counts as a disagreement."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import graphc
from graphc.gradients.reverse import gradients
from graphc.ir import FLOATS
from graphc.trace import Tensor, current_builder
from tests.functions.tracing import traced
from tests.torch import axis_subjects as axis_subjects
from tests.torch import loss_subjects as loss_subjects
from tests.torch import network_subjects as network_subjects
from tests.torch import place_subjects as place_subjects
from tests.torch import pointwise_subjects as pointwise_subjects
from tests.torch import shape_subjects as shape_subjects
from tests.torch.subject import EXCEPTIONS as EXCEPTIONS
from tests.torch.subject import SUBJECTS as SUBJECTS
from tests.torch.subject import Case as Case
from tests.torch.subject import Draw as Draw

Array = np.ndarray


def program(
    cases: Sequence[Case], seeds: Sequence[Sequence[Array]], device: str
) -> tuple[graphc.Program, list[Array], list[int]]:
    """All cases as one program, its arguments, and how many results are each case's.

    A case's results are its outputs and, if it has seeds for the float ones of them, the gradients
    of its float arrays.
    """
    arguments = [
        a for case, given in zip(cases, seeds, strict=True) for a in (*case.arrays, *given)
    ]
    counts: list[int] = []

    def everything(*tensors: Tensor) -> tuple[Tensor, ...]:
        results, at = [], 0
        for case, given in zip(cases, seeds, strict=True):
            middle = at + len(case.arrays)
            inputs, weights = tensors[at:middle], tensors[middle : middle + len(given)]
            at = middle + len(given)
            found = case.ours(*inputs)
            mine = list(found) if isinstance(found, tuple | list) else [found]
            mine += _slopes(case, mine, inputs, weights) if given else []
            results += mine
            counts.append(len(mine))
        return tuple(results)

    specs = [graphc.spec(a.shape, a.dtype) for a in arguments]
    compiled = graphc.compile(everything, *specs, device=device, threads=1)
    return compiled, arguments, counts


def _slopes(
    case: Case, outputs: Sequence[Any], inputs: Sequence[Any], weights: Sequence[Any]
) -> list[Any]:
    sources = [o for o in outputs if o.dtype in FLOATS]
    moving = [t for i, t in enumerate(inputs) if t.dtype in FLOATS and i not in case.fixed]
    matched = [w.astype(o.dtype) for o, w in zip(sources, weights, strict=True)]
    slopes = gradients(sources, matched, moving, current_builder())
    return [graphc.zeros_like(t) if g is None else g for g, t in zip(slopes, moving, strict=True)]


def seeds_of(case: Case, seed: int = 0) -> list[Array]:
    """Random seeds of the gradients of the case's float outputs; none if it has no slopes."""
    if not case.slopes or not any(a.dtype.kind == "f" for a in case.arrays):
        return []
    graph, _ = traced(case.ours, *case.arrays)
    kinds = [v.type for v in graph.outputs if v.type.dtype in FLOATS]
    random = np.random.default_rng(seed)
    return [random.uniform(0.5, 1.5, t.shape).astype(np.float32) for t in kinds]


def difference(got: Array, expected: Array, case: Case) -> str:
    """What is wrong with `got`, or "".

    Floats may be off by eps * growth * (16 + 4 sqrt(n)) for the n elements of the case's arrays,
    relative to the largest expected element or 1.
    """
    kinds = {"f": "f", "b": "b", "i": "i", "u": "i"}
    if got.shape != expected.shape or kinds[got.dtype.kind] != kinds[expected.dtype.kind]:
        return f"{got.dtype}{got.shape} for {expected.dtype}{expected.shape}"
    if got.dtype.kind != "f":
        return "" if np.array_equal(got, expected) else f"{got} for {expected}"
    same = (got == expected) | (np.isnan(got) & np.isnan(expected))
    with np.errstate(all="ignore"):
        far = np.where(same, 0, np.abs(got - expected))
    size = max(1.0, float(np.max(np.abs(expected), initial=0, where=np.isfinite(expected))))
    n = sum(a.size for a in case.arrays)
    allowed = float(np.finfo(np.float32).eps) * case.growth * (16 + 4 * n**0.5) * size
    worst = float(np.max(far, initial=0)) if not np.isnan(far).any() else np.inf
    return "" if worst <= allowed else f"off by {worst:.3g}, allowed {allowed:.3g}"
