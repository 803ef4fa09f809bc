"""PyTorch's recurrent layers as operators of graphc's own, one for each direction of each layer.

PyTorch writes `nn.LSTM`, `nn.GRU` and `nn.RNN` as one operator a step, which compiles in time that
grows with the sequence. Here they are one operator each, forward and backward, before AOTAutograd
or torch.export write the graph in core operators; its rule is a loop. The forward operator hands
the backward one what its steps computed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import GraphModule
from torch.overrides import TorchFunctionMode

from graphc.torch.aten.cells import Layer

_KINDS = {"lstm": "lstm", "gru": "gru", "rnn_tanh": "tanh", "rnn_relu": "relu"}
Tensors = Sequence[torch.Tensor]

torch.library.define(
    "graphc::recurrent",
    "(str kind, Tensor x, Tensor[] state, Tensor[] weights, bool biased, bool reverse) -> Tensor[]",
)
torch.library.define(
    "graphc::recurrent_backward",
    "(str kind, Tensor[] grads, Tensor x, Tensor[] state, Tensor[] weights, Tensor[] results, "
    "bool biased, bool reverse) -> Tensor[]",
)


def scan(step: Callable[..., Any], carry: Any, elements: Any, reverse: bool) -> tuple[Any, Any]:
    """`functions.scan` of PyTorch's tensors, step by step."""
    single = isinstance(elements, torch.Tensor)
    count = len(elements if single else elements[0])
    found: list[Any] = [None] * count
    for t in reversed(range(count)) if reverse else range(count):
        carry, found[t] = step(carry, elements[t] if single else tuple(e[t] for e in elements))
    return tuple(c.clone() for c in carry), [torch.stack(y) for y in zip(*found, strict=True)]


@torch.library.impl("graphc::recurrent", "CompositeExplicitAutograd")
def _recurrent(
    kind: str, x: torch.Tensor, state: Tensors, weights: Tensors, biased: bool, reverse: bool
) -> list[torch.Tensor]:
    return Layer(torch, scan, kind, biased, reverse).forward(x, state, weights)


@torch.library.impl("graphc::recurrent_backward", "CompositeExplicitAutograd")
def _recurrent_backward(kind: str, *tensors: Any) -> list[torch.Tensor]:
    *given, biased, reverse = tensors
    return Layer(torch, scan, kind, biased, reverse).backward(*given)


def _recurrent_types(
    kind: str, x: torch.Tensor, state: Tensors, weights: Tensors, biased: bool, reverse: bool
) -> list[torch.Tensor]:
    t, n = x.shape[:2]
    h, rows = state[0].shape[-1], weights[1].shape[0]
    kept = {"lstm": [rows // 4] * 5, "gru": [h] * 4}.get(kind, [])
    last = [x.new_empty(s.shape) for s in state]
    return [x.new_empty((t, n, h)), *last, *(x.new_empty((t, n, k)) for k in kept)]


def _recurrent_backward_types(
    kind: str, grads: Tensors, x: torch.Tensor, state: Tensors, weights: Tensors, *more: Any
) -> list[torch.Tensor]:
    return [t.new_empty(t.shape) for t in (x, *state, *weights)]


torch.library.register_fake("graphc::recurrent", _recurrent_types)
torch.library.register_fake("graphc::recurrent_backward", _recurrent_backward_types)


class _Direction(torch.autograd.Function):
    """One direction of one layer: y, then the last states."""

    @staticmethod
    def forward(ctx: Any, kind: str, biased: bool, reverse: bool, count: int, *given: Any) -> Any:
        x, state, weights = given[0], given[1 : 1 + count], given[1 + count :]
        results = torch.ops.graphc.recurrent(kind, x, state, weights, biased, reverse)
        ctx.options, ctx.sizes = (kind, biased, reverse), (count, len(given))
        ctx.save_for_backward(*given, *results)
        return tuple(results[: 1 + count])

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        (kind, biased, reverse), (count, inputs) = ctx.options, ctx.sizes
        given, results = ctx.saved_tensors[:inputs], ctx.saved_tensors[inputs:]
        x, state, weights = given[0], given[1 : 1 + count], given[1 + count :]
        found = torch.ops.graphc.recurrent_backward(
            kind, grads, x, state, weights, results, biased, reverse
        )
        return None, None, None, None, *found


def layers(kind: str, *args: Any) -> tuple[torch.Tensor, ...]:
    """Return y and the last states of `torch.lstm`, `torch.gru` or a simple RNN."""
    return _stacked(_Direction.apply, kind, *args)


def _stacked(
    direction: Callable[..., Any],
    kind: str,
    x: torch.Tensor,
    hx: Any,
    weights: Tensors,
    biased: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[torch.Tensor, ...]:
    states = list(hx) if kind == "lstm" else [hx]
    directions = 2 if bidirectional else 1
    each = len(weights) // (num_layers * directions)
    x = x.transpose(0, 1) if batch_first else x
    last: list[Any] = []
    for number in range(num_layers):
        if number and dropout and train:
            x = torch.nn.functional.dropout(x, dropout, True)
        sides = []
        for side in range(directions):
            place = len(last)
            own = weights[place * each : (place + 1) * each]
            begin = [state[place] for state in states]
            y, *end = direction(kind, biased, side == 1, len(states), x.contiguous(), *begin, *own)
            sides.append(y)
            last.append(end)
        x = sides[0] if directions == 1 else torch.cat(sides, -1)
    ends = (torch.stack(parts) for parts in zip(*last, strict=True))
    return (x.transpose(0, 1) if batch_first else x, *ends)


_FUNCTIONS = {getattr(torch, name): kind for name, kind in _KINDS.items()}


def _taken(function: Any, args: Sequence[Any]) -> str | None:
    """Return the kind of layer that a call computes; None for calls that stay in PyTorch.

    Packed sequences do.
    """
    whole = len(args) == 9 and isinstance(args[3], bool)
    return _FUNCTIONS.get(function) if whole else None


class WithLayers(TorchFunctionMode):
    """Lets calls of recurrent layers be as `layers` writes them, without their gradients."""

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kind = _taken(function, args)
        if kind is None:
            return function(*args, **(kwargs or {}))
        return _stacked(_without_gradient, kind, *args)


def _without_gradient(
    kind: str, biased: bool, reverse: bool, count: int, x: torch.Tensor, *given: torch.Tensor
) -> list[torch.Tensor]:
    results: list[torch.Tensor] = torch.ops.graphc.recurrent(
        kind, x, given[:count], given[count:], biased, reverse
    )
    return results[: 1 + count]


def with_layers(module: GraphModule) -> GraphModule:
    """Replace recurrent layers in Dynamo's graph by `layers`.

    Packed sequences and layers on devices that are neither CPUs nor GPUs stay as they are.
    """
    for node in list(module.graph.nodes):
        kind = _taken(node.target, node.args) if node.op == "call_function" else None
        if kind is not None and node.args[0].meta["example_value"].device.type in ("cpu", "cuda"):
            node.target, node.args = layers, (kind, *node.args)
    module.recompile()
    return module
