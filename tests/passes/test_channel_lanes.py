"""Channels in the lanes: which kernels get them, where they pay, and that nothing else changes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphc
from graphc import nn, optim
from graphc.ir import Graph
from graphc.ir.sum_order import LANES
from graphc.passes.layout import channels
from tests.passes.meaning import assert_same_meaning

CLASSES = 10


class Net(nn.Module):
    """A convolution of three channels, what `middle` makes of its images, and a dense layer."""

    def __init__(self, middle: Callable[..., Any], channels: int = 2 * LANES) -> None:
        self.stem = nn.Conv2d(3, channels, 3, padding=1)
        self.norm = nn.BatchNorm2d(channels)
        self.conv = nn.Conv2d(channels, channels, 3, padding=1)
        self.down = nn.Conv2d(channels, LANES, 3, stride=2, padding=1)
        self.pointwise = nn.Conv2d(channels, channels, 1)
        self.depthwise = nn.Conv2d(channels, channels, 3, padding=1, groups=channels)
        self.up = nn.ConvTranspose2d(channels, LANES, 2, stride=2)
        self.scale = nn.Parameter(np.linspace(1, 2, 7 * 6, dtype=np.float32).reshape(7, 6))
        self.middle = middle
        self.head = nn.Linear(self.features(channels), CLASSES)

    def features(self, channels: int) -> int:
        graph = graphc.trace(lambda x: self.images(x), graphc.spec((2, 3, 7, 6)))
        return math.prod(graph.outputs[0].type.shape[1:])

    def images(self, x: Any) -> Any:
        return self.middle(self, graphc.relu(self.stem(x)))

    def forward(self, x: Any) -> Any:
        return self.head(graphc.flatten(self.images(x)))


MIDDLES: dict[str, Callable[[Net, Any], Any]] = {
    "convolutions": lambda m, x: m.down(graphc.relu(m.conv(x)) + x),
    "norms": lambda m, x: m.conv(graphc.relu(m.norm(m.conv(x)))),
    "max_pooling": lambda m, x: m.conv(graphc.max_pool2d(m.conv(x), 3, stride=2, padding=1)),
    "mean_pooling": lambda m, x: graphc.avg_pool2d(m.pointwise(m.conv(x)), 2),
    "global_mean": lambda m, x: graphc.mean(m.conv(x), (2, 3)),
    "softmax_of_channels": lambda m, x: m.conv(graphc.softmax(m.conv(x), 1)),
    "softmax_of_pixels": lambda m, x: m.conv(graphc.softmax(m.conv(x), 3)),
    "factors_of_pixels": lambda m, x: m.conv(m.conv(x) * m.scale),
    "gates_of_channels": lambda m, x: m.conv(
        x * graphc.sigmoid(graphc.mean(m.conv(x), (2, 3), keepdims=True))
    ),
    "concat_of_channels": lambda m, x: m.conv(
        graphc.concat([m.conv(x)[:, :LANES], m.conv(x)[:, LANES:]], axis=1)
    ),
    "concat_of_rows": lambda m, x: m.conv(graphc.concat([m.conv(x), x], axis=2)),
    "channels_last": lambda m, x: graphc.permute_dims(m.conv(x), (0, 2, 3, 1)) * 2,
    "some_channels": lambda m, x: m.conv(x)[:, 3:20],
    "some_pixels": lambda m, x: m.conv(m.conv(x)[:, :, 1:-1, ::2]),
    "shuffled_channels": lambda m, x: m.conv(
        graphc.reshape(
            graphc.permute_dims(graphc.reshape(m.conv(x), (2, 2, LANES, 7, 6)), (0, 2, 1, 3, 4)),
            (2, 2 * LANES, 7, 6),
        )
    ),
    "depthwise": lambda m, x: m.pointwise(graphc.relu(m.depthwise(m.pointwise(x)))),
    "transposed": lambda m, x: m.up(m.conv(x)),
    "dropout": lambda m, x: m.conv(graphc.dropout(m.conv(x), 0.5, training=True)),
    "twice": lambda m, x: m.conv(m.conv(m.conv(x))),
    "padded": lambda m, x: m.conv(graphc.pad(m.conv(x), ((0, 0), (0, 0), (1, 2), (0, 3)))),
}


def loss(model: Net, x: Any, y: Any) -> Any:
    return graphc.cross_entropy(model(x), y)


def trained(middle: str, **options: Any) -> tuple[Any, list[float], list[np.ndarray]]:
    """A training program of the middle on two images, its losses and the parameters after them."""
    graphc.seed(0)
    model = Net(MIDDLES[middle])
    random = np.random.default_rng(0)
    x = random.standard_normal((2, 3, 7, 6)).astype(np.float32)
    y = random.integers(0, CLASSES, 2).astype(np.int32)
    specs = graphc.spec(x.shape), graphc.spec(y.shape, "int32")
    rule = optim.SGD(lr=0.02, momentum=0.9)
    program = graphc.compile(loss, model, *specs, update=rule, seed=1, **options)
    losses = [float(program(x, y)) for _ in range(2)]
    return program, losses, list(model.state_dict().values())


def laned(graph: Graph) -> list[str]:
    """The ops of the bodies that write values with channels in the lanes."""
    return [
        inner.op.name
        for n in graph.nodes
        for v in n.outputs
        if v.type.layout.axis == 1
        for inner in getattr(getattr(n.op, "body", None), "nodes", ())
    ]


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lanes wherever they are possible, though these images are too small to gain."""
    monkeypatch.setattr(channels, "ROW_SHARE", 1e-6)


