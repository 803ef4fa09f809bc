"""With which words graphc leaves an operator to PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import graphc
from graphc.base.errors import GraphError
from tests.tools import need_module

torch = need_module("torch")
F = torch.nn.functional
X, MASK = graphc.spec((3, 4)), graphc.spec((3, 4), "bool")


def refused(function: Callable[..., Any], *inputs: Any) -> set[str]:
    """The reasons why operators of the function or its gradient stay with PyTorch."""
    from graphc.torch import report

    return {reason.partition(" (")[0] for _, reason in report(function, *inputs).refused}


def refusal(function: Callable[..., Any], *specs: Any) -> str:
    """The message of a rule that does not take these arguments."""
    with pytest.raises(GraphError) as caught:
        graphc.trace(function, *specs)
    return str(caught.value).partition(" (")[0]


def test_dtypes_that_graphc_lacks() -> None:
    found = refused(lambda x: (x.to(torch.complex64) * 2).abs(), torch.ones(3))
    assert "tensors of torch.complex64 are not offered" in found


def test_tensors_that_do_not_lie_in_the_hosts_memory() -> None:
    from graphc.torch.partition import type_of

    with pytest.raises(GraphError) as caught:
        type_of(torch.empty(2, device="meta"))
    message = "tensors on meta of layout torch.strided are not offered"
    assert str(caught.value) == message


def test_gradients_of_embeddings_that_are_scaled_by_frequency() -> None:
    table = torch.ones(3, 2, requires_grad=True)
    found = refused(
        lambda i, table: F.embedding(i, table, scale_grad_by_freq=True), torch.tensor([0, 1]), table
    )
    assert found == {"embedding: gradients scaled by frequency are not offered"}


def test_places_of_16_bits_in_images() -> None:
    """Which pixels are met depends on the rounding: it was another gradient than PyTorch's."""
    x, grid = torch.ones(1, 1, 3, 3), torch.zeros(1, 2, 2, 2)
    found = refused(
        lambda x, grid: F.grid_sample(x, grid, align_corners=False),
        *(t.bfloat16().requires_grad_() for t in (x, grid)),
    )
    assert found == {"grid_sample: PyTorch rounds places of 16 bits, so that it takes other pixels"}


def test_sizes_that_a_scale_does_not_give() -> None:
    from graphc.torch.aten import rule_of

    resize = rule_of("aten.upsample_bilinear2d.default")
    assert resize is not None
    found = refusal(lambda x: resize(x, (10, 10), False, 1.5, 1.5), graphc.spec((1, 1, 7, 7)))
    assert found == "interpolate: 7 elements times 1.5 are not 10"


def test_masks_that_decide_a_shape() -> None:
    from graphc.torch.aten.indexing import index, index_put

    read = refusal(lambda x, mask: index(x, [mask]), X, MASK)
    assert read == "x[mask]: how many elements there are depends on values"
    written = refusal(lambda x, mask: index_put(x, [mask], x[0]), X, MASK)
    assert written == "x[mask] = values: how many elements there are depends on values"


def test_attention_that_drops() -> None:
    from graphc.torch.aten.attention import attention

    found = refusal(lambda q: attention(q, q, q, 0.1), graphc.spec((1, 2, 3, 4)))
    assert found == "attention: with dropout, or so many features, it is left to PyTorch"


def test_reads_by_strides_of_memory_that_graphc_does_not_have() -> None:
    from graphc.torch.aten.strides import as_strided, as_strided_scatter
    from graphc.torch.backend import graphc as backend

    def function(x: Any) -> Any:
        return x.exp()[1:, 2:].as_strided((2, 2), (5, 1), 3) + 1

    x = torch.arange(20.0).view(4, 5) / 10
    assert refused(function, x) == {
        "as_strided: of a part of another tensor's memory it is left to PyTorch",
        "what aten.slice.Tensor gives is read by strides",
    }
    torch._dynamo.reset()
    torch.testing.assert_close(torch.compile(function, backend=backend)(x), function(x))
    row = graphc.spec((12,))
    found = refusal(lambda x: as_strided(x, (3, 4), (4, 1), 1), row)
    assert found == "as_strided: element 12 of a tensor that has 12"
    found = refusal(lambda x: as_strided_scatter(x, x[:6], (2, 3), (1, 1)), row)
    assert found == "as_strided_scatter: which of several elements for a place stays is left open"


def test_a_rule_that_gives_another_shape_than_pytorch() -> None:
    from graphc.torch.interpret import fitted

    found = refusal(lambda x: fitted(x, torch.empty(4, 3)), X)
    message = "expected a tensor of shape (4, 3), got (3, 4)"
    assert message.startswith(found)


def test_tensors_that_require_grad() -> None:
    weights = torch.ones(3, requires_grad=True)
    program = graphc.compile(lambda x: x * 2, graphc.spec((3,)), device="reference")
    calls: dict[str, Any] = {
        "x": lambda: program(weights),
        "constant": lambda: graphc.trace(lambda x: x * weights, graphc.spec((3,))),
        "array": lambda: graphc.nn.Parameter(weights),
    }
    for name, call in calls.items():
        with pytest.raises(GraphError) as caught:
            call()
        assert str(caught.value) == (
            f"{name}: expected an array, got a tensor that requires grad, and PyTorch's gradients "
            f"end where graphc begins; {name}.detach() is the array"
        )
    assert program(weights.detach()).tolist() == [2.0, 2.0, 2.0]


def test_derivatives_of_digamma_that_are_nan_below_0() -> None:
    reasons = refused(lambda x: torch.polygamma(2, x), torch.randn(3))
    assert reasons == {
        "polygamma of order 2 and more is NaN below 0, where PyTorch has numbers",
    }
    assert refused(lambda x: torch.polygamma(1, x), torch.randn(3)) == set()
