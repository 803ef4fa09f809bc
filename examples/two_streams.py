"""The same training step on one stream and on two: other plans, the same bits."""

import numpy as np

import graphc
from graphc import nn, optim
from graphc.runtime.plan.plan import Launch


class Net(nn.Module):
    def __init__(self):
        self.conv1, self.conv2 = nn.Conv2d(1, 8, 3, padding=1), nn.Conv2d(8, 16, 3, padding=1)
        self.fc = nn.Linear(16 * 7 * 7, 10)

    def forward(self, x):
        x = graphc.max_pool2d(graphc.relu(self.conv1(x)), 2)
        x = graphc.max_pool2d(graphc.relu(self.conv2(x)), 2)
        return self.fc(graphc.flatten(x))


def loss_fn(model, x, y):
    return graphc.cross_entropy(model(x), y)


def train(streams: int) -> tuple[dict[str, np.ndarray], graphc.Program]:
    """The parameters after five steps, and the program."""
    graphc.seed(0)
    generator = np.random.default_rng(0)
    model = Net()
    specs = graphc.spec((32, 1, 28, 28)), graphc.spec((32,), "int32")
    step = graphc.compile(
        loss_fn, model, *specs, update=optim.SGD(lr=0.1, momentum=0.9), streams=streams
    )
    for _ in range(5):
        x = generator.random((32, 1, 28, 28), dtype=np.float32)
        step(x, generator.integers(0, 10, 32, dtype=np.int32))
    return model.state_dict(), step


def main() -> bool:
    """Whether both give the same bits."""
    one, _ = train(1)
    two, step = train(2)
    for launch in step.plan.steps:
        if isinstance(launch, Launch) and ("dgrad" in launch.kernel or "wgrad" in launch.kernel):
            print(f"stream {launch.stream}: {launch.kernel}")
    print(step.plan.verify())
    same = all(np.array_equal(one[name], two[name]) for name in one)
    print("the parameters are the same bits" if same else "the parameters differ")
    return same


if __name__ == "__main__":
    main()
