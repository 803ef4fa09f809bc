"""Modules: how parameters are found and named, loaded and saved."""

from __future__ import annotations

import copy
import re
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphc
from graphc import functions, nn
from graphc.base.errors import GraphError
from graphc.nn import module as module_file
from graphc.nn.initialize import seed
from tests.nn.running import random, run, traced


class Block(nn.Module):
    def __init__(self) -> None:
        self.conv1 = nn.Conv2d(2, 2, 3, padding=1)
        self.conv2 = nn.Conv2d(2, 2, 1, bias=False)

    def forward(self, x: Any) -> Any:
        return self.conv2(self.conv1(x)) + x


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.block = Block()
        self.pair = (nn.Linear(3, 2), [nn.Linear(2, 2)])
        self.heads = {"small": nn.Linear(2, 1)}
        self.scale = nn.Parameter(2.0)
        self.count = nn.Parameter(np.zeros((), np.int64), trainable=False)
        self.width = 3

    def forward(self, x: Any) -> Any:
        x = functions.relu(self.block(x)) * self.scale
        return self.heads["small"](self.pair[1][0](self.pair[0](x)))


NAMES = [
    "scale",
    "count",
    "block.conv1.weight",
    "block.conv1.bias",
    "block.conv2.weight",
    "pair.0.weight",
    "pair.0.bias",
    "pair.1.0.weight",
    "pair.1.0.bias",
    "heads.small.weight",
    "heads.small.bias",
]


def test_parameters_are_found_in_attributes_lists_tuples_and_dicts() -> None:
    net = Net()
    assert [name for name, _ in net.named_parameters()] == NAMES
    assert list(net.state_dict()) == NAMES
    assert len(list(net.parameters())) == len(NAMES)
    assert {name for name, _ in net.named_modules()} == {
        "", "block", "block.conv1", "block.conv2", "pair.0", "pair.1.0", "heads.small",
    }  # fmt: skip
    assert next(net.modules()) is net


def test_nodes_carry_the_path_of_their_module() -> None:
    graph, _ = traced(Net(), random(1, 2, 4, 3))
    seen = list(dict.fromkeys(n.where.module for n in graph.nodes))
    assert seen == ["block.conv1", "block.conv2", "block", "", "pair.0", "pair.1.0", "heads.small"]
    assert all(n.where.lines[0].startswith("test_module.py:") for n in graph.nodes)
    assert [v.name for v in graph.state] == [
        "block.conv1.weight", "block.conv1.bias", "block.conv2.weight", "scale",
        *NAMES[5:],
    ]  # fmt: skip


def test_a_plain_function_may_call_submodules_of_its_argument() -> None:
    net = Net()
    graph, _ = traced(lambda x: net.block.conv2(net.block(x)), random(1, 2, 4, 3), model=net)
    modules = [n.where.module for n in graph.nodes]
    assert modules[0] == "block.conv1" and modules[-1] == "block.conv2"


def test_the_module_path_is_restored_after_an_error() -> None:
    net = Net()
    with pytest.raises(GraphError):
        traced(net, random(1, 5, 4, 3))
    graph, _ = traced(net, random(1, 2, 4, 3))
    assert graph.nodes[0].where.module == "block.conv1"


def test_a_shared_parameter_counts_once_and_is_saved_at_each_path() -> None:
    first, second = nn.Linear(3, 3), nn.Linear(3, 3, bias=False)
    second.weight = first.weight
    net = nn.Sequential(first, second, first)
    assert [name for name, _ in net.named_parameters()] == ["0.weight", "0.bias"]
    assert list(net.state_dict()) == ["0.weight", "0.bias", "1.weight", "2.weight", "2.bias"]


def test_a_module_may_hold_the_one_above_it() -> None:
    outer = Block()
    outer.conv1.owner = outer
    assert len(list(outer.named_parameters())) == 3


def test_a_parameter_has_operators_in_a_traced_function() -> None:
    class Affine(nn.Module):
        def __init__(self) -> None:
            self.slope = nn.Parameter([2.0, 3.0])
            self.offset = nn.Parameter(np.array([[1.0], [0.0]], np.float32))

        def forward(self, x: Any) -> Any:
            return 1 - self.slope * x / 2 + self.offset[0] + np.float32(1) * self.slope

    x = random(4, 2)
    np.testing.assert_allclose(
        run(Affine(), x), 1 - np.float32([2, 3]) * x / 2 + 1 + np.float32([2, 3]), rtol=1e-6
    )


