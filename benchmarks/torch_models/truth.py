"""What PyTorch computes of a model in float64, and how far rounding may move it.

A tolerance is a formula of the model alone, that of the random networks (tests/networks/truth.py):
eight times as far as a result moves if every weight and element of the inputs moves by one
rounding, or if PyTorch computes in float32; and besides 32 roundings of the result's largest
element, of gradients 2 of the largest gradient.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F

from benchmarks.differences import Results, Truth, off
from benchmarks.torch_models.models import Subject

EPSILON = 2.0**-23
"""One rounding of a float32, relative to it."""
TRIALS = 3
"""Runs in which weights and inputs are moved."""


def truth(subject: Subject) -> Truth:
    """Raises FloatingPointError where the results are not finite."""
    exact = results(subject.module, subject, wide)
    if not all(np.isfinite(a).all() for a in exact.values()):
        raise FloatingPointError("the results are not finite")
    random = torch.Generator().manual_seed(1)

    def moved(tensor: torch.Tensor) -> torch.Tensor:
        tensor = wide(tensor)
        if not tensor.is_floating_point():
            return tensor
        signs = torch.randint(0, 2, tensor.shape, generator=random) * 2 - 1
        return tensor * (1 + EPSILON * signs)

    changes: list[Callable[[torch.Tensor], torch.Tensor]] = [*[moved] * TRIALS, torch.clone]
    spread = dict.fromkeys(exact, 0.0)
    for change in changes:
        other = results(subject.module, subject, change)
        spread = {n: max(s, off(other[n], exact[n])) for n, s in spread.items()}
    gradients = [a for name, a in exact.items() if name.startswith("gradient")]
    largest = max((np.abs(a).max(initial=0.0) for a in gradients), default=0.0)
    tolerance = {}
    for name, array in exact.items():
        shared = 2 * EPSILON * largest if name.startswith("gradient") else 0.0
        size = np.abs(array).max(initial=0.0)
        tolerance[name] = float(8 * spread[name] + 32 * EPSILON * size + shared + 1e-30)
    return Truth(exact, tolerance)


def wide(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.double() if tensor.is_floating_point() else tensor


def results(
    module: torch.nn.Module,
    subject: Subject,
    change: Callable[[torch.Tensor], torch.Tensor],
    compiler: Callable[[Any], Any] = lambda module: module,
) -> Results:
    """Outputs in evaluation; then of a training step the loss, the outputs, the gradients and the
    buffers. All that the subject has is copied, changed by `change`, and called through
    `compiler`."""
    own = copy.deepcopy(module)
    with torch.no_grad():
        for tensor in (*own.parameters(), *own.buffers()):
            tensor.data = change(tensor.data)
    arguments, named = _mapped((subject.arguments, subject.named), change)
    call = compiler(own)
    own.eval()
    with torch.no_grad():
        found = {f"output {n}": t for n, t in tensors(call(*arguments, **named)).items()}
    own.train()
    outputs = call(*arguments, **named)
    loss = loss_of(outputs)
    loss.backward()
    found |= {f"training output {n}": t for n, t in tensors(outputs).items()}
    found["loss"] = loss
    for name, parameter in own.named_parameters():
        if parameter.grad is not None:
            found[f"gradient {name}"] = parameter.grad
    found |= {f"buffer {name}": tensor for name, tensor in own.named_buffers()}
    return {name: np.array(tensor.detach().numpy()) for name, tensor in found.items()}


def loss_of(outputs: Any) -> torch.Tensor:
    """What a model computes as its loss; else the cross entropy of its scores, whose classes lie
    along axis 1, or along the last one of [n, t, c]."""
    own = getattr(outputs, "loss", None)
    if own is not None:
        assert isinstance(own, torch.Tensor)
        return own
    losses = []
    for scores in tensors(outputs).values():
        scores = scores.transpose(1, 2) if scores.ndim == 3 else scores
        shape = (scores.shape[0], *scores.shape[2:])
        places = torch.arange(scores.numel() // scores.shape[1]).view(shape)
        losses.append(F.cross_entropy(scores, places * 7 % scores.shape[1]))
    return torch.stack(losses).sum()


def tensors(value: Any, name: str = "") -> dict[str, torch.Tensor]:
    """The float tensors in what a model returns, by where they are."""
    if isinstance(value, torch.Tensor):
        return {name or "0": value} if value.is_floating_point() else {}
    items: Any = ()
    if isinstance(value, Mapping):
        items = value.items()
    elif isinstance(value, tuple | list):
        items = enumerate(value)
    return {n: t for key, v in items for n, t in tensors(v, f"{name}.{key}".strip(".")).items()}


def _mapped(value: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, dict):
        return {k: _mapped(v, change) for k, v in value.items()}
    if isinstance(value, tuple):
        return tuple(_mapped(v, change) for v in value)
    return value
