"""vmap of the functions that are compared with PyTorch's, against torch.func.vmap: values and
gradients of each sample, in float64."""

from __future__ import annotations

import warnings
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import graphc
from graphc import functions as f
from graphc.ir import FLOATS
from tests.functions import (
    test_against_torch,
    test_losses_against_torch,
    test_networks_against_torch,
    test_order_against_torch,
    test_pointwise_against_torch,
    test_selection_against_torch,
    test_shapes_against_torch,
)
from tests.functions.comparison import Case
from tests.functions.tracing import run
from tests.tools import need_module

SIZE = 3
MODULES = (
    test_against_torch,
    test_losses_against_torch,
    test_networks_against_torch,
    test_order_against_torch,
    test_pointwise_against_torch,
    test_selection_against_torch,
    test_shapes_against_torch,
)
WITHOUT_RULE = ("scatter_reduce prod", "product with zeros", "moveaxis")
"""What torch.func cannot do for samples."""
IN_PLACE = ("label_smoothing", "gaussian_nll_loss")
"""Where PyTorch's losses compute in place, which torch.func refuses."""
UNSPECIFIED = ("kthvalue of NaN", "scatter 1")
"""Which of several NaNs, or of several elements for one place, PyTorch takes."""
CASES = [
    c
    for m in MODULES
    for c in m.CASES
    if not c.name.startswith(WITHOUT_RULE + UNSPECIFIED)
    and not any(word in c.name for word in IN_PLACE)
]
OFTEN = 3
"""One case of so many runs always, all of them in the campaign."""
NUMBERED = [
    pytest.param(i, c, id=c.name, marks=() if i % OFTEN == 0 else pytest.mark.slow)
    for i, c in enumerate(CASES)
]


@pytest.fixture(scope="module")
def torch() -> ModuleType:
    return need_module("torch")


def in_axes(number: int, inputs: tuple[np.ndarray, ...]) -> tuple[int | None, ...]:
    """All inputs mapped, or all but one, in turn; where samples lie changes too."""
    shared = number % (len(inputs) + 1) if len(inputs) > 1 else len(inputs)
    return tuple(None if i == shared else (number + i) % 2 * a.ndim for i, a in enumerate(inputs))


def samples(array: np.ndarray, axis: int | None) -> np.ndarray:
    """Some arrays with the same elements in other orders along `axis`."""
    if axis is None:
        return array
    parts = [np.roll(array.ravel(), i).reshape(array.shape) for i in range(SIZE)]
    return np.stack(parts, axis)


def ours(case: Case, axes: tuple[int | None, ...], inputs: list[np.ndarray]) -> list[np.ndarray]:
    def both(*tensors: Any) -> Any:
        found = case.ours(*tensors)
        results = list(found) if isinstance(found, tuple | list) else [found]
        wanted = [i for i, t in enumerate(tensors) if t.dtype in FLOATS]

        def total(*read: Any) -> Any:
            found = case.ours(*read)
            each = found if isinstance(found, tuple | list) else [found]
            return sum((f.sum(t) for t in each if t.dtype in FLOATS), start=f.zeros((), "f64"))

        return results, list(graphc.grad(total, wanted)(*tensors)) if wanted else []

    def flat(*tensors: Any) -> Any:
        values, slopes = graphc.vmap(both, axes)(*tensors)
        return [*values, *slopes]

    return run(flat, *inputs)


def theirs(
    torch: ModuleType, case: Case, axes: tuple[int | None, ...], inputs: list[np.ndarray]
) -> list[np.ndarray]:
    tensors = [torch.tensor(a) for a in inputs]

    def values(*read: Any) -> Any:
        found = case.theirs(torch, *read)
        return tuple(found) if isinstance(found, tuple | list) else (found,)

    def total(*read: Any) -> Any:
        each = [t.sum() for t in values(*read) if t.is_floating_point()]
        return sum(each, start=torch.zeros((), dtype=torch.float64))

    wanted = tuple(i for i, t in enumerate(tensors) if t.is_floating_point())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of rules that PyTorch does not have
        results = list(torch.func.vmap(values, axes)(*tensors))
        if wanted:
            results += torch.func.vmap(torch.func.grad(total, wanted), axes)(*tensors)
    return [t.numpy() for t in results]


@pytest.mark.parametrize(("number", "case"), NUMBERED)
def test_each_sample_is_that_of_torch(number: int, case: Case, torch: ModuleType) -> None:
    axes = in_axes(number, case.inputs)
    inputs = [samples(a, axis) for a, axis in zip(case.inputs, axes, strict=True)]
    got, expected = ours(case, axes, inputs), theirs(torch, case, axes, inputs)
    assert len(got) == len(expected)
    for a, b in zip(got, expected, strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=case.tolerance, atol=case.tolerance)
