"""Mixtures of experts written with PyTorch's grouped products, and with those of transformers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import graphc
from tests.tools import need_module

torch = need_module("torch")
backend = need_module("graphc.torch")
nn, F = torch.nn, torch.nn.functional
EXPERTS, CHOSEN, WIDTH, HIDDEN = 6, 2, 8, 16


def registered() -> Any:
    """The operator that transformers registers for products without a grouped kernel: a loop over
    the experts, which no tracer can follow."""
    name = "transformers::grouped_mm_fallback"
    if hasattr(torch.ops.transformers, "grouped_mm_fallback"):
        return torch.ops.transformers.grouped_mm_fallback

    def product(x: Any, weight: Any, offs: Any) -> Any:
        y, start = x.new_zeros(len(x), weight.shape[2]), 0
        for matrix, end in zip(weight, offs.tolist(), strict=True):
            y[start:end] = x[start:end] @ matrix
            start = end
        return y

    def gradients(x: Any, weight: Any, offs: Any, dy: Any) -> Any:
        dx, dw, start = torch.zeros_like(x), torch.zeros_like(weight), 0
        for i, end in enumerate(offs.tolist()):
            dx[start:end] = dy[start:end] @ weight[i].T
            dw[i] = x[start:end].T @ dy[start:end]
            start = end
        return dx, dw

    ends = "(Tensor input, Tensor weight, Tensor offs"
    from torch import library

    backward = f"{name}_backward"
    library.custom_op(name, product, mutates_args=(), schema=f"{ends}) -> Tensor")
    library.custom_op(
        backward, gradients, mutates_args=(), schema=f"{ends}, Tensor dy) -> (Tensor, Tensor)"
    )
    library.register_fake(name, lambda x, w, offs: x.new_empty(len(x), w.shape[2]))
    library.register_fake(
        backward, lambda x, w, offs, dy: (x.new_empty(x.shape), w.new_empty(w.shape))
    )

    def keep(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs)

    def pull(ctx: Any, dy: Any) -> Any:
        given = ctx.saved_tensors
        return *torch.ops.transformers.grouped_mm_fallback_backward(*given, dy), None

    library.register_autograd(name, pull, setup_context=keep)
    return torch.ops.transformers.grouped_mm_fallback


class Experts(nn.Module):
    """Each token through the experts that a router chooses, their rows sorted by expert."""

    def __init__(self, product: Any) -> None:
        super().__init__()
        self.product = product
        self.router = nn.Linear(WIDTH, EXPERTS)
        self.up = nn.Parameter(torch.randn(EXPERTS, HIDDEN, WIDTH) * 0.3)
        self.down = nn.Parameter(torch.randn(EXPERTS, WIDTH, HIDDEN) * 0.3)

    def forward(self, x: Any) -> Any:
        share, chosen = torch.topk(self.router(x).softmax(-1), CHOSEN)
        order = torch.argsort(chosen.reshape(-1), stable=True)
        counts = F.one_hot(chosen.reshape(-1), EXPERTS).sum(0)
        offs = torch.cumsum(counts, 0).to(torch.int32)
        rows = x[order // CHOSEN]
        y = F.silu(self.product(rows, self.up.transpose(1, 2), offs))
        y = self.product(y, self.down.transpose(1, 2), offs)
        y = y * share.reshape(-1)[order].unsqueeze(1)
        return torch.zeros_like(x).index_add(0, order // CHOSEN, y)


def of_pytorch(x: Any, weight: Any, offs: Any) -> Any:
    """PyTorch traces those of bfloat16 alone."""
    narrow = torch.bfloat16
    return F.grouped_mm(x.to(narrow), weight.to(narrow), offs=offs).to(x.dtype)


def of_transformers(x: Any, weight: Any, offs: Any) -> Any:
    return registered()(x, weight, offs)


Case = tuple[Any, float]


@pytest.fixture(params=[(of_pytorch, 2e-2), (of_transformers, 1e-5)])
def case(request: pytest.FixtureRequest) -> Case:
    """The model, and how far results may be apart, relative to the largest."""
    torch.manual_seed(0)
    registered()
    product, tolerance = request.param
    return Experts(product), tolerance


def close(got: Any, wanted: Any, tolerance: float) -> None:
    wanted = np.asarray(wanted.detach())
    np.testing.assert_allclose(np.asarray(got), wanted, 0, tolerance * np.abs(wanted).max())


def test_from_torch_computes_and_trains_them(case: Case) -> None:
    experts, tolerance = case
    x = torch.randn(20, WIDTH)
    want = experts(x)
    want.square().mean().backward()
    ours = graphc.from_torch(experts, x)
    run = graphc.compile(
        graphc.value_and_grad(lambda m, x: graphc.mean(graphc.square(m(x)))),
        ours,
        graphc.spec((20, WIDTH)),
        training=True,
    )
    value, gradients = run(x.numpy())
    close(value, want.square().mean(), tolerance)
    assert len(gradients) == 4
    for name, parameter in experts.named_parameters():
        close(gradients[name], parameter.grad, tolerance)
    forward = graphc.compile(lambda m, x: m(x), ours, graphc.spec((20, WIDTH)))
    close(forward(x.numpy()), want, tolerance)


def test_torch_compile_leaves_only_checks_to_pytorch(case: Case) -> None:
    experts, tolerance = case
    x = torch.randn(20, WIDTH, requires_grad=True)
    found = backend.report(experts, x)
    assert {name for name, _ in found.refused} == {"aten._assert_async.msg"}, str(found)
    x.grad = None
    experts.zero_grad()
    want = experts(x)
    want.square().mean().backward()
    tensors = [x, *experts.parameters()]
    expected = [t.grad.clone() for t in tensors]
    for tensor in tensors:
        tensor.grad = None
    got = torch.compile(experts, backend="graphc")(x)
    got.square().mean().backward()
    close(got.detach(), want, tolerance)
    for tensor, gradient in zip(tensors, expected, strict=True):
        close(tensor.grad, gradient, tolerance)
