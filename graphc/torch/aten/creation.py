"""Operators that make tensors from numbers.

PyTorch keeps those that draw random numbers, which come from its generator.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from graphc import functions as f
from graphc.torch.aten.rules import aten, dtype_of
from graphc.trace import Tensor


@aten("full")
def full(
    shape: Sequence[int], value: Any, dtype: torch.dtype | None = None, **placed: Any
) -> Tensor:
    return f.full(tuple(shape), value, None if dtype is None else dtype_of(dtype))


@aten("zeros", "empty.memory_format", "_efficientzerotensor")
def zeros(shape: Sequence[int], dtype: torch.dtype | None = None, **placed: Any) -> Tensor:
    return full(shape, 0, dtype or torch.float32)


@aten("empty_permuted", "empty_strided")
def empty(
    shape: Sequence[int], order: Sequence[int], dtype: torch.dtype | None = None, **placed: Any
) -> Tensor:
    return zeros(shape, dtype)


@aten("new_empty_strided")
def new_empty_strided(
    x: Tensor, shape: Sequence[int], strides: Sequence[int], dtype: torch.dtype | None = None,
    **placed: Any,
) -> Tensor:  # fmt: skip
    return new_zeros(x, shape, dtype)


@aten("ones")
def ones(shape: Sequence[int], dtype: torch.dtype | None = None, **placed: Any) -> Tensor:
    return full(shape, 1, dtype or torch.float32)


@aten("new_zeros")
def new_zeros(
    x: Tensor, shape: Sequence[int], dtype: torch.dtype | None = None, **placed: Any
) -> Tensor:
    return new_full(x, shape, 0, dtype)


@aten("new_full")
def new_full(
    x: Tensor, shape: Sequence[int], value: Any, dtype: torch.dtype | None = None, **placed: Any
) -> Tensor:
    return f.full(tuple(shape), value, dtype_of(dtype, x.dtype))


@aten("scalar_tensor")
def scalar_tensor(value: Any, dtype: torch.dtype | None = None, **placed: Any) -> Tensor:
    return f.as_tensor(value, dtype_of(dtype, "f32"))


@aten("arange.start_step")
def arange(
    start: float, end: float, step: float = 1, dtype: torch.dtype | None = None, **placed: Any
) -> Tensor:
    whole = all(isinstance(value, int) for value in (start, end, step))
    return f.arange(start, end, step, dtype_of(dtype, "i64" if whole else "f32"))


@aten("arange", "arange.start")
def arange_from(*ends: float, dtype: torch.dtype | None = None, **placed: Any) -> Tensor:
    return arange(0 if len(ends) == 1 else ends[0], ends[-1], 1, dtype)


@aten("eye")
def eye(n: int, dtype: torch.dtype | None = None, **placed: Any) -> Tensor:
    return f.eye(n, dtype=dtype_of(dtype, "f32"))


@aten("_assert_tensor_metadata")
def assert_tensor_metadata(*given: Any, **named: Any) -> None:
    """What PyTorch knew when it made the graph, and so does graphc."""
