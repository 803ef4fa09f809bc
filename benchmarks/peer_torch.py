"""Measure PyTorch on the same workloads: variants `eager`, `eager_fused` (fused optimizer) and
`compile` (torch.compile with the fused optimizer).

Parameters are plain tensors in a dict, not modules, which costs PyTorch less Python per step. On a
GPU a step copies its inputs from the host's memory and ends when the result is back there, as a
call of graphc's programs does.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from benchmarks.measure import Case, main
from benchmarks.workload import RATES, Array

VARIANTS = ("eager", "eager_fused", "compile")


class Functions:
    """PyTorch's functions, wherever they live."""

    def __getattr__(self, name: str) -> Any:
        return getattr(F if hasattr(F, name) else torch, name)


def prepare(case: Case) -> Callable[[], Any]:
    torch.set_num_threads(case.threads)
    workload, lib = case.workload, Functions()
    data = workload.data()
    parameters = {k: _tensor(v, case.device).requires_grad_() for k, v in data.parameters.items()}
    statistics = {k: _tensor(v, case.device) for k, v in data.statistics.items()}
    tensors = {**parameters, **statistics}
    x, y = _tensor(data.x, "cpu"), _tensor(data.y, "cpu")

    def outputs(x: torch.Tensor, training: bool) -> torch.Tensor:
        return workload.forward(lib, tensors, x, training)

    def loss_of(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return workload.loss(lib, outputs(x, True), y)

    if case.mode == "forward":
        return _forward_step(case, outputs, x)
    if workload.rule is None:
        return _gradient_step(case, outputs, parameters, x, y)
    compute = torch.compile(loss_of) if case.variant == "compile" else loss_of
    fused = None if case.variant == "eager" else True
    rule = getattr(torch.optim, workload.rule)
    optimizer = rule(parameters.values(), **RATES[workload.rule], fused=fused)
    counter = itertools.count()

    def step() -> Any:
        optimizer.zero_grad(set_to_none=True)
        loss = compute(x.to(case.device), y.to(case.device))
        loss.backward()
        optimizer.step()
        read = next(counter) < 5 or case.device != "cpu"  # the first five are compared
        return loss.item() if read else loss

    return step


def _tensor(array: Array, device: str) -> torch.Tensor:
    """A copy of the array; labels as PyTorch wants them."""
    tensor = torch.from_numpy(array.copy()).to(device)
    return tensor.long() if tensor.dtype == torch.int32 else tensor


def _forward_step(
    case: Case, outputs: Callable[[torch.Tensor, bool], torch.Tensor], x: torch.Tensor
) -> Callable[[], Any]:
    compute = torch.compile(outputs) if case.variant == "compile" else outputs
    context = torch.no_grad if case.variant == "compile" else torch.inference_mode

    def step() -> Any:
        with context():
            return compute(x.to(case.device), False).cpu()

    return step


def _gradient_step(
    case: Case,
    outputs: Callable[[torch.Tensor, bool], torch.Tensor],
    parameters: dict[str, torch.Tensor],
    x: torch.Tensor,
    y: torch.Tensor,
) -> Callable[[], Any]:
    compute = torch.compile(outputs) if case.variant == "compile" else outputs

    def step() -> Any:
        for parameter in parameters.values():
            parameter.grad = None
        leaf = x.to(case.device).detach().requires_grad_()
        compute(leaf, False).backward(y.to(case.device))
        return leaf.grad.cpu()

    return step


if __name__ == "__main__":
    main("torch", VARIANTS, prepare)
