"""Where users of PyTorch reach for its names, an error says what to do here."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import graphc
from graphc import nn, optim
from tests.functions.failing import Failure
from tests.tools import need_module


@pytest.fixture(scope="module")
def torch() -> ModuleType:
    return need_module("torch")


def model() -> nn.Sequential:
    return nn.Sequential(nn.Linear(2, 3), nn.Sequential(nn.ReLU(), nn.Linear(5, 1)))


DEVICES = "compile's device= says where a program runs; parameters follow by themselves"
NAMES: tuple[tuple[Callable[[], object], str], ...] = (
    (lambda: model().cuda(), f"'Sequential' object has no attribute 'cuda': {DEVICES}"),
    (lambda: nn.Linear(1, 1).cpu(), f"'Linear' object has no attribute 'cpu': {DEVICES}"),
    (
        lambda: model().zero_grad(),
        "'Sequential' object has no attribute 'zero_grad': gradients are no state: compile's "
        "update= computes and uses them in one step",
    ),
    (
        lambda: model().half(),
        "'Sequential' object has no attribute 'half': use model.to(\"float16\")",
    ),
    (lambda: model().nothing, "'Sequential' object has no attribute 'nothing'"),
    (
        lambda: optim.lr_scheduler.StepLR,
        "graphc.optim has no 'lr_scheduler': a rule's lr may be a function of the number of "
        "finished steps, as in optim.SGD(lr=lambda step: 0.1 * 0.99**step), and program.lr = 0.05 "
        "sets it between calls; optim.schedules has cosines, warm-ups, one-cycle and plateaus",
    ),
    (lambda: optim.Adafactor, "graphc.optim has no 'Adafactor'; the nearest is optim.Adam"),
    (lambda: optim.AdamWW, "graphc.optim has no 'AdamWW'; the nearest is optim.AdamW"),
    (lambda: optim.Foo, "graphc.optim has no 'Foo'"),
    (
        lambda: graphc.autocast,
        "graphc has no 'autocast': compile's mixed= says in which two-byte dtype products are "
        "computed",
    ),
    (
        lambda: graphc.float32,
        "graphc has no 'float32': dtypes are names: "
        'x.astype("float32"), graphc.spec(shape, "int64")',
    ),
    (
        lambda: graphc.functional_call,
        "graphc has no 'functional_call': load_state_dict gives a model other weights; where they "
        "are computed in the program, write the function of tensors and pass them as arguments",
    ),
)


@pytest.mark.parametrize(("reach", "message"), NAMES, ids=lambda x: x if isinstance(x, str) else "")
def test_a_name_of_pytorchs_says_what_to_use(reach: Callable[[], object], message: str) -> None:
    with pytest.raises(AttributeError) as error:
        reach()
    assert str(error.value) == message


@pytest.mark.parametrize("device", ["cuda", "cuda:0", "cpu"])
def test_a_module_that_is_moved_to_a_device_says_who_does_that(device: str) -> None:
    with pytest.raises(graphc.GraphError) as error:
        model().to(device)
    known = "bfloat16, bool, float16, float32, float64, int32, int64, int8, uint8"
    assert str(error.value).rpartition(" (")[0] == (
        f"unknown dtype {device!r}; expected one of {known}: {DEVICES}"
    )


def test_functions_of_torchs_on_traced_tensors_name_those_of_graphc(torch: ModuleType) -> None:
    said = "torch's {} works on PyTorch's tensors, got a graphc Tensor; use graphc.{}"
    functional, ones = torch.nn.functional, torch.ones(3, 3)
    Failure(said.format("relu", "relu"), lambda x: torch.relu(x), ("f32[3,3]",)).check()
    Failure(said.format("cat", "concat"), lambda x: torch.cat([x, x]), ("f32[3,3]",)).check()
    Failure(said.format("matmul", "matmul"), lambda x: torch.matmul(ones, x), ("f32[3,3]",)).check()
    Failure(said.format("gelu", "gelu"), lambda x: functional.gelu(x), ("f32[3,3]",)).check()
    Failure(
        "torch's svd works on PyTorch's tensors, got a graphc Tensor; graphc has no 'svd': "
        "matrices are not factored in a program: NumPy's linalg does it outside",
        lambda x: torch.svd(x),
        ("f32[3,3]",),
    ).check()


def test_a_torch_layer_on_a_traced_tensor_is_an_error_too(torch: ModuleType) -> None:
    layer = torch.nn.Linear(3, 2)
    with pytest.raises(graphc.GraphError, match="torch's linear works on PyTorch's tensors"):
        graphc.trace(lambda x: layer(x), graphc.spec((1, 3)))


@pytest.mark.parametrize("offset", [0, 1, -1])
def test_trace_of_a_tensor_is_the_sum_of_its_diagonal(offset: int) -> None:
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    traced: list[Any] = [
        lambda x: graphc.trace(x, offset),
        lambda x: graphc.trace(x, offset=offset),
    ]
    for fn in traced:
        program = graphc.compile(fn, graphc.spec(x.shape), device="reference")
        assert program(x) == np.trace(x, offset)


def test_trace_of_a_function_has_no_offset() -> None:
    with pytest.raises(
        graphc.GraphError, match=r"^trace: got offset=, expected training= or seed="
    ):
        graphc.trace(lambda x: x, graphc.spec(3), offset=1)


def test_an_error_within_layers_names_the_path_of_the_layer() -> None:
    with pytest.raises(graphc.GraphError) as error:
        graphc.trace(model(), graphc.spec((1, 2)))
    assert str(error.value).startswith("linear: x f32[1,3] has 3 features, weight f32[1,5] expects")
    assert error.value.__notes__ == ["in layer 1.1: Linear(5, 1, bias=True)"]


def test_an_error_outside_of_layers_has_no_path() -> None:
    with pytest.raises(graphc.GraphError) as error:
        graphc.trace(lambda m, x: m(x) + graphc.ones(7), nn.Linear(2, 3), graphc.spec((1, 2)))
    assert getattr(error.value, "__notes__", []) == []
