"""Random shapes, elements and attributes: functions and their gradients against PyTorch's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import graphc
from graphc.gradient import gradients
from graphc.ir import FLOATS
from graphc.trace import current_builder
from tests.tools import need_module
from tests.torch import axis_subjects as axis_subjects
from tests.torch import loss_subjects as loss_subjects
from tests.torch import network_subjects as network_subjects
from tests.torch import place_subjects as place_subjects
from tests.torch import pointwise_subjects as pointwise_subjects
from tests.torch import shape_subjects as shape_subjects
from tests.torch.subject import EXCEPTIONS, SUBJECTS, Case, Draw

TOGETHER = 40
"""So many cases are one program."""

Array = np.ndarray


@dataclass(frozen=True)
class Truth:
    """PyTorch's results, what their gradients are seeded with, and the gradients of the floats."""

    outputs: list[Array]
    seeds: list[Array]
    slopes: list[Array]


def truth(torch: ModuleType, case: Case, random: np.random.Generator) -> Truth:
    """In float64, or float32 for a case that is `single`; float results as float32."""
    floats = [a.dtype.kind == "f" for a in case.arrays]
    moving = set(range(len(floats))) - set(case.fixed) if case.slopes else set()
    tensors = []
    for i, (array, is_float) in enumerate(zip(case.arrays, floats, strict=True)):
        wide = array.astype(np.float64) if is_float and not case.single else array
        tensors.append(torch.tensor(wide, requires_grad=is_float and i in moving))
    found = case.theirs(torch, *tensors)
    outputs = list(found) if isinstance(found, tuple | list) else [found]
    seeds = [
        random.uniform(0.5, 1.5, o.shape).astype(np.float32)
        for o in outputs
        if o.is_floating_point()
    ]
    slopes: list[Array] = []
    if case.slopes:
        pairs = zip([o for o in outputs if o.is_floating_point()], seeds, strict=True)
        total = sum(((o * torch.tensor(s)).sum() for o, s in pairs), start=torch.zeros(()))
        wanted = [t for t in tensors if t.requires_grad]
        got: Sequence[Any] = [None] * len(wanted)
        if total.requires_grad:
            got = torch.autograd.grad(total, wanted, allow_unused=True)
        slopes = [
            np.zeros(t.shape) if g is None else g.numpy() for g, t in zip(got, wanted, strict=True)
        ]
    return Truth([o.detach().numpy() for o in outputs], seeds if slopes else [], slopes)


def program(cases: Sequence[Case], truths: Sequence[Truth]) -> tuple[Any, list[Array]]:
    """All cases as one function, and its arguments."""
    arguments = [a for c, t in zip(cases, truths, strict=True) for a in (*c.arrays, *t.seeds)]

    def everything(*tensors: Any) -> tuple[Any, ...]:
        results, at = [], 0
        for case, expected in zip(cases, truths, strict=True):
            middle = at + len(case.arrays)
            inputs, seeds = tensors[at:middle], tensors[middle : middle + len(expected.seeds)]
            at = middle + len(seeds)
            found = case.ours(*inputs)
            outputs = list(found) if isinstance(found, tuple | list) else [found]
            results += outputs
            if expected.slopes:
                sources = [o for o in outputs if o.dtype in FLOATS]
                wanted = [
                    t for i, t in enumerate(inputs) if t.dtype in FLOATS and i not in case.fixed
                ]
                matched = [s.astype(o.dtype) for o, s in zip(sources, seeds, strict=True)]
                slopes = gradients(sources, matched, wanted, current_builder())
                results += [
                    graphc.zeros_like(t) if g is None else g
                    for g, t in zip(slopes, wanted, strict=True)
                ]
        return tuple(results)

    specs = [graphc.spec(a.shape, a.dtype) for a in arguments]
    return graphc.compile(everything, *specs, device="cpu", threads=1), arguments


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


def disagreements(torch: ModuleType, seed: int, count: int) -> list[str]:
    """What disagrees in `count` cases of this seed, all subjects in turn."""
    names = sorted(SUBJECTS)
    draw = Draw(seed)
    drawn = [names[(seed * count + i) % len(names)] for i in range(count)]
    cases = [
        replace(case, slopes=False) if EXCEPTIONS.get(name, ("",))[0] == "gradient" else case
        for name in drawn
        for case in (SUBJECTS[name](draw),)
    ]
    truths = [truth(torch, case, draw.random) for case in cases]
    compiled, arguments = program(cases, truths)
    results = iter(compiled(*arguments))
    wrong = []
    for name, case, expected in zip(drawn, cases, truths, strict=True):
        shapes = " ".join(f"{a.dtype}{a.shape}" for a in case.arrays)
        for what in ("outputs", "slopes"):
            for i, array in enumerate(getattr(expected, what)):
                found = difference(next(results), array, case)
                if found:
                    wrong.append(f"seed {seed}: {name} {shapes} {case.note} {what}[{i}]: {found}")
    return wrong


def test_there_are_120_functions_and_more() -> None:
    from graphc import functions

    assert len(set(SUBJECTS) & set(functions.__all__)) >= 120


@pytest.mark.parametrize("seed", range(6))
def test_functions_and_gradients_agree_with_pytorch(seed: int) -> None:
    assert disagreements(need_module("torch"), seed, TOGETHER) == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6, 125))
def test_functions_and_gradients_agree_with_pytorch_in_many_cases(seed: int) -> None:
    assert disagreements(need_module("torch"), seed, TOGETHER) == []
