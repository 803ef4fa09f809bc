"""Decompositions of PyTorch's operators into those that graphc has rules for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._decomp import core_aten_decompositions, decomposition_table
from torch.export import default_decompositions

aten = torch.ops.aten
_KEPT = (
    aten._scaled_dot_product_flash_attention_for_cpu.default,
    aten.embedding_dense_backward.default,
    aten.native_group_norm.default,
    aten.select_scatter.default,
)
"""Operators that PyTorch would write in others, but that graphc has."""
_WHOLE = (
    aten.inverse.default,
    aten.layer_norm.default,
    aten.linalg_cholesky.default,
    aten.linalg_inv.default,
    aten.linalg_solve.default,
    aten.linear.default,
    aten.scaled_dot_product_attention.default,
)
"""Operators that graphc has whole, with gradients of its own."""
_MORE = (aten.native_batch_norm_backward.default,)


def decompositions() -> dict[Any, Callable[..., Any]]:
    """How PyTorch's operators are written in those that graphc has rules for."""
    table = dict(core_aten_decompositions())
    for operator in _KEPT:
        table.pop(operator, None)
    for operator in _MORE:
        table[operator] = decomposition_table[operator]
    return table


def inference_decompositions() -> dict[Any, Callable[..., Any]]:
    """Return decompositions for graphs without gradients, which graphc differentiates itself.

    Operators that graphc has a function for stay whole.
    """
    table = {**default_decompositions(), **decompositions()}
    return {operator: rule for operator, rule in table.items() if operator not in (*_KEPT, *_WHOLE)}
