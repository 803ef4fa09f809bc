"""`torch.compile(model, backend="graphc")` as a whole: what surrounds a graph's operators."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

from tests.tools import need_command, need_module, run_python

torch = need_module("torch")
nn, F = torch.nn, torch.nn.functional


@pytest.fixture(autouse=True)
def fresh() -> None:
    need_command("g++", "clang++")
    torch._dynamo.reset()
    torch.manual_seed(0)


def compiled(model: Any, **options: Any) -> Any:
    from graphc.torch.backend import graphc

    return torch.compile(model, backend=graphc, **options)


def convolutional() -> Any:
    layers = [
        nn.Conv2d(3, 6, 3, bias=False),
        nn.BatchNorm2d(6),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
    ]
    return nn.Sequential(*layers, nn.Linear(54, 4))


def close(a: Any, b: Any) -> None:
    np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-4, atol=1e-5)


def test_training_steps_are_those_of_eager_with_buffers_and_any_optimizer() -> None:
    own = convolutional()
    eager = copy.deepcopy(own)
    x, y = torch.randn(5, 3, 8, 8), torch.randint(0, 4, (5,))
    for model, call in ((own, compiled(own)), (eager, eager)):
        rule = torch.optim.AdamW(model.parameters(), lr=1e-2)
        for _ in range(3):
            rule.zero_grad()
            F.cross_entropy(call(x), y).backward()
            rule.step()
    for (name, a), (_, b) in zip(own.state_dict().items(), eager.state_dict().items(), strict=True):
        assert a.dtype == b.dtype, name
        close(a, b)


def test_evaluation_after_training_reads_what_training_wrote() -> None:
    model = convolutional()
    call, x = compiled(model), torch.randn(5, 3, 8, 8)
    before = call(x)
    model.eval()
    with torch.no_grad():
        close(call(x), copy.deepcopy(model)(x))
    assert not torch.allclose(call(x), before)


def test_what_graphc_has_not_got_is_left_to_pytorch_and_reported() -> None:
    import graphc.torch

    def function(x: Any) -> Any:
        return torch.linalg.lu_factor(x @ x.t() + 3 * torch.eye(3))[0].exp().sum()

    x = torch.randn(3, 4)
    close(compiled(function)(x), function(x))
    found = graphc.torch.report(function, x)
    assert 0.5 < found.share < 1
    assert "aten.linalg_lu_factor_ex.default is not offered" in str(found)
    assert found.taken["aten.exp.default"] == 1


def test_a_report_counts_forward_and_backward() -> None:
    import graphc.torch

    found = graphc.torch.report(nn.Linear(4, 3), torch.randn(2, 4))
    assert (found.graphs, found.share) == (2, 1.0)
    assert str(found).startswith("2 graphs, ")


def test_dropout_draws_from_pytorchs_generator() -> None:
    function = compiled(lambda x: F.dropout(x, 0.5) * 2)
    x = torch.ones(1000)
    torch.manual_seed(3)
    first, second = function(x), function(x)
    torch.manual_seed(3)
    assert torch.equal(function(x), first)
    assert not torch.equal(first, second)
    assert 400 < int((first == 0).sum()) < 600
    assert set(first.tolist()) == {0.0, 4.0}


def test_the_backward_pass_drops_what_the_forward_pass_dropped() -> None:
    x = torch.ones(1000, requires_grad=True)
    y = compiled(lambda x: F.dropout(x * 3, 0.5))(x)
    y.sum().backward()
    assert torch.equal((x.grad == 0), (y == 0))


def test_another_batch_size_is_another_program() -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    call = compiled(model)
    for rows in (3, 5, 1, 7, 3):
        x = torch.randn(rows, 4)
        close(call(x), model(x))


def test_sizes_that_are_marked_dynamic_need_no_second_graph() -> None:
    graphs = []

    def backend(module: Any, inputs: Any) -> Any:
        from graphc.torch.backend import graphc

        graphs.append(module)
        return graphc(module, inputs)

    call = torch.compile(lambda x: (x * 2).view(x.shape[0] * 2, -1).sum(1), backend=backend)
    for rows in (4, 6, 9):
        x = torch.randn(rows, 4)
        torch._dynamo.mark_dynamic(x, 0)
        close(call(x), (x * 2).view(rows * 2, -1).sum(1))
    assert len(graphs) == 1


def test_narrow_floats() -> None:
    def function(x: Any) -> Any:
        return (x * 3 + 1).relu().sum(1)

    x = torch.randn(3, 4).to(torch.bfloat16)
    own = compiled(function)(x)
    assert own.dtype == torch.bfloat16
    close(own.float(), function(x).float())


def test_what_a_function_writes_into_its_argument_is_there_afterwards() -> None:
    def function(x: Any) -> Any:
        x.add_(1)
        return x * 2

    x = torch.zeros(3)
    assert compiled(function)(x).tolist() == [2, 2, 2]
    assert x.tolist() == [1, 1, 1]


def test_tensors_out_of_order_and_constants_are_taken() -> None:
    table = torch.arange(12.0).reshape(3, 4)
    x = torch.randn(4, 3).t()
    close(compiled(lambda x: x[:, 1:] + table[:, ::2][:, :1])(x), x[:, 1:] + table[:, ::2][:, :1])


def test_results_are_memory_of_their_own() -> None:
    call = compiled(lambda x: x + 1)
    first = call(torch.zeros(3))
    call(torch.ones(3))
    assert first.tolist() == [1, 1, 1]


def test_a_new_process_finds_the_backend_by_its_name() -> None:
    program = """
import torch
model = torch.compile(torch.nn.Linear(3, 2), backend="graphc")
x = torch.ones(1, 3)
print(torch.allclose(model(x), model._orig_mod(x), atol=1e-5))
import sys; print("graphc.torch" in sys.modules)
"""
    assert run_python("-c", program).split() == ["True", "True"]


def test_importing_graphc_does_not_import_torch() -> None:
    program = "import sys, graphc; print('torch' in sys.modules)"
    assert run_python("-c", program).strip() == "False"
