"""Gradients of gradients of attention against PyTorch's."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest

from graphc import functions as f
from graphc.gradients.reverse import gradients
from graphc.ops import Attention
from graphc.trace import Tensor, current_builder
from tests.functions.comparison import normal
from tests.functions.tracing import run
from tests.tools import need_module


@pytest.fixture(scope="module")
def torch() -> ModuleType:
    return need_module("torch")


ROWS = np.arange(3)[:, None] >= np.arange(4)[None, :] - 1
UNSEEN = ROWS & (np.arange(3) > 0)[:, None]
MASKS: dict[str, np.ndarray | None] = {
    "none": None,
    "booleans": ROWS,
    "a row that sees nothing": UNSEEN,
    "numbers": normal(2, 1, 3, 4, seed=9),
}


def penalty_of(attention: Any, sum_of: Any, slopes_of: Any, floats: Any) -> Any:
    """The squares of the gradients of a loss, whose own gradient needs second derivatives."""
    y = attention(*floats)
    slopes = slopes_of(sum_of(y * y * y), floats)
    return sum_of(y) + sum(sum_of(d * d) for d in slopes)


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize(("kind", "causal"), [("none", True), *((kind, False) for kind in MASKS)])
def test_gradients_of_gradients_of_attention(
    torch: ModuleType, kind: str, causal: bool, grouped: bool
) -> None:
    mask = MASKS[kind]
    heads = 1 if grouped else 2
    floats = [normal(2, 2, 3, 4), normal(2, heads, 4, 4, seed=1), normal(2, heads, 4, 3, seed=2)]
    settings = {"is_causal": causal, "enable_gqa": grouped}
    adds = mask is not None and mask.dtype.kind == "f"
    if adds:
        floats.append(mask)

    def ours(*t: Tensor) -> Tensor:
        given = t[3] if adds else mask
        return f.scaled_dot_product_attention(*t[:3], attn_mask=given, **settings)

    def theirs(*t: Any) -> Any:
        given = t[3] if adds else None if mask is None else torch.tensor(mask)
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
            return torch.nn.functional.scaled_dot_product_attention(*t[:3], given, **settings)

    assert_same_penalty(torch, ours, theirs, floats)


def test_gradients_of_gradients_of_attention_drop_what_it_drops(torch: ModuleType) -> None:
    floats = [normal(2, 2, 3, 4), normal(2, 2, 5, 4, seed=1), normal(2, 2, 5, 3, seed=2)]
    floats.append(normal(2, 1, 3, 5, seed=3))
    op, counter = Attention(False, 0.5, dropout=0.3, seed=7, number=2), np.asarray(4, np.int32)
    kept = op.kept(np.zeros((2, 2, 3, 5)), counter)
    assert 0 < np.count_nonzero(kept) < kept.size

    def ours(*t: Tensor) -> Tensor:
        y, _ = current_builder().emit(op, *t, f.as_tensor(counter))
        return y

    def theirs(q: Any, k: Any, v: Any, mask: Any) -> Any:
        weights = torch.softmax(q @ k.transpose(2, 3) * 0.5 + mask, 3)
        return (weights * torch.tensor(kept)) @ v

    assert_same_penalty(torch, ours, theirs, floats)


def assert_same_penalty(torch: ModuleType, ours: Any, theirs: Any, floats: Any) -> None:
    """The penalties of two attentions are equal, and so are the gradients of these."""

    def penalty(*xs: Tensor) -> Tensor:
        def slopes_of(y: Tensor, wanted: Any) -> Any:
            return gradients([y], [f.ones_like(y)], list(wanted), current_builder())

        return penalty_of(ours, f.sum, slopes_of, xs)

    tensors = [torch.tensor(x, requires_grad=True) for x in floats]
    value = penalty_of(
        theirs, torch.sum, lambda y, w: torch.autograd.grad(y, w, create_graph=True), tensors
    )
    expected = torch.autograd.grad(value, tensors)
    got, *slopes = run(penalty, *floats, slopes=True)
    np.testing.assert_allclose(got, value.item(), rtol=1e-9)
    for mine, other in zip(slopes, expected, strict=True):
        np.testing.assert_allclose(mine, other.nan_to_num(0).numpy(), rtol=1e-8, atol=1e-8)
