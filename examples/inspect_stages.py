"""One line of a model, followed from Python to the plan: the same names all the way."""

import numpy as np

import graphc
from graphc import nn, optim

LINE = "x = graphc.max_pool2d(graphc.relu(self.conv1(x)), 2)"


class Net(nn.Module):
    def __init__(self):
        self.conv1, self.fc = nn.Conv2d(1, 4, kernel_size=3), nn.Linear(4 * 5 * 5, 10)

    def forward(self, x):
        x = graphc.max_pool2d(graphc.relu(self.conv1(x)), 2)
        return self.fc(graphc.flatten(x))


def loss_fn(model, x, y):
    return graphc.cross_entropy(model(x), y)


def main() -> graphc.Program:
    """Print what every stage knows of `LINE`."""
    with open(__file__) as file:
        number = next(i for i, text in enumerate(file, 1) if text.strip() == LINE)
    place = f"inspect_stages.py:{number}"
    step = graphc.compile(
        loss_fn,
        Net(),
        graphc.spec((32, 1, 12, 12)),
        graphc.spec((32,), "int32"),
        update=optim.SGD(lr=0.1),
    )
    print(f"{place}: {LINE}\n")
    for stage, graph in step.stages.items():
        print(f"after {stage}: {len(graph.nodes)} nodes, of this line")
        print("\n".join(text for text in str(graph).splitlines() if place in text), "\n")

    name = next(name for name in step.kernels if name.startswith("conv1"))
    print(f"the generated kernel {name}\n{step.kernels[name]}")
    print(step.plan)
    x = np.random.default_rng(0).random((32, 1, 12, 12), dtype=np.float32)
    print(step.profile(x, np.zeros(32, np.int32)))
    return step


if __name__ == "__main__":
    main()
