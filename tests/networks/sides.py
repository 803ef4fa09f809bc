"""The names that a network's text uses: `nn`, `lib` and `freeze`, in graphc and in PyTorch.

`lib` has torch's functions and those of torch.nn.functional under one name, `nn` also the layers
that a user of both would write: they are the same text on both sides.
"""

from __future__ import annotations

from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

import graphc
import graphc.nn


def graphc_names() -> dict[str, Any]:
    def freeze(module: Any) -> None:
        for parameter in module.parameters():
            parameter.trainable = False

    def start(x: Any, features: int) -> Any:
        return graphc.zeros((x.shape[0], features), x.dtype)

    lib = SimpleNamespace(**{name: getattr(graphc, name) for name in dir(graphc)}, start=start)
    lib.parameter = lambda shape: graphc.nn.Parameter(_ramp(shape))
    return {"nn": _layers(graphc.nn, lib), "lib": lib, "freeze": freeze}


def torch_names(torch: ModuleType) -> dict[str, Any]:
    functions = {**vars(torch.nn.functional), **vars(torch)}
    lib = SimpleNamespace(**functions)
    lib.permute_dims = torch.permute
    lib.stop_gradient = lambda x: x.detach()
    lib.parameter = lambda shape: torch.nn.Parameter(torch.tensor(_ramp(shape)))
    lib.start = lambda x, features: x.new_zeros((x.shape[0], features))
    lib.scan = lambda step, init, xs, reverse=False: _scan(torch, step, init, xs, reverse)
    for name in ("cross_entropy", "mse_loss", "smooth_l1_loss", "binary_cross_entropy_with_logits"):
        setattr(lib, name, getattr(torch.nn.functional, name))

    def freeze(module: Any) -> None:
        module.requires_grad_(False)

    return {"nn": _layers(torch.nn, lib), "lib": lib, "freeze": freeze}


def _ramp(shape: tuple[int, ...]) -> np.ndarray[Any, np.dtype[Any]]:
    """Numbers from 0.5 to 1.5."""
    count = int(np.prod(shape))
    return np.linspace(0.5, 1.5, count).astype(np.float32).reshape(shape)


def _scan(torch: Any, step: Any, init: Any, xs: Any, reverse: bool) -> Any:
    carry, stacked = init, []
    for t in reversed(range(len(xs))) if reverse else range(len(xs)):
        carry, y = step(carry, xs[t])
        stacked.append(y)
    return carry, torch.stack(stacked[::-1] if reverse else stacked)


def _layers(nn: Any, lib: Any) -> SimpleNamespace:
    """A package's layers, and those of a user."""

    class Scale(nn.Module):  # type: ignore[misc]
        def __init__(self, shape: tuple[int, ...]) -> None:
            super().__init__()
            self.scale, self.shift = lib.parameter(shape), lib.parameter(shape)

        def forward(self, x: Any) -> Any:
            return x * self.scale + self.shift - 1.0

    class MinimalGRU(nn.Module):  # type: ignore[misc]
        """One gate, and a candidate that sees the whole state."""

        def __init__(self, features: int, hidden: int, reverse: bool) -> None:
            super().__init__()
            self.of_x, self.of_h = nn.Linear(features, 2 * hidden), nn.Linear(hidden, 2 * hidden)
            self.hidden, self.reverse = hidden, reverse

        def forward(self, x: Any) -> Any:
            def step(h: Any, element: Any) -> Any:
                z, n = lib.split(self.of_x(element) + self.of_h(h), self.hidden, -1)
                z = lib.sigmoid(z)
                h = z * h + (1 - z) * lib.tanh(n)
                return h, h

            start = lib.start(x, self.hidden)
            _, y = lib.scan(step, start, lib.swapaxes(x, 0, 1), reverse=self.reverse)
            return lib.swapaxes(y, 0, 1)

    class Leaky(nn.Module):  # type: ignore[misc]
        """An average that forgets at a rate of its own in each feature; it stacks another value
        than it carries."""

        def __init__(self, features: int, hidden: int, reverse: bool) -> None:
            super().__init__()
            self.inner = nn.Linear(features, hidden)
            self.rate = lib.parameter((hidden,))
            self.hidden, self.reverse = hidden, reverse

        def forward(self, x: Any) -> Any:
            def step(h: Any, element: Any) -> Any:
                keep = lib.sigmoid(self.rate)
                h = keep * h + (1 - keep) * self.inner(element)
                return h, lib.relu(h) * 0.5

            start = lib.start(x, self.hidden)
            _, y = lib.scan(step, start, lib.swapaxes(x, 0, 1), reverse=self.reverse)
            return lib.swapaxes(y, 0, 1)

    class Peephole(nn.Module):  # type: ignore[misc]
        """Gates that see the state before and behind the product."""

        def __init__(self, features: int, hidden: int, reverse: bool) -> None:
            super().__init__()
            self.both = nn.Linear(features + hidden, 2 * hidden)
            self.peep = lib.parameter((hidden,))
            self.hidden, self.reverse = hidden, reverse

        def forward(self, x: Any) -> Any:
            def step(c: Any, element: Any) -> Any:
                i, o = lib.chunk(self.both(lib.concat([element, lib.tanh(c)], 1)), 2, 1)
                c = 0.7 * c + lib.tanh(i + self.peep * c)
                return c, lib.sigmoid(o) * lib.tanh(c)

            start = lib.start(x, self.hidden)
            _, y = lib.scan(step, start, lib.swapaxes(x, 0, 1), reverse=self.reverse)
            return lib.swapaxes(y, 0, 1)

    own = {layer.__name__: layer for layer in (Scale, MinimalGRU, Leaky, Peephole)}
    return SimpleNamespace(**{name: getattr(nn, name) for name in dir(nn)} | own)
