"""PyTorch's recurrent layers: a loop for each direction of each layer, through both front ends."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

import graphc
from graphc import optim
from tests.tools import need_command, need_module

torch = need_module("torch")
nn, F = torch.nn, torch.nn.functional
LAYERS: dict[str, tuple[str, dict[str, Any]]] = {
    "LSTM": ("LSTM", {}),
    "LSTM with projection": ("LSTM", {"proj_size": 2, "bias": False}),
    "GRU": ("GRU", {}),
    "GRU without bias": ("GRU", {"bias": False}),
    "tanh": ("RNN", {}),
    "relu": ("RNN", {"nonlinearity": "relu", "batch_first": False}),
}


@pytest.fixture(autouse=True)
def fresh() -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)


def compiled(model: Any, **options: Any) -> Any:
    from graphc.torch.backend import graphc as backend

    return torch.compile(model, backend=backend, **options)


def close(a: Any, b: Any) -> None:
    np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-4, atol=1e-5)


def flat(results: Any) -> list[Any]:
    y, last = results
    return [y, *(last if isinstance(last, tuple) else [last])]


def layer(case: str) -> tuple[Any, Any, Any]:
    """(a layer of two directions, x, initial states)."""
    kind, options = LAYERS[case]
    options = {"batch_first": True, "bidirectional": True} | options
    made = getattr(nn, kind)(3, 4, 1, **options)
    h = torch.randn(2, 2, options.get("proj_size") or 4)
    hx = (h, torch.randn(2, 2, 4)) if kind == "LSTM" else h
    return made, torch.randn(2, 2, 3), hx


@pytest.mark.filterwarnings("ignore:LSTM with projections")
@pytest.mark.parametrize("case", LAYERS)
def test_layers_and_their_gradients_are_those_of_eager(
    case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRAPHC_DEVICE", "reference")
    model, x, hx = layer(case)
    eager = copy.deepcopy(model)
    own = [of_from_torch(model, x, hx)]
    own += [of_the_backend(copy.deepcopy(model), x, hx, build) for build in (False, True)]
    results = flat(eager(x, hx))
    sum((y * y * y).sum() for y in results).backward()
    for found, gradients in own:
        for a, b in zip(found, results, strict=True):
            close(a, b)
        for a, parameter in zip(gradients, eager.parameters(), strict=True):
            close(a, parameter.grad)


def of_the_backend(model: Any, x: Any, hx: Any, build: bool) -> Any:
    """The results, and the gradients by the parameters; without `build` PyTorch runs what graphc
    would."""
    from graphc.torch.backend import with_compiler

    torch._dynamo.reset()
    call = torch.compile(model, backend=with_compiler(build=build), fullgraph=True)
    results = flat(call(x, hx))
    sum((y * y * y).sum() for y in results).backward()
    return results, [p.grad for p in model.parameters()]


def of_from_torch(model: Any, x: Any, hx: Any) -> Any:
    """The same with gradients that are graphc's own."""
    states = hx if isinstance(hx, tuple) else (hx,)

    def scalar(model: Any, *inputs: Any) -> Any:
        results = flat(model(inputs[0], inputs[1:] if len(inputs) > 2 else inputs[1]))
        return sum(
            (graphc.sum(y * y * y) for y in results[1:]), graphc.sum(results[0] ** 3)
        ), *results

    own = graphc.from_torch(model, x, hx)
    specs = [graphc.spec(t.shape) for t in (x, *states)]
    before = graphc.to_torch(own)
    step = graphc.compile(scalar, own, *specs, update=optim.SGD(lr=1.0))
    _, *results = step(x, *states)
    after = graphc.to_torch(own)
    return [torch.from_numpy(y) for y in results], [before[n] - after[n] for n in before]


class Tagger(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(11, 6)
        self.lstm = nn.LSTM(6, 5, batch_first=True, bidirectional=True)
        self.tags = nn.Linear(10, 4)

    def forward(self, words: Any, tags: Any) -> Any:
        y = self.tags(self.lstm(self.words(words))[0])
        return F.cross_entropy(y.flatten(0, 1), tags.flatten())


def train(model: Any, call: Any, words: Any, tags: Any) -> list[float]:
    """The losses of two steps."""
    rule, losses = torch.optim.SGD(model.parameters(), lr=0.5), []
    for _ in range(2):
        rule.zero_grad()
        loss = call(words, tags)
        loss.backward()
        rule.step()
        losses.append(loss.item())
    return losses


def test_a_tagger_is_one_graph_whose_loops_are_not_unrolled() -> None:
    need_command("g++", "clang++")
    from graphc.torch import report

    eager = Tagger()
    own = copy.deepcopy(eager)
    words, tags = torch.randint(0, 11, (3, 9)), torch.randint(0, 4, (3, 9))
    found = report(own, words, tags)
    assert (found.graphs, found.share) == (2, 1.0)
    assert found.taken["graphc.recurrent.default"] == 2
    assert found.taken["graphc.recurrent_backward.default"] == 2
    assert "aten.sigmoid.default" not in found.taken
    own.zero_grad()
    train(own, compiled(own, fullgraph=True), words, tags)
    train(eager, eager, words, tags)
    for a, b in zip(own.parameters(), eager.parameters(), strict=True):
        close(a, b)


def test_a_language_model_is_one_plan() -> None:
    need_command("g++", "clang++")
    eager = Tagger()
    words, tags = torch.randint(0, 11, (3, 9)), torch.randint(0, 4, (3, 9))
    own = graphc.from_torch(copy.deepcopy(eager), words, tags)
    spec = graphc.spec((3, 9), "int64")
    step = graphc.compile(
        lambda model, words, tags: model(words, tags),
        own,
        spec,
        spec,
        update=optim.SGD(lr=0.5),
        device="cpu",
    )
    for loss in train(eager, eager, words, tags):
        assert float(step(words, tags)) == pytest.approx(loss, rel=1e-4)
    for name, tensor in graphc.to_torch(own).items():
        close(tensor, eager.state_dict()[name])
    loops = [node for node in step.stages["trace"].nodes if node.op.name == "scan"]
    assert len(loops) == 2


def test_dropout_between_layers_is_pytorchs() -> None:
    model = nn.LSTM(3, 4, 2, dropout=0.5)
    call, x = compiled(model), torch.randn(5, 2, 3)
    torch.manual_seed(3)
    first = call(x)[0]
    second = call(x)[0]
    torch.manual_seed(3)
    assert torch.equal(call(x)[0], first) and not torch.equal(first, second)
    model.eval()
    with torch.no_grad():
        close(call(x)[0], model(x)[0])


def test_packed_sequences_stay_pytorchs() -> None:
    model = nn.GRU(3, 4)
    packed = nn.utils.rnn.pack_padded_sequence(torch.randn(5, 2, 3), torch.tensor([5, 3]))
    close(compiled(model)(packed)[0].data, model(packed)[0].data)
