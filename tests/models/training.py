"""The same training in graphc and in PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import graphc
from graphc import nn, optim
from tests.models import images, sequences
from tests.tools import need_module

Array = np.ndarray[Any, np.dtype[Any]]
STEPS = 5


@dataclass(frozen=True)
class Training:
    """A model, made from a module of layers and a package; its batches, loss and update rule.

    `symbols` is 0 where inputs are images; where it is not, they are symbols i32 [n, t] and the
    labels are the next ones. `labels` is the shape of the class numbers, below 3, that the loss
    compares with; None where it compares with the input.
    """

    make: Callable[[Any, Any], Any]
    inputs: tuple[int, ...]
    labels: tuple[int, ...] | None
    rule: str = "SGD"
    rate: float = 0.05
    symbols: int = 0
    zero: str = ""
    """The end of the names of parameters that begin at 0."""

    @property
    def options(self) -> dict[str, float]:
        return {"lr": self.rate, **({"momentum": 0.9} if self.rule == "SGD" else {})}

    def batch(self) -> tuple[Array, Array]:
        generator = np.random.default_rng(0)
        if self.symbols:
            x = generator.integers(0, self.symbols, self.inputs).astype(np.int32)
            return x, np.roll(x, -1, 1)
        x = generator.random(self.inputs, np.float32)
        if self.labels is None:
            return x, x
        return x, generator.integers(0, 3, self.labels).astype(np.int32)

    def loss(self, nn: Any) -> Any:
        return nn.MSELoss() if self.labels is None else nn.CrossEntropyLoss()

    def pair(self) -> tuple[nn.Module, Any]:
        """The model in graphc and in PyTorch, with equal weights."""
        torch = need_module("torch")
        torch.manual_seed(0)
        ours, theirs = self.make(nn, graphc), self.make(torch.nn, torch)
        for name, parameter in theirs.named_parameters():
            if self.zero and name.endswith(self.zero):
                torch.nn.init.zeros_(parameter)
        ours.load_state_dict(theirs.state_dict())
        return ours, theirs

    def compile(self, model: nn.Module, **options: Any) -> graphc.Program:
        """The program of one step."""
        loss = self.loss(nn)

        def loss_fn(model: Any, x: Any, y: Any) -> Any:
            return loss(model(x), y)

        x, y = self.batch()
        update = getattr(optim, self.rule)(**self.options)
        specs = graphc.spec(x.shape, x.dtype), graphc.spec(y.shape, y.dtype)
        return graphc.compile(loss_fn, model, *specs, update=update, **options)

    def torch_losses(self, model: Any, steps: int = STEPS, dtype: str = "float32") -> list[float]:
        """The losses of PyTorch, which trains `model`."""
        torch = need_module("torch")
        x, y = (torch.from_numpy(a) for a in self.batch())
        model = model.to(getattr(torch, dtype))
        x = x if self.symbols else x.to(getattr(torch, dtype))
        y = x if self.labels is None else y.long()
        optimizer = getattr(torch.optim, self.rule)(model.parameters(), **self.options)
        losses = []
        for _ in range(steps):
            optimizer.zero_grad()
            loss = self.loss(torch.nn)(model(x), y)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses


# Residual blocks that begin as the identity, as they do in practice: otherwise losses depend on
# rounding, in PyTorch too, where float32 and float64 differ by 5 % after one step.
MODELS = {
    "resnet18": Training(
        lambda nn, lib: images.resnet(nn, lib, 18, 8), (8, 3, 32, 32), (8,), rate=0.01,
        zero="bn2.weight",
    ),
    "resnet50": Training(
        lambda nn, lib: images.resnet(nn, lib, 50, 8), (8, 3, 32, 32), (8,), rate=0.01,
        zero="bn3.weight",
    ),
    "vgg": Training(images.vgg, (8, 3, 16, 16), (8,)),
    "mobilenet": Training(images.mobilenet, (8, 3, 16, 16), (8,)),
    "unet": Training(images.unet, (2, 3, 16, 12), (2, 16, 12)),
    "inception": Training(images.inception, (8, 3, 16, 16), (8,)),
    "autoencoder": Training(images.autoencoder, (8, 1, 16, 16), None, "Adam", 3e-3),
    "vit": Training(sequences.vit, (4, 3, 16, 16), (4,), "Adam", 3e-3),
    "gpt": Training(sequences.gpt, (4, 12), (4, 12), "Adam", 3e-3, symbols=20),
}  # fmt: skip
