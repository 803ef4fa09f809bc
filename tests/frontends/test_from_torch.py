"""`graphc.from_torch`: PyTorch's modules as modules of graphc."""

from __future__ import annotations

import copy
import re
from typing import Any

import numpy as np
import pytest

import graphc
from graphc import optim
from graphc.base.errors import GraphError
from tests.tools import need_command, need_module, run_python

torch = need_module("torch")
nn, F = torch.nn, torch.nn.functional
LINE = r" \(test_from_torch\.py:\d+\)"


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


class Classifier(nn.Module):
    """Frozen, tied and normalised, with a buffer of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, bias=False)
        self.conv.weight.requires_grad = False
        self.bn = nn.BatchNorm2d(4)
        self.layers = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 5, bias=False))
        self.tied = nn.Linear(5, 5)
        self.tied.weight = self.layers[2].weight
        self.again = self.layers[0]
        self.register_buffer("mean", torch.zeros(5), persistent=False)

    def forward(self, x: Any) -> Any:
        y = self.bn(self.conv(x)).relu().mean((2, 3))
        y = self.tied(self.layers(y) + self.again(y))
        with torch.no_grad():
            self.mean.mul_(0.9).add_(y.mean(0))
        return y - self.mean


def mean_square(model: Any, *inputs: Any) -> Any:
    return graphc.mean(graphc.square(model(*inputs)))


def gradients(model: Any, function: Any, *inputs: Any) -> dict[str, Any]:
    """Of a loss of PyTorch's, by the parameters' names."""
    model.zero_grad()
    function(model(*inputs)).backward()
    return {n: p.grad.numpy() for n, p in model.named_parameters() if p.grad is not None}


def close(a: Any, b: Any) -> None:
    a, b = (v.detach().numpy() if isinstance(v, torch.Tensor) else v for v in (a, b))
    np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def same_state(own: Any, eager: Any) -> None:
    back = graphc.to_torch(own)
    assert list(back) == list(eager.state_dict())
    for name, tensor in eager.state_dict().items():
        assert back[name].dtype == tensor.dtype, name
        close(back[name], tensor)


def refusal(function: Any, *args: Any, **named: Any) -> str:
    with pytest.raises(GraphError) as caught:
        function(*args, **named)
    return re.sub(LINE, "", str(caught.value))


def test_a_training_step_is_one_plan_and_does_what_eager_does() -> None:
    need_command("g++", "clang++")
    eager = Classifier()
    x = torch.randn(2, 3, 6, 6)
    own = graphc.from_torch(copy.deepcopy(eager), x)
    step = graphc.compile(
        mean_square, own, graphc.spec((2, 3, 6, 6)), update=optim.SGD(lr=0.1), device="cpu"
    )
    rule = torch.optim.SGD([p for p in eager.parameters() if p.requires_grad], lr=0.1)
    for _ in range(3):
        rule.zero_grad()
        loss = eager(x).square().mean()
        loss.backward()
        rule.step()
        close(step(x), loss)
    same_state(own, eager)
    close(own.mean.numpy(), eager.mean)


def test_names_and_what_is_frozen_tied_or_there_twice_are_pytorchs() -> None:
    eager = Classifier()
    own = graphc.from_torch(eager, torch.zeros(2, 3, 6, 6))
    assert list(own.state_dict()) == list(eager.state_dict())
    names = {name for name, _ in own.named_parameters()}
    assert names == {n for n, _ in (*eager.named_parameters(), *eager.named_buffers())}
    assert not own.conv.weight.trainable and own.bn.weight.trainable
    assert own.tied.weight is own.layers[2].weight
    assert own.again is own.layers[0] and len(list(own.layers)) == 3
    assert repr(own.again) == "Model(Linear(in_features=4, out_features=5, bias=True))"


def test_each_module_keeps_its_mode_until_it_is_given_another() -> None:
    eager = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.BatchNorm2d(4), nn.Dropout())
    eager[1].eval()
    eager[3].eval()
    x = torch.randn(2, 3, 5, 5)
    own = graphc.from_torch(copy.deepcopy(eager), x)
    spec = graphc.spec((2, 3, 5, 5))
    step = graphc.compile(own, spec, device="reference")
    close(step(x), eager(x))
    same_state(own, eager)
    assert int(own[1].num_batches_tracked.numpy()) == 0
    assert int(own[2].num_batches_tracked.numpy()) == 1
    own.eval()
    close(graphc.compile(own, spec, device="reference")(x), eager.eval()(x))
    assert own._source.module[2].training


def test_inputs_of_other_sizes_are_traced_when_they_come() -> None:
    eager = Classifier().eval()
    own = graphc.from_torch(eager, graphc.spec((2, 3, 6, 6)))
    x = torch.randn(5, 3, 7, 8)
    close(graphc.compile(own, graphc.spec(x.shape), device="reference")(x), eager(x))


class Branches(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(3, 3), nn.Linear(3, 3)
        self.table = torch.arange(3.0)

    def forward(self, x: Any, scale: float = 2.0, *, kind: str = "a") -> Any:
        y = self.first(x)
        with torch.no_grad():
            outside = self.second(y) * y
        if kind == "a":
            y = y * y
        result = y * scale + y * y.detach() * 3 + outside * y * self.table
        return {"result": result, "more": (y, None, scale)}


def test_no_gradient_flows_where_pytorch_lets_none_flow() -> None:
    eager = Branches()
    x = torch.randn(2, 3)
    own = graphc.from_torch(copy.deepcopy(eager), x, kind="b")

    def loss(model: Any, x: Any) -> Any:
        found = model(x, scale=1.5, kind="b")
        assert found["more"][1:] == (None, 1.5)
        return graphc.sum(found["result"] * found["more"][0])

    step = graphc.compile(
        loss, own, graphc.spec((2, 3)), update=optim.SGD(lr=1.0), device="reference"
    )
    expected = eager(x, scale=1.5, kind="b")
    value = (expected["result"] * expected["more"][0]).sum()
    value.backward()
    close(step(x), value)
    for name, parameter in eager.named_parameters():
        change = 0 if parameter.grad is None else parameter.grad
        close(graphc.to_torch(own)[name], parameter - change)
    assert eager.second.weight.grad is None


class Drops(nn.Module):
    def forward(self, x: Any) -> Any:
        y = F.alpha_dropout(x, 0.3, True) + F.dropout2d(x, 0.3) + F.rrelu(x, training=True)
        q = x.reshape(1, 1, 10, 10)
        y = y.sum() + F.scaled_dot_product_attention(q, q, q, dropout_p=0.5).sum()
        y = y + F.gumbel_softmax(x).sum() + (torch.rand(3) + torch.randn(3)).sum()
        y = y + torch.bernoulli(x.sigmoid()).sum() + torch.randint(1, 5, (3,)).sum()
        y = y + torch.rand_like(x).sum() + torch.randn_like(x).sum() + torch.randperm(4)[0]
        y = y + torch.empty(3).normal_(0, 2).sum() + torch.empty(3).uniform_(1, 2).sum()
        return F.dropout(x, 0.25), y


def test_graphc_draws_from_its_own_seed() -> None:
    x = torch.ones(1, 1, 10, 10)
    own = graphc.from_torch(Drops(), x)
    spec = graphc.spec(x.shape)
    first, second = (graphc.compile(own, spec, device="reference", seed=seed) for seed in (0, 1))
    y, number = first(x)
    assert set(np.unique(y)) == {0, np.float32(1 / 0.75)} and np.isfinite(number)
    assert not np.array_equal(first(x)[0], y)
    assert not np.array_equal(second(x)[0], y)
    again = graphc.compile(own, spec, device="reference", seed=0)
    assert np.array_equal(again(x)[0], y)


def test_attention_and_norms_of_layers_are_graphcs_own() -> None:
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, norm_first=True).train()
    layer.dropout.p = layer.dropout1.p = layer.dropout2.p = layer.self_attn.dropout = 0.0
    x = torch.randn(2, 5, 8)
    own = graphc.from_torch(layer, x)
    kinds = {node.op.name for node in graphc.trace(own, graphc.spec(x.shape)).nodes}
    assert "attention" in kinds
    step = graphc.compile(
        mean_square, own, graphc.spec(x.shape), update=optim.SGD(lr=1.0), device="reference"
    )
    before = own.state_dict()
    step(x)
    for name, gradient in gradients(layer, lambda y: y.square().mean(), x).items():
        close(before[name] - own.state_dict()[name], gradient)


def test_a_loaded_module_is_a_part_of_others_and_its_parts_are_modules() -> None:
    class Wrapper(graphc.nn.Module):
        def __init__(self) -> None:
            self.body = graphc.from_torch(nn.Sequential(nn.Linear(3, 4), nn.ReLU()), X)
            self.head = graphc.nn.Linear(4, 2)

        def forward(self, x: Any) -> Any:
            return self.head(self.body(x)), self.body[0](x)

    eager = torch.zeros(2, 3)
    own = Wrapper()
    assert list(own.state_dict())[:2] == ["body.0.weight", "body.0.bias"]
    graph = graphc.trace(own, graphc.spec((2, 3)))
    assert {node.where.module for node in graph.nodes} >= {"body.0", "head"}
    whole, part = graphc.compile(own, graphc.spec((2, 3)), device="reference")(eager)
    assert whole.shape == (2, 2) and part.shape == (2, 4)


X = torch.zeros(2, 3)


def test_to_torch_gives_every_dtype_back() -> None:
    model = nn.Linear(3, 2).to(torch.bfloat16)
    own = graphc.from_torch(model, X.to(torch.bfloat16))
    back = graphc.to_torch(own)
    assert back["weight"].dtype == torch.bfloat16
    assert torch.equal(back["weight"], model.weight)
    assert graphc.to_torch(own.state_dict())["weight"].dtype == torch.float32
    other = nn.Linear(3, 2).to(torch.bfloat16)
    other.load_state_dict(graphc.to_torch(own))
    assert torch.equal(other.bias, model.bias)


class Shifts(nn.Module):
    def forward(self, x: Any) -> Any:
        return (x << 2) + (x >> 1), (x << x.abs()) ^ (x >> x.abs())


def test_shifts_are_those_of_pytorch() -> None:
    x = torch.tensor([-7, 0, 1, 5], dtype=torch.int32)
    own = graphc.from_torch(Shifts(), x)
    found = graphc.compile(own, graphc.spec((4,), "int32"), device="reference")(x.numpy())
    for got, want in zip(found, Shifts()(x), strict=True):
        np.testing.assert_array_equal(got, want.numpy(), strict=True)


class Unknown(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.ModuleList([Factors(), Factors()])

    def forward(self, x: Any) -> Any:
        for layer in self.inner:
            x = layer(x)
        return torch.linalg.matrix_exp(x)


class Factors(nn.Module):
    def forward(self, x: Any) -> Any:
        return torch.linalg.lu_factor(x)[0]


def test_operators_that_graphc_lacks_are_listed_all_at_once() -> None:
    found = refusal(graphc.from_torch, Unknown(), torch.eye(3))
    lines = found.splitlines()
    assert lines[0] == "from_torch: Unknown has operators that are not offered"
    found = re.sub(r" \(test_\S*\)|; the nearest that graphc has is \w+", "", found)
    assert "\n  aten.linalg_lu_factor_ex.default; 2 times, in inner.0, inner.1\n" in found
    assert found.endswith("\n  aten.linalg_matrix_exp.default; 1 times, in forward")


def test_the_nearest_that_graphc_has_is_named() -> None:
    class Norm(nn.Module):
        def forward(self, x: Any) -> Any:
            return F.embedding_bag(x, torch.ones(3, 3))

    assert "; the nearest that graphc has is embedding; 1 times, in " in refusal(
        graphc.from_torch, Norm(), torch.zeros(2, 2, dtype=torch.int64)
    )


class Writes(nn.Module):
    def forward(self, x: Any) -> Any:
        x.add_(1)
        return x * 2


class Decides(nn.Module):
    def forward(self, x: Any) -> Any:
        return x * 2 if x.sum() > 0 else x


class Cache:
    """What holds tensors and is none."""

    def __init__(self, x: Any) -> None:
        self.x = x


class Caches(nn.Module):
    """Returns its cache, as causal models of transformers do."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 2)

    def forward(self, x: Any, use_cache: bool = True) -> Any:
        y = self.layer(x)
        return (y, Cache(y)) if use_cache else y


