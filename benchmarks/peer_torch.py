"""Measure PyTorch on the same workloads: variants `eager`, `eager_fused` (fused optimizer) and
`compile` (torch.compile with the fused optimizer).

On a GPU a step copies its inputs from the host's memory and ends when the result is back there, as
a call of graphc's programs does.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from benchmarks.measure import Case, main
from benchmarks.workloads import LEARNING_RATE, MOMENTUM, Model

VARIANTS = ("eager", "eager_fused", "compile")


def forward(model: Model, parameters: dict[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    for layer in model.layers:
        weight, bias = parameters[f"{layer.name}.weight"], parameters[f"{layer.name}.bias"]
        if weight.dim() == 4:
            x = F.conv2d(x, weight, bias, padding=model.padding)
        else:
            x = F.linear(x.flatten(1), weight, bias)
        if layer is not model.layers[-1]:
            x = F.relu(x)
        if weight.dim() == 4:
            x = F.max_pool2d(x, 2)
    return x


def prepare(case: Case) -> Callable[[], Any]:
    torch.set_num_threads(case.threads)
    model = case.workload.model
    arrays, x_array, y_array = case.workload.data()
    device = torch.device(case.device)
    parameters = {k: torch.from_numpy(v).to(device).requires_grad_() for k, v in arrays.items()}
    x, y = torch.from_numpy(x_array), torch.from_numpy(y_array).long()
    if case.mode == "forward":
        return _forward_step(case, model, parameters, x)

    def loss_of(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(forward(model, parameters, x), y)

    compute = torch.compile(loss_of) if case.variant == "compile" else loss_of
    optimizer = torch.optim.SGD(
        parameters.values(),
        LEARNING_RATE,
        momentum=MOMENTUM,
        fused=None if case.variant == "eager" else True,
    )
    counter = itertools.count()

    def step() -> Any:
        optimizer.zero_grad(set_to_none=True)
        loss = compute(x.to(device), y.to(device))
        loss.backward()
        optimizer.step()
        read = next(counter) < 5 or device.type == "cuda"  # the first five are compared
        return loss.item() if read else loss

    return step


def _forward_step(
    case: Case, model: Model, parameters: dict[str, torch.Tensor], x: torch.Tensor
) -> Callable[[], Any]:
    def classify(x: torch.Tensor) -> torch.Tensor:
        logits = forward(model, parameters, x)
        return F.softmax(logits, 1) if model.softmax else logits

    compute = torch.compile(classify) if case.variant == "compile" else classify
    context = torch.no_grad if case.variant == "compile" else torch.inference_mode

    def step() -> Any:
        with context():
            return compute(x.to(case.device)).cpu()

    return step


if __name__ == "__main__":
    main("torch", VARIANTS, prepare)