def test_python_numbers_become_float32_and_arrays_keep_their_dtype() -> None:
    assert nn.Parameter([1.0, 2.0]).dtype == nn.Parameter(1).dtype == "f32"
    assert nn.Parameter(np.zeros(2, np.float64)).dtype == "f64"
    parameter = nn.Parameter(np.zeros((2, 3), np.float32))
    assert (parameter.shape, parameter.ndim, parameter.size, len(parameter)) == ((2, 3), 2, 6, 2)


def test_numpy_gives_copies() -> None:
    layer = nn.Linear(2, 2)
    layer.weight.numpy()[...] = 7
    layer.state_dict()["weight"][...] = 7
    assert not (layer.weight.numpy() == 7).any()


def test_a_deep_copy_is_independent_and_aligned() -> None:
    net = Net()
    other = copy.deepcopy(net)
    other.load_state_dict({n: np.full_like(a, 3) for n, a in other.state_dict().items()})
    assert not (net.block.conv1.weight.numpy() == 3).any()
    assert not other.count.trainable
    assert all(p.state.array.ctypes.data % 64 == 0 for p in other.parameters())


def test_a_deep_copy_keeps_what_is_shared() -> None:
    layer = nn.Linear(3, 3)
    other = copy.deepcopy(nn.Sequential(layer, nn.ReLU(), layer))
    assert [name for name, _ in other.named_parameters()] == ["0.weight", "0.bias"]


def test_equal_seeds_give_equal_weights() -> None:
    def weights(number: int) -> np.ndarray[Any, Any]:
        seed(number)
        return nn.Linear(4, 3).weight.numpy()

    np.testing.assert_array_equal(weights(5), weights(5))
    assert (weights(5) != weights(6)).any()


@pytest.mark.parametrize(
    ("make", "fan_in"),
    [
        (lambda: nn.Linear(100, 50), 100),
        (lambda: nn.Conv2d(8, 64, (3, 5), groups=2), 60),
        (lambda: nn.ConvTranspose2d(16, 64, (3, 5), groups=16), 60),
    ],
)
def test_weights_and_biases_fill_the_range_of_the_fan_in(
    make: Callable[[], Any], fan_in: int
) -> None:
    seed(0)
    layer, bound = make(), fan_in**-0.5
    for parameter in (layer.weight, layer.bias):
        array = parameter.numpy()
        assert array.dtype == np.float32
        assert 0.8 * bound < array.max() <= bound and -bound <= array.min() < -0.8 * bound


def test_embeddings_are_standard_normal() -> None:
    seed(0)
    weight = nn.Embedding(100, 100).weight.numpy()
    assert abs(weight.mean()) < 0.05 and abs(weight.std() - 1) < 0.05


def test_loading_takes_anything_with_array() -> None:
    class Foreign:
        def __array__(self, *_: Any, **__: Any) -> Any:
            return np.full((1, 2), 4.0)

    layer = nn.Linear(2, 1, bias=False)
    layer.load_state_dict({"weight": Foreign()})
    np.testing.assert_array_equal(layer.weight.numpy(), np.full((1, 2), 4, np.float32))


def test_loading_lists_every_problem_and_changes_nothing() -> None:
    net = nn.Sequential(OrderedDict(fc=nn.Linear(2, 3), norm=nn.BatchNorm1d(3)))
    before = net.state_dict()
    state = {name: array + 1 for name, array in before.items()}
    del state["fc.bias"]
    state["fc.weight"] = np.zeros((2, 3), np.float32)
    state["norm.num_batches_tracked"] = np.array(1.5)
    state["norm.running_var"] = np.zeros(3, np.complex64)
    state["head.weight"] = np.zeros(1, np.float32)
    message = """\
load_state_dict: Sequential
  missing fc.bias : f32[3]
  unexpected head.weight
  fc.weight: expected f32[3,2], got f32[2,3]
  norm.running_var: expected f32[3], got complex64[3]
  norm.num_batches_tracked: expected i64[], got f64[]"""
    with pytest.raises(GraphError, match=f"^{re.escape(message)}$"):
        net.load_state_dict(state)
    for name, array in net.state_dict().items():
        np.testing.assert_array_equal(array, before[name])


class Growing(nn.Module):
    """Layers of a list, one that `forward` makes, and one that lies deeper."""

    def __init__(self) -> None:
        self.layers = [nn.Linear(2, 2) for _ in range(40)]
        self.block = nn.Sequential(nn.Linear(2, 2))

    def forward(self, x: graphc.Tensor) -> graphc.Tensor:
        for layer in self.layers:
            x = layer(x)
        self.late = nn.Linear(2, 2)
        return nn.Linear(2, 2)(self.block[0](self.late(x)))