def test_wrong_modules_and_inputs_are_named() -> None:
    load = graphc.from_torch
    assert refusal(load, 3) == "from_torch: expected a torch.nn.Module, got builtins.int"
    assert refusal(load, graphc.nn.Linear(2, 3), X) == (
        "from_torch: expected a torch.nn.Module, got graphc.nn.layers.linear.Linear"
    )
    assert refusal(load, nn.Linear(3, 2)).startswith(
        "from_torch: expected an example of each input of Linear.forward(input: "
    )
    assert "missing a required argument: 'input'" in refusal(load, nn.Linear(3, 2))
    assert refusal(load, nn.Linear(4, 2), X) == (
        "from_torch: torch.export cannot trace Linear: "
        "a and b must have same reduction dim, but got [2, 3] X [4, 2]."
    )
    assert refusal(load, nn.LazyLinear(3), X) == (
        "from_torch: weight has no shape yet: call PyTorch's module once"
    )
    assert refusal(load, Decides(), X).startswith(
        "from_torch: torch.export cannot trace Decides: Could not guard on data-dependent "
    )
    assert refusal(load, Writes(), X) == (
        "from_torch: Writes writes into x, which is no buffer of its"
    )
    assert refusal(load, nn.Linear(3, 2, device="meta"), X) == (
        "from_torch: weight: tensors on meta of layout torch.strided are not offered"
    )
    assert "torch.complex64" in refusal(load, nn.Linear(3, 2, dtype=torch.complex64), X)
    assert refusal(load, Caches(), X) == (
        "from_torch: Caches returns a Cache, expected tensors and tuples, lists and dicts of them; "
        "models of transformers leave their cache out where they are given use_cache=False"
    )
    plain = load(Caches(), X, use_cache=False)
    program = graphc.compile(lambda m, x: m(x, use_cache=False), plain, X.numpy())
    assert program(X.numpy()).shape == (2, 2)
    own = load(nn.Sequential(nn.Linear(3, 2)), X)
    message = "Sequential: 0 is PyTorch's: replace it in PyTorch's module and call from_torch again"
    assert refusal(setattr, own, "0", graphc.nn.Linear(3, 2)) == message
    with pytest.raises(IndexError, match=r"^Sequential has 1 modules, got 1$"):
        own[1]


def test_without_pytorch_the_door_says_what_is_missing() -> None:
    program = """
import sys
sys.modules["torch"] = None
import graphc
try:
    graphc.from_torch(None)
except ImportError as error:
    print(error)
"""
    expected = "PyTorch's models need the torch package: pip install 'graphc[torch]'"
    assert run_python("-c", program).strip() == expected
