"""Comparing values, gradients and second gradients with PyTorch's, on a device and for samples."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import numpy as np

import graphc

Array = np.ndarray


def check(
    torch: ModuleType,
    ours: Callable[..., Any],
    theirs: Callable[..., Any],
    inputs: Sequence[Array],
    *,
    device: str = "reference",
    tolerance: float = 1e-9,
    second: bool = True,
    seed: int = 0,
) -> None:
    """Assert that both functions of the inputs have equal results and derivatives.

    The results are tuples of floats. Compared are their values, the gradients of a weighted sum of
    them, and of a weighted sum of these gradients if `second`. The tolerance is relative to the
    largest element.
    """
    tensors = [torch.tensor(x, requires_grad=True) for x in inputs]
    expected = as_tuple(theirs(*tensors))
    weights = [drawn(seed + i, x.shape, inputs[0].dtype) for i, x in enumerate(expected)]
    turns = [drawn(seed + 9 + i, x.shape, x.dtype) for i, x in enumerate(inputs)]
    loss = sum((y * torch.tensor(w)).sum() for y, w in zip(expected, weights, strict=True))
    slopes = torch.autograd.grad(loss, tensors, create_graph=second, allow_unused=True)
    slopes = [torch.zeros_like(x) if s is None else s for x, s in zip(tensors, slopes, strict=True)]
    whole = [*expected, *slopes]
    if second:
        total = sum((s * torch.tensor(t)).sum() for s, t in zip(slopes, turns, strict=True))
        total = total + 0 * sum((x * x).sum() for x in tensors)
        whole += torch.autograd.grad(total, tensors)

    def value(*x: Any) -> Any:
        results = as_tuple(ours(*x))
        return sum(graphc.sum(y * w) for y, w in zip(results, weights, strict=True))

    numbers = tuple(range(len(inputs)))

    def turned(*x: Any) -> Any:
        found = graphc.grad(value, numbers)(*x)
        return sum(graphc.sum(s * t) for s, t in zip(found, turns, strict=True))

    def every(*x: Any) -> Any:
        first = [*as_tuple(ours(*x)), *graphc.grad(value, numbers)(*x)]
        return [*first, *graphc.grad(turned, numbers)(*x)] if second else first

    specs = [graphc.spec(x.shape, str(x.dtype)) for x in inputs]
    got = graphc.compile(every, *specs, device=device)(*inputs)
    assert len(got) == len(whole)
    for number, (a, b) in enumerate(zip(got, whole, strict=True)):
        close(a, b.detach().numpy(), tolerance, f"result {number}")


def close(a: Array, b: Array, tolerance: float, what: str = "") -> None:
    """Assert that arrays are equal up to a part of the largest element."""
    assert a.shape == b.shape and a.dtype == b.dtype, (what, a.shape, b.shape, a.dtype, b.dtype)
    scale = max(1.0, float(np.max(np.abs(b), initial=0)))
    np.testing.assert_allclose(a, b, rtol=0, atol=tolerance * scale, err_msg=what)


def check_samples(function: Callable[..., Any], inputs: Sequence[Array], device: str) -> None:
    """Assert that vmap gives what a call for each sample does, which the first axes count.

    On a GPU products of more rows may add in another order; elsewhere the bits are the same.
    """
    tolerance = 0.0 if device != "sim" else 1e-5 if inputs[0].dtype.itemsize == 4 else 1e-13
    specs = [graphc.spec(x.shape, str(x.dtype)) for x in inputs]
    together = graphc.compile(graphc.vmap(function), *specs, device=device)(*inputs)
    ones = [graphc.spec(x.shape[1:], str(x.dtype)) for x in inputs]
    single = graphc.compile(function, *ones, device=device)
    for place in range(len(inputs[0])):
        apart = as_tuple(single(*(x[place] for x in inputs)))
        for a, b in zip(as_tuple(together), apart, strict=True):
            close(a[place], b, tolerance)


def as_tuple(found: Any) -> tuple[Any, ...]:
    """Several results as a tuple."""
    return tuple(found) if isinstance(found, tuple | list) else (found,)


def drawn(seed: int, shape: Sequence[int], dtype: Any) -> Array:
    """Normal numbers of a seed."""
    return np.random.default_rng(seed).normal(size=tuple(shape)).astype(dtype)
