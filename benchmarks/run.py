"""Measure graphc: `python -m benchmarks.run --workload mnist-cnn-b100 --mode train --threads 2`.

Prints one JSON line; `check` holds the first five losses or outputs. Variants: `default`, and
`streams2`, `streams4` on so many streams.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import graphc
from benchmarks.measure import Case, main
from benchmarks.workloads import LEARNING_RATE, MOMENTUM, Model
from graphc import nn, optim

STREAMS = {"default": 1, "streams2": 2, "streams4": 4}


class Network(nn.Module):
    """A workload's model in graphc."""

    def __init__(self, model: Model) -> None:
        self.model = model
        for layer in model.layers:
            outputs, inputs, *kernel = layer.weight
            if kernel:
                made: nn.Module = nn.Conv2d(inputs, outputs, kernel[0], padding=model.padding)
            else:
                made = nn.Linear(inputs, outputs)
            setattr(self, layer.name, made)

    def forward(self, x: graphc.Tensor) -> graphc.Tensor:
        last = self.model.layers[-1]
        for layer in self.model.layers:
            is_convolution = len(layer.weight) == 4
            if not is_convolution and x.ndim > 2:
                x = graphc.flatten(x)
            x = getattr(self, layer.name)(x)
            if layer is not last:
                x = graphc.relu(x)
            if is_convolution:
                x = graphc.max_pool2d(x, 2)
        return x


def loss_fn(model: Network, x: graphc.Tensor, y: graphc.Tensor) -> graphc.Tensor:
    return graphc.cross_entropy(model(x), y)


def classify(model: Network, x: graphc.Tensor) -> graphc.Tensor:
    """The forward pass that is timed."""
    logits = model(x)
    return graphc.softmax(logits, axis=1) if model.model.softmax else logits


def prepare(case: Case) -> Callable[[], Any]:
    parameters, x, y = case.workload.data()
    model = Network(case.workload.model)
    model.load_state_dict(parameters)
    options: dict[str, Any] = {
        "device": case.device,
        "threads": case.threads,
        "streams": STREAMS[case.variant],
    }
    if case.mode == "forward":
        forward = graphc.compile(classify, model, graphc.spec(x.shape), **options)
        return lambda: forward(x)
    rule = optim.SGD(lr=LEARNING_RATE, momentum=MOMENTUM)
    specs = graphc.spec(x.shape), graphc.spec(y.shape, "int32")
    train = graphc.compile(loss_fn, model, *specs, update=rule, **options)
    return lambda: train(x, y)


if __name__ == "__main__":
    main("graphc", tuple(STREAMS), prepare)