@pytest.mark.parametrize("middle", MIDDLES)
def test_training_is_the_same_with_channels_in_the_lanes(middle: str, always: None) -> None:
    program, losses, parameters = trained(middle, device="cpu")
    assert {"conv2d", "relu"} <= set(laned(program.graph))
    assert_same_meaning(program.stages["lane_weights"], program.stages["channel_lanes"])
    _, expected, plain = trained(middle, device="reference")
    np.testing.assert_allclose(losses, expected, rtol=1e-5)
    for a, b in zip(parameters, plain, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=2e-5 * (1 + np.abs(b).max()))


def test_results_do_not_depend_on_threads_and_streams(always: None) -> None:
    first = trained("norms", device="cpu", threads=1)
    for threads, streams in ((2, 1), (1, 2), (3, 3)):
        other = trained("norms", device="cpu", threads=threads, streams=streams)
        assert other[1] == first[1]
        for a, b in zip(other[2], first[2], strict=True):
            np.testing.assert_array_equal(a, b)


def forward(channels: int, size: int, batch: int = 1, groups: int = 1, dilation: int = 1) -> Graph:
    graphc.seed(0)
    conv = nn.Conv2d(channels, channels, 3, padding=dilation, groups=groups, dilation=dilation)
    spec = graphc.spec((batch, channels, size, size))
    return graphc.compile(lambda m, x: m(m(x)), conv, spec, device="cpu").graph


def test_lanes_need_whole_registers_of_channels_and_a_small_batch(unbuilt: None) -> None:
    assert "conv2d" in laned(forward(4 * LANES, 28))
    assert not laned(forward(4 * LANES + 1, 28)) and not laned(forward(4 * LANES + 8, 28))
    assert not laned(forward(4 * LANES, 28, groups=2))
    assert laned(forward(4 * LANES, 28, dilation=7)) and not laned(
        forward(4 * LANES, 28, dilation=8)
    )
    assert not laned(forward(4 * LANES, 28, batch=LANES))


def test_one_pixel_is_the_same_memory_in_both_layouts(
    monkeypatch: pytest.MonkeyPatch, unbuilt: None
) -> None:
    monkeypatch.setattr(channels, "ROW_SHARE", 1e-6)
    assert laned(forward(4 * LANES, 2))
    assert not laned(forward(4 * LANES, 1))


def test_a_conversion_that_costs_more_than_it_gains_is_not_made(
    monkeypatch: pytest.MonkeyPatch, unbuilt: None
) -> None:
    monkeypatch.setattr(channels, "ROW_SHARE", 0.749)
    assert not laned(forward(4 * LANES, LANES))


def test_what_has_the_batch_in_its_lanes_keeps_them(always: None) -> None:
    """Images in another order have no batch in lanes, though what meets their convolution has."""

    def turned(x: Any, weight: Any, scale: Any) -> Any:
        y = graphc.conv2d(graphc.concat([x[1:], x[:1]], 0), weight, None, 1, 1)
        return graphc.mean(y * scale), y

    shapes = (3 * LANES, 3, 4, 5), (LANES, 3, 3, 3), (3 * LANES, LANES, 4, 5)
    arrays = [np.random.default_rng(0).standard_normal(s).astype(np.float32) for s in shapes]
    function = graphc.value_and_grad(turned, (0, 1))
    program = graphc.compile(function, *map(graphc.spec, shapes), device="cpu")
    plain = graphc.compile(function, *map(graphc.spec, shapes), device="reference")
    assert any("{lanes=0" in line for line in str(program.graph).splitlines())
    (got, image), found = program(*arrays)
    (want, true_image), expected = plain(*arrays)
    for a, b in zip((got, image, *found), (want, true_image, *expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-4)


@pytest.mark.parametrize("axis", [0, 1, 2, 3])
def test_convolutions_behind_joined_images_are_right(axis: int) -> None:
    """Whose data gradient the activations of both images read by parts, as in a Siamese network."""
    size, shape = 2 * LANES, (4, 8, 6, 6)
    filters = [(size, 8, 3, 3), (size, 8, 3, 3), (size, size * (1 + (axis == 1)), 3, 3)]

    def loss(x: Any, first: Any, second: Any, third: Any) -> Any:
        images = [graphc.tanh(graphc.conv2d(x, w)) for w in (first, second)]
        return graphc.sum(graphc.square(graphc.conv2d(graphc.concat(images, axis), third)))

    rng = np.random.default_rng(0)
    values = [rng.normal(0, 0.2, s).astype(np.float32) for s in (shape, *filters)]
    specs = [graphc.spec(v.shape) for v in values]
    gradients = graphc.grad(loss, (1, 2, 3))
    here, there = (graphc.compile(gradients, *specs, device=d) for d in ("cpu", "reference"))
    for got, want in zip(here(*values), there(*values), strict=True):
        np.testing.assert_allclose(got, want, rtol=0, atol=1e-4 * np.abs(want).max())
