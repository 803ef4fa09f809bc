"""PyTorch and graphc on one real GPU: tensors, results, torch.compile and captured graphs.

`pytest -m gpu` runs these; test_torch_tensors.py and test_torch_capture.py check the calls that the
driver gets.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphc
from graphc.base.errors import RunError
from graphc.program import Program
from tests.cuda.test_gpu import need_device

pytestmark = pytest.mark.gpu


def test_tensors_of_pytorch_are_used_where_they_lie():
    torch = torch_on_gpu()
    program, x = doubling()
    given = torch.from_numpy(x).cuda() * 3  # still being computed when the program is called
    np.testing.assert_array_equal(program(given), x * 6 + 1)
    np.testing.assert_array_equal(given.cpu().numpy(), x * 3)
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        np.testing.assert_array_equal(program(torch.from_numpy(x).cuda() * 5), x * 10 + 1)


def test_pytorch_takes_results_where_they_lie():
    torch = torch_on_gpu()
    spec = graphc.spec((1000, 1000))
    program = graphc.compile(lambda x: x * 2.0 + 1.0, spec, device="cuda", out="device")
    given = [torch.full((1000, 1000), float(i), device="cuda") for i in range(9)]
    taken = [torch.from_dlpack(program(x)) for x in given]
    assert [t.unique().tolist() for t in taken] == [[2.0 * i + 1] for i in range(9)]


def test_torch_compile_keeps_tensors_on_the_gpu():
    torch = torch_on_gpu()
    model = torch.nn.Sequential(torch.nn.Linear(64, 96), torch.nn.ReLU(), torch.nn.Linear(96, 8))
    x = torch.randn(32, 64, device="cuda")
    parameters, both = list(model.cuda().parameters()), []
    for call in (model, torch.compile(model, backend="graphc")):
        both.append(torch.autograd.grad(call(x).square().mean(), parameters))
    for wanted, got in zip(*both, strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-6)


def test_pytorch_and_graphc_take_turns_on_one_context():
    torch = torch_on_gpu()
    need_device("cuda")
    program, x = doubling()
    layer = torch.nn.Linear(256, 256).cuda()
    for _ in range(3):
        np.testing.assert_array_equal(program(x), x * 2 + 1)
        layer(torch.ones(8, 256, device="cuda")).sum().backward()
    assert torch.isfinite(layer.weight.grad).all()


def test_a_program_is_part_of_a_graph_that_pytorch_captures():
    torch = torch_on_gpu()
    need_device("cuda")
    spec = graphc.spec((1000, 1000))
    program = graphc.compile(lambda x: x * 2.0 + 1.0, spec, device="cuda", out="device")
    x = torch.zeros(1000, 1000, device="cuda")

    def work() -> Any:
        return torch.from_dlpack(program(x * 3)) + torch.from_dlpack(program(x))

    graph, result = captured(torch, work)
    for number in range(3):
        x.fill_(float(number))
        # Memory of calls in between is not the graph's.
        program(torch.full((1000, 1000), 100.0, device="cuda"))
        graph.replay()
        assert result.unique().tolist() == [8.0 * number + 2]


def test_tensors_anywhere_are_read_by_a_captured_program():
    torch = torch_on_gpu()
    need_device("cuda")
    spec = graphc.spec((999,))
    program = graphc.compile(lambda x: x * 2.0, spec, device="cuda", out="device")
    whole = torch.zeros(1001, device="cuda")
    graph, result = captured(torch, lambda: torch.from_dlpack(program(whole[1:1000])))
    whole.copy_(torch.arange(1001.0))
    graph.replay()
    torch.testing.assert_close(result, 2 * whole[1:1000], rtol=0, atol=0)


def test_a_compiled_model_trains_in_a_graph_that_pytorch_captures():
    torch = torch_on_gpu()
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(64, 96), torch.nn.ReLU(), torch.nn.Linear(96, 8)
    ).cuda()
    parameters = list(model.parameters())
    x = torch.zeros(32, 64, device="cuda")
    compiled = torch.compile(model, backend="graphc")

    def step() -> Any:
        return torch.autograd.grad(compiled(x).square().mean(), parameters)

    graph, gradients = captured(torch, step)
    for _ in range(3):
        x.copy_(torch.randn(32, 64))
        graph.replay()
        wanted = torch.autograd.grad(model(x).square().mean(), parameters)
        for got, right in zip(gradients, wanted, strict=True):
            torch.testing.assert_close(got, right, rtol=1e-4, atol=1e-6)


def test_a_capture_goes_on_after_a_call_that_it_refuses():
    torch = torch_on_gpu()
    need_device("cuda")
    x, refused = torch.ones(8, device="cuda"), []

    def work() -> Any:
        if torch.cuda.is_current_stream_capturing():
            with pytest.raises(RunError, match="PyTorch is capturing a CUDA graph") as error:
                graphc.compile(lambda x: x * 7.0, graphc.spec((8,)), device="cuda")(x)
            refused.append(str(error.value))
        return x * 2

    graph, result = captured(torch, work)
    graph.replay()
    assert result.tolist() == [2.0] * 8
    assert len(refused) == 1


def captured(torch: Any, work: Callable[[], Any]) -> tuple[Any, Any]:
    """The graph of a function that has been called before, and its results in the graph."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(2):
            work()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = work()
    return graph, result


def doubling() -> tuple[Program, Any]:
    need_device("cuda")
    program = graphc.compile(lambda x: x * 2.0 + 1.0, graphc.spec((1000, 1000)), device="cuda")
    return program, np.arange(1_000_000, dtype=np.float32).reshape(1000, 1000) % 1024


def torch_on_gpu() -> Any:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("PyTorch sees no GPU")
    return torch
