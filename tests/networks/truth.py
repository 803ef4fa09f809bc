"""What PyTorch computes of a network in float64, and how far rounding may move it.

A tolerance is a formula of the network alone. Its first term is how far the results move if every
weight and element of the inputs is moved by one rounding, and if PyTorch rounds every op: what is
badly conditioned (a norm over few elements, a difference of large sums) moves far.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.differences import Results, Truth, off
from tests.networks.kinds.heads import Array
from tests.networks.sides import torch_names
from tests.networks.write import Written
from tests.tools import need_module

EPSILON = {"float32": 2.0**-23, "bfloat16": 2.0**-8}
GROWTH = {"float32": 32, "bfloat16": 4}
"""Roundings of the size of a result that it may be off besides: sums are of float32 in both."""
STEPS = 3
RULES: dict[str, dict[str, float]] = {
    "SGD": {"lr": 0.05, "momentum": 0.9},
    "AdamW": {"lr": 0.01, "eps": 0.001, "weight_decay": 0.01},
}


@dataclass(frozen=True)
class Known(Truth):
    """What is known of a network besides its results."""

    weights: Results
    """The contents of the module's state at first."""


def truth(written: Written) -> Known:
    """Raises FloatingPointError where the results are not finite."""
    torch, network = need_module("torch"), written.network
    weights = _weights(torch, written)
    random = np.random.default_rng(network.seed + 1)
    epsilon = EPSILON[network.dtype]
    start = {name: _rounded(torch, a, network.dtype) for name, a in weights.items()}
    arrays = [_rounded(torch, a, network.dtype) for a in written.arrays]
    exact = _run(torch, written, start, arrays, torch.float64)
    if not all(np.isfinite(a).all() for a in exact.values()):
        raise FloatingPointError("the results are not finite")

    def moved(array: Array) -> Array:
        if array.dtype.kind != "f":
            return array
        return array * (1 + epsilon * random.choice((-1.0, 1.0), array.shape))

    others = [
        _run(torch, written, {n: moved(a) for n, a in start.items()}, [*map(moved, arrays)],
             torch.float64)
        for _ in range(3)
    ]  # fmt: skip
    try:
        others.append(_run(torch, written, start, arrays, getattr(torch, network.dtype)))
    except (RuntimeError, NotImplementedError):  # not every op of PyTorch takes bfloat16
        pass
    largest = max((np.abs(a).max() for n, a in exact.items() if _is_gradient(n)), default=0.0)
    tolerance = {}
    for name, array in exact.items():
        spread = max(off(o[name], array) for o in others)
        size = np.abs(array).max(initial=0.0)
        shared = 2 * epsilon * largest if _is_gradient(name) else 0.0
        tolerance[name] = float(
            8 * spread + GROWTH[network.dtype] * epsilon * size + shared + 1e-30
        )
    return Known(exact, tolerance, weights)


def gradient_name(name: str) -> str:
    return f"d loss / d {name}"


def _is_gradient(name: str) -> bool:
    return name.startswith("d loss")


def _weights(torch: Any, written: Written) -> Results:
    """PyTorch's initial weights; those of norms, and running statistics, vary."""
    torch.manual_seed(written.network.seed)
    random = np.random.default_rng(written.network.seed + 2)
    model = written.names(torch_names(torch))["Network"]()
    found = {}
    for name, tensor in model.state_dict().items():
        array = tensor.numpy()
        if array.dtype.kind == "f" and array.ndim == 1:
            array = array + random.uniform(-0.3, 0.3, array.shape).astype(np.float32)
        found[name] = array
    return found


def _rounded(torch: Any, array: Array, dtype: str) -> Array:
    """In float64, the value that a tensor of `dtype` holds. Integers stay as they are."""
    if array.dtype.kind != "f":
        return array
    rounded: Array = torch.tensor(array).to(getattr(torch, dtype)).to(torch.float64).numpy()
    return rounded


def _run(torch: Any, written: Written, start: Results, arrays: list[Array], dtype: Any) -> Results:
    names = written.names(torch_names(torch))
    model = names["Network"]().to(dtype)
    model.load_state_dict({name: torch.tensor(array) for name, array in start.items()})
    model.train(written.network.training)
    network, tensors = written.network, []
    for number, array in enumerate(arrays):
        tensor = torch.tensor(array)
        tensor = tensor.to(dtype) if array.dtype.kind == "f" else tensor
        inner = number < len(network.inputs) and array.dtype.kind == "f"
        tensors.append(tensor.requires_grad_(inner and network.mode == "gradient"))
    if network.mode == "train":
        found = _train(torch, names["loss"], model, tensors, network.rule)
    else:
        found = {}
        if network.mode == "gradient":
            loss, *values = names["loss"](model, *tensors)
            loss.backward()
            found = {"loss": loss}
            for name, parameter in model.named_parameters():
                if parameter.requires_grad:
                    found[gradient_name(name)] = _gradient_of(torch, parameter)
            for number, tensor in enumerate(tensors):
                if tensor.requires_grad:
                    found[gradient_name(f"v{number}")] = _gradient_of(torch, tensor)
        else:
            with torch.no_grad():
                values = model(*tensors[: len(network.inputs)])
        found |= {f"v{h.value}": v for h, v in zip(network.heads, values, strict=True)}
    found |= {f"{name} afterwards": tensor for name, tensor in model.state_dict().items()}
    return {name: t.detach().to(torch.float64).numpy() for name, t in found.items()}


def _gradient_of(torch: Any, tensor: Any) -> Any:
    return torch.zeros_like(tensor) if tensor.grad is None else tensor.grad


def _train(torch: Any, loss_fn: Any, model: Any, tensors: list[Any], rule: str) -> dict[str, Any]:
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = getattr(torch.optim, rule)(trained, **RULES[rule])
    found = {}
    for step in range(STEPS):
        optimizer.zero_grad()
        loss, *_ = loss_fn(model, *tensors)
        loss.backward()
        optimizer.step()
        found[f"loss {step}"] = loss
    return found
