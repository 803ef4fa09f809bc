"""Train torchvision's ResNet-18 on handwritten digits, compiled by graphc: one word is changed.

    python examples/torch_resnet.py                     torch.compile(model, backend="graphc")
    python examples/torch_resnet.py --backend eager     PyTorch by itself, from the same weights
    python examples/torch_resnet.py --plan              graphc.from_torch: a step is one plan

It needs torch, torchvision and scikit-learn, whose 1,797 digits it takes. Model, optimizer, batches
and their order are the same each time; so is the accuracy, but for rounding.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from types import ModuleType

import numpy as np
import torch
from digits import load_digits
from torch import nn
from torch.nn.functional import cross_entropy

BATCH, TEST_BATCH = 100, 99
LR, MOMENTUM = 0.02, 0.9


def main(arguments: list[str] | None = None) -> float:
    """The test accuracy in per cent."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backend", default="graphc", help="of torch.compile, or eager")
    parser.add_argument("--plan", action="store_true", help="graphc.from_torch and its update")
    parser.add_argument("--epochs", type=int, default=4)
    options = parser.parse_args(arguments)
    images, labels, test_images, test_labels = load_digits()
    torch.manual_seed(0)
    model = torchvision_models().resnet18(num_classes=10)

    if options.plan:
        step, classify = planned(model)
    else:
        step, classify = compiled(model, options.backend)
    seconds = []
    for epoch in range(options.epochs):
        losses = []
        rate = LR if epoch < options.epochs - 1 else LR / 5  # smaller steps at the end
        for x, y in batches(images, labels, epoch):
            begin = time.perf_counter()
            losses.append(step(x, y, rate))
            seconds.append(time.perf_counter() - begin)
        print(f"epoch {epoch + 1}: loss {statistics.mean(losses):.4f}")
    print(f"{1000 * statistics.median(seconds):.0f} ms per step, the first {seconds[0]:.1f} s")
    found = [classify(part) for part in np.split(colours(test_images), 297 // TEST_BATCH)]
    accuracy = 100 * float(np.mean(np.concatenate(found) == test_labels))
    print(f"test accuracy: {accuracy:.1f} %")
    return accuracy


def compiled(model: nn.Module, backend: str) -> tuple[Callable, Callable]:
    """A step and a classifier; of graphc they know no more than its name."""
    call = model if backend == "eager" else torch.compile(model, backend=backend)
    rule = torch.optim.SGD(model.parameters(), lr=LR, momentum=MOMENTUM)

    def step(x: np.ndarray, y: np.ndarray, rate: float) -> float:
        model.train()
        rule.param_groups[0]["lr"] = rate
        rule.zero_grad()
        loss = cross_entropy(call(torch.from_numpy(x)), torch.from_numpy(y))
        loss.backward()
        rule.step()
        return loss.item()

    def classify(x: np.ndarray) -> np.ndarray:
        model.eval()
        with torch.no_grad():
            return call(torch.from_numpy(x)).argmax(1).numpy()

    return step, classify


def planned(model: nn.Module) -> tuple[Callable, Callable]:
    """The same with graphc's update; PyTorch's model gets the weights back for testing."""
    import graphc
    from graphc import optim

    spec, labels = graphc.spec((BATCH, 3, 28, 28)), graphc.spec((BATCH,), "int64")
    own = graphc.from_torch(model, spec)
    train = graphc.compile(
        lambda net, x, y: graphc.cross_entropy(net(x), y),
        own,
        spec,
        labels,
        update=optim.SGD(lr=LR, momentum=MOMENTUM),
    )

    def step(x: np.ndarray, y: np.ndarray, rate: float) -> float:
        train.lr = rate
        return float(train(x, y))

    def classify(x: np.ndarray) -> np.ndarray:
        model.load_state_dict(graphc.to_torch(own))
        model.eval()
        with torch.no_grad():
            return model(torch.from_numpy(x)).argmax(1).numpy()

    return step, classify


def batches(
    images: np.ndarray, labels: np.ndarray, epoch: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Whole batches in an order of the epoch's own: f32[100, 3, 28, 28] and i64[100]."""
    order = np.random.default_rng(epoch).permutation(len(images))
    for chosen in order[: len(images) // BATCH * BATCH].reshape(-1, BATCH):
        yield colours(images[chosen]), labels[chosen].astype(np.int64)


def colours(images: np.ndarray) -> np.ndarray:
    """Grey images as three equal channels."""
    return np.ascontiguousarray(np.broadcast_to(images, (len(images), 3, *images.shape[2:])))


def torchvision_models() -> ModuleType:
    """torchvision's models, also where its own kernels are built for another PyTorch: no model
    here runs one, but importing it asks for two of them."""
    library = torch.library.Library("torchvision", "FRAGMENT")
    for name in ("nms", "qnms"):
        if not hasattr(torch.ops.torchvision, name):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    from torchvision import models

    return models


if __name__ == "__main__":
    main()