def test_names_of_many_layers_take_one_look_at_the_module(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked: list[object] = []
    members = module_file._members
    monkeypatch.setattr(
        module_file, "_members", lambda module: looked.append(module) or members(module)
    )
    model = Growing()
    graph = graphc.trace(model, graphc.spec((3, 2)))
    names = list(dict.fromkeys(n.where.module for n in graph.nodes if n.op.name == "matmul"))
    assert names == [*(f"layers.{i}" for i in range(40)), "late", "block.0", ""]
    assert sum(module is model for module in looked) < 12


def test_loading_without_strict_takes_what_fits_by_name() -> None:
    layer = nn.Linear(2, 1)
    layer.load_state_dict({"bias": np.ones(1), "other": np.ones(1)}, strict=False)
    np.testing.assert_array_equal(layer.bias.numpy(), [1])


def test_loading_something_that_is_no_array_says_so() -> None:
    class Opaque:
        def __array__(self, *_: Any, **__: Any) -> Any:
            raise TypeError("unsupported ScalarType BFloat16")

    with pytest.raises(
        GraphError, match=r"^weight: Opaque gives no array: unsupported ScalarType BFloat16$"
    ):
        nn.Linear(2, 1).load_state_dict({"weight": Opaque(), "bias": np.zeros(1)})


def test_repr_shows_the_tree_and_the_arguments() -> None:
    net = nn.Sequential(OrderedDict(fc=nn.Linear(2, 3), rest=nn.Sequential(nn.ReLU())))
    assert (
        repr(net)
        == """\
Sequential(
  (fc): Linear(2, 3, bias=True)
  (rest): Sequential(
    (0): ReLU()
  )
)"""
    )
    assert repr(nn.Parameter(np.zeros(2, np.int32), False)) == "Parameter(i32[2], trainable=False)"


def test_sequential_and_lists_count_index_and_grow() -> None:
    layers = nn.ModuleList([nn.ReLU(), nn.Tanh()])
    layers.append(nn.Linear(2, 1))
    assert len(layers) == 3 and list(layers)[1] is layers[1]
    assert layers[-1] is layers[2]
    assert list(layers.state_dict()) == ["2.weight", "2.bias"]


def test_dicts_of_modules_are_read_by_name() -> None:
    heads = nn.ModuleDict({"small": nn.Linear(2, 1)})
    heads["large"] = nn.Linear(2, 3)
    assert list(heads) == list(heads.keys()) == ["small", "large"]
    assert len(heads) == 2 and "large" in heads and "other" not in heads
    assert [m.out_features for m in heads.values()] == [1, 3]
    assert dict(heads.items())["large"] is heads["large"]
    assert "large.weight" in heads.state_dict()


def test_lists_of_parameters_have_paths() -> None:
    class Sums(nn.Module):
        def __init__(self) -> None:
            self.terms = nn.ParameterList([nn.Parameter([1.0]), [2.0]])

        def forward(self, x: Any) -> Any:
            for term in self.terms:
                x = x + term
            return x

    model = Sums()
    assert list(model.state_dict()) == ["terms.0", "terms.1"]
    assert len(model.terms) == 2 and model.terms[-1] is list(model.terms)[1]
    np.testing.assert_array_equal(run(model, np.zeros(1, np.float32)), [3])


def test_dicts_of_parameters_have_paths() -> None:
    class Scales(nn.Module):
        def __init__(self) -> None:
            self.terms = nn.ParameterDict({"left": nn.Parameter([1.0]), "right": [2.0]})

        def forward(self, x: Any) -> Any:
            return x * self.terms["left"] - self.terms["right"]

    model = Scales()
    assert list(model.state_dict()) == ["terms.left", "terms.right"]
    np.testing.assert_array_equal(run(model, np.ones(1, np.float32)), [-1])


def test_a_module_outside_a_traced_function_says_where_it_belongs() -> None:
    with pytest.raises(
        GraphError,
        match=r"^graphc functions work on traced tensors: call them inside a function that is "
        r"given to graphc\.compile or graphc\.trace \(test_module\.py:\d+\)$",
    ):
        nn.ReLU()(np.zeros(2))


def test_to_converts_floats_alone() -> None:
    norm = nn.BatchNorm1d(3).to("bfloat16")
    kinds = {name: parameter.dtype for name, parameter in norm.named_parameters()}
    assert kinds.pop("num_batches_tracked") == "i64" and set(kinds.values()) == {"bf16"}
