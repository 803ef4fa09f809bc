"""Random shapes, elements and attributes: functions and their gradients against PyTorch's.

`EXCEPTIONS` in subject.py says what is not compared, and why.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from tests.tools import need_module
from tests.torch.cases import EXCEPTIONS, SUBJECTS, Array, Case, Draw, difference, program

TOGETHER = 40
"""So many cases are one program."""


@dataclass(frozen=True)
class Truth:
    """PyTorch's results, what their gradients are seeded with, and the gradients of the floats."""

    outputs: list[Array]
    seeds: list[Array]
    slopes: list[Array]


def truth(torch: ModuleType, case: Case, random: np.random.Generator) -> Truth:
    """In float64, or in float32 for a case that is `single`."""
    tensors = []
    for i, array in enumerate(case.arrays):
        is_float = array.dtype.kind == "f"
        wide = array.astype(np.float64) if is_float and not case.single else array
        moving = is_float and case.slopes and i not in case.fixed
        tensors.append(torch.tensor(wide, requires_grad=moving))
    found = case.theirs(torch, *tensors)
    outputs = list(found) if isinstance(found, tuple | list) else [found]
    floats = [o for o in outputs if o.is_floating_point()]
    wanted = [t for t in tensors if t.requires_grad]
    if not floats or not wanted:
        return Truth([o.detach().numpy() for o in outputs], [], [])
    seeds = [random.uniform(0.5, 1.5, o.shape).astype(np.float32) for o in floats]
    pairs = zip(floats, seeds, strict=True)
    total = sum(((o * torch.tensor(s)).sum() for o, s in pairs), start=torch.zeros(()))
    got: Sequence[Any] = [None] * len(wanted)
    if total.requires_grad:
        got = torch.autograd.grad(total, wanted, allow_unused=True)
    slopes = [
        np.zeros(t.shape) if g is None else g.numpy() for g, t in zip(got, wanted, strict=True)
    ]
    return Truth([o.detach().numpy() for o in outputs], seeds, slopes)


def disagreements(torch: ModuleType, seed: int, count: int, device: str = "cpu") -> list[str]:
    """What disagrees in `count` cases of this seed, all subjects in turn."""
    names = sorted(SUBJECTS)
    draw = Draw(seed)
    drawn = [names[(seed * count + i) % len(names)] for i in range(count)]
    cases = []
    for name in drawn:
        case = SUBJECTS[name](draw)
        flat = EXCEPTIONS.get(name, ("",))[0] == "gradient"
        cases.append(replace(case, slopes=False) if flat else case)
    truths = [truth(torch, case, draw.random) for case in cases]
    compiled, arguments, counts = program(cases, [t.seeds for t in truths], device)
    results = iter(compiled(*arguments))
    wrong = []
    for name, case, expected, size in zip(drawn, cases, truths, counts, strict=True):
        shapes = " ".join(f"{a.dtype}{a.shape}" for a in case.arrays)
        arrays = [*expected.outputs, *expected.slopes]
        assert size == len(arrays), f"seed {seed}: {name} gives {size} results for {len(arrays)}"
        for i, array in enumerate(arrays):
            found = difference(np.asarray(next(results)), array, case)
            if found:
                wrong.append(f"seed {seed}: {name} {shapes} {case.note} [{i}]: {found}")
    return wrong


def test_there_are_more_than_120_functions_and_each_exception_is_one_of_them() -> None:
    from graphc import functions

    assert len(set(SUBJECTS) & set(functions.__all__)) > 120
    assert set(EXCEPTIONS) <= set(SUBJECTS)


@pytest.mark.parametrize("seed", range(3))
def test_functions_and_gradients_agree_with_pytorch(seed: int) -> None:
    assert disagreements(need_module("torch"), seed, TOGETHER) == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3, 125))
def test_functions_and_gradients_agree_with_pytorch_in_many_cases(seed: int) -> None:
    assert disagreements(need_module("torch"), seed, TOGETHER) == []
