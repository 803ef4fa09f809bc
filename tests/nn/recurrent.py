"""A recurrent layer and its twin in PyTorch: outputs and all gradients, on a device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

import graphc
from graphc import nn
from tests.nn.running import random

EPSILON = float(np.finfo(np.float32).eps)


@dataclass(frozen=True)
class Case:
    """A layer's settings and the shape of its input: t steps of n sequences."""

    kind: str
    hidden: int = 7
    layers: int = 1
    steps: int = 5
    batch: int = 3
    features: int = 4
    bidirectional: bool = False
    batch_first: bool = False

    @property
    def directions(self) -> int:
        return 2 if self.bidirectional else 1

    def make(self, library: Any) -> Any:
        return getattr(library, self.kind)(
            self.features,
            self.hidden,
            num_layers=self.layers,
            bidirectional=self.bidirectional,
            batch_first=self.batch_first,
        )

    def arrays(self) -> list[Any]:
        """The input, the initial states and the weights of the outputs in the loss."""
        t, n = self.steps, self.batch
        leading = (n, t) if self.batch_first else (t, n)
        state = (self.directions * self.layers, n, self.hidden)
        shapes = [(*leading, self.features), state, state]
        shapes.append((*leading, self.directions * self.hidden))
        return [random(*shape, seed=i) for i, shape in enumerate(shapes)]


def loss_of(library: Any, case: Case, layer: Any, x: Any, h: Any, c: Any, weights: Any) -> Any:
    """A scalar that depends on every output."""
    y, last = layer(x, (h, c) if case.kind == "LSTM" else h)
    ends = last if case.kind == "LSTM" else (last,)
    total = library.sum(y * weights)
    for end in ends:
        total = total + library.sum(end * end)
    return total


def tolerance(case: Case, largest: float) -> float:
    """Of a float32 sum of `steps` times so many products, relative to the largest element; each
    step multiplies what the one before it left."""
    terms = case.steps * case.layers * (case.hidden + case.features + case.batch)
    return 16 * EPSILON * np.sqrt(terms) * max(1.0, largest)


def compare(case: Case, device: str, **options: Any) -> Any:
    """The program, after its outputs and gradients were those of PyTorch."""
    import torch

    torch.manual_seed(0)
    theirs = case.make(torch.nn)
    ours = case.make(nn)
    ours.load_state_dict({k: v.detach().numpy() for k, v in theirs.state_dict().items()})
    arrays = case.arrays()

    def loss(layer: Any, x: Any, h: Any, c: Any, weights: Any) -> Any:
        return loss_of(graphc, case, layer, x, h, c, weights)

    program = graphc.compile(
        graphc.value_and_grad(loss, (0, 1, 2, 3)),
        ours,
        *(graphc.spec(a.shape) for a in arrays),
        device=device,
        **options,
    )
    value, (parameters, *inputs) = program(*arrays)
    leaves = [torch.tensor(a, requires_grad=True) for a in arrays[:3]]
    expected = loss_of(torch, case, theirs, *leaves, torch.tensor(arrays[3]))
    expected.backward()
    pairs = {"loss": (value, expected.item())}
    for name, got, leaf in zip("xhc", inputs, leaves, strict=True):
        if leaf.grad is not None:
            pairs[name] = got, leaf.grad.numpy()
    for name, parameter in theirs.named_parameters():
        pairs[name] = parameters[name], parameter.grad.numpy()
    for name, (got, wanted) in pairs.items():
        largest = float(np.abs(wanted).max())
        np.testing.assert_allclose(
            got, wanted, rtol=0, atol=tolerance(case, largest), err_msg=f"{case}: {name}"
        )
    return program
