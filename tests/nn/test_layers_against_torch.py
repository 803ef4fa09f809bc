"""Every layer beside PyTorch's of the same name and arguments, from the same weights."""

from __future__ import annotations

import numpy as np
import pytest

from graphc import nn
from tests.nn.running import random, run
from tests.support.layers_against_torch import (
    LAYERS,
    LOSSES,
    NORMS,
    Make,
    assert_close,
    compare_with_gradients,
    twins,
)
from tests.tools import need_module

# fmt: on


SIGNS = np.array([1, -1, 1])


def titles(layers: list[tuple[Make, tuple[int, ...]]]) -> list[str]:
    return [f"{repr(make(nn)).split(chr(10))[0]}-{shape}" for make, shape in layers]


@pytest.mark.filterwarnings("ignore:Using padding='same' with even:UserWarning")
@pytest.mark.parametrize(("make", "shape"), LAYERS, ids=titles(LAYERS))
def test_layer_agrees_with_pytorch(make: Make, shape: tuple[int, ...]) -> None:
    ours, theirs = twins(make)
    compare_with_gradients(ours, theirs, random(*shape))


# fmt: on


@pytest.mark.parametrize(("make", "shape", "target"), LOSSES)
def test_loss_agrees_with_pytorch(make: Make, shape: tuple[int, ...], target: str) -> None:
    generator = np.random.default_rng(1)
    labels = {
        "numbers": random(*shape, seed=1),
        "probabilities": generator.dirichlet(np.ones(shape[1]), shape[0]).astype(np.float32),
        "signs": np.sign(random(*shape, seed=1)).astype(np.int64),
        "classes": generator.integers(0, shape[1], (shape[0], *shape[2:])),
    }
    ours, theirs = twins(make)
    compare_with_gradients(ours, theirs, random(*shape), labels[target])


def test_losses_of_probabilities_agree_with_pytorch() -> None:
    ours, theirs = twins(lambda nn: nn.BCELoss())
    generator = np.random.default_rng(1)
    x, target = (generator.uniform(0.05, 0.95, (3, 4)).astype(np.float32) for _ in range(2))
    compare_with_gradients(ours, theirs, x, target)
    ours, theirs = twins(lambda nn: nn.KLDivLoss(reduction="sum", log_target=True))
    compare_with_gradients(ours, theirs, x, np.log(target))


# fmt: off
PAIRED: list[tuple[Make, list[np.ndarray]]] = [
    (lambda nn: nn.CosineSimilarity(), []),
    (lambda nn: nn.CosineSimilarity(dim=0, eps=0.5), []),
    (lambda nn: nn.PairwiseDistance(), []),
    (lambda nn: nn.PairwiseDistance(1.0, 1e-3, True), []),
    (lambda nn: nn.CosineEmbeddingLoss(0.2), [SIGNS]),
    (lambda nn: nn.MarginRankingLoss(0.5, reduction="sum"), [SIGNS[:, None]]),
    (lambda nn: nn.TripletMarginLoss(2.0, p=3), [random(3, 5, seed=2)]),
    (lambda nn: nn.TripletMarginLoss(swap=True, reduction="none"), [random(3, 5, seed=2)]),
    (lambda nn: nn.TripletMarginWithDistanceLoss(margin=0.4), [random(3, 5, seed=2)]),
    (lambda nn: nn.TripletMarginWithDistanceLoss(
        distance_function=lambda a, b: ((a - b) * (a - b)).sum(-1), swap=True),
     [random(3, 5, seed=2)]),
    (lambda nn: nn.GaussianNLLLoss(), [np.abs(random(3, 5, seed=2)) + 0.1]),
    (lambda nn: nn.GaussianNLLLoss(full=True, reduction="sum"), [np.ones((3, 5), np.float32)]),
]
# fmt: on


@pytest.mark.parametrize(("make", "more"), PAIRED)
def test_a_layer_of_two_inputs_agrees_with_pytorch(make: Make, more: list[np.ndarray]) -> None:
    ours, theirs = twins(make)
    compare_with_gradients(ours, theirs, random(3, 5), random(3, 5, seed=1), *more)


def test_binary_losses_are_weighed_as_by_pytorch() -> None:
    torch = need_module("torch")
    weight, positive = np.array([0.5, 2.0, 1.0], np.float32), np.array([3.0], np.float32)
    generator = np.random.default_rng(1)
    x, target = (generator.uniform(0.05, 0.95, (4, 3)).astype(np.float32) for _ in range(2))
    ours = nn.BCEWithLogitsLoss(weight, "sum", positive)
    theirs = torch.nn.BCEWithLogitsLoss(
        torch.from_numpy(weight), reduction="sum", pos_weight=torch.from_numpy(positive)
    )
    assert ours.state_dict().keys() == theirs.state_dict().keys() == {"weight", "pos_weight"}
    compare_with_gradients(ours, theirs, x, target)
    compare_with_gradients(
        nn.BCELoss(weight), torch.nn.BCELoss(torch.from_numpy(weight)), x, target
    )


def test_classes_are_weighed_as_by_pytorch() -> None:
    torch = need_module("torch")
    weight = np.array([0.5, 2.0, 1.0, 0.0], np.float32)
    labels = np.array([0, 1, -100, 3, 1, 2])
    for name in ("CrossEntropyLoss", "NLLLoss"):
        ours = getattr(nn, name)(weight)
        theirs = getattr(torch.nn, name)(torch.from_numpy(weight))
        assert ours.state_dict().keys() == theirs.state_dict().keys() == {"weight"}
        compare_with_gradients(ours, theirs, random(6, 4), labels)


def test_margins_of_several_labels_agree_with_pytorch() -> None:
    ours, theirs = twins(lambda nn: nn.MultiLabelMarginLoss())
    compare_with_gradients(ours, theirs, random(2, 4), np.array([[3, 0, -1, 1], [2, 1, 0, -1]]))


def test_random_slopes_are_their_mean_outside_training() -> None:
    torch = need_module("torch")
    compare_with_gradients(nn.RReLU(0.1, 0.5), torch.nn.RReLU(0.1, 0.5).eval(), random(3, 4))


def test_bilinear_agrees_with_pytorch() -> None:
    for bias in (True, False):
        ours, theirs = twins(lambda nn, bias=bias: nn.Bilinear(4, 3, 5, bias))
        compare_with_gradients(ours, theirs, random(2, 6, 4), random(2, 6, 3, seed=1))


def test_the_padding_row_gets_no_gradient() -> None:
    ours, theirs = twins(lambda nn: nn.Embedding(7, 3, padding_idx=-2))
    assert not nn.Embedding(7, 3, padding_idx=-2).weight.numpy()[5].any()
    compare_with_gradients(ours, theirs, np.array([[0, 5, 3], [3, 5, 1]]))


@pytest.mark.parametrize(("make", "shape"), NORMS, ids=titles(NORMS))
def test_running_statistics_move_and_serve_as_in_pytorch(
    make: Make, shape: tuple[int, ...]
) -> None:
    torch = need_module("torch")
    ours, theirs = twins(make)
    for seed in range(3):
        x = 2 * random(*shape, seed=seed) + 1
        theirs.train()
        assert_close(run(ours, x, training=True), theirs(torch.from_numpy(x)), terms=256)
        state = ours.state_dict()
        for name, expected in theirs.state_dict().items():
            assert state[name].dtype == expected.numpy().dtype
            assert_close(state[name], expected, terms=256)
        theirs.eval()
        assert_close(run(ours, x), theirs(torch.from_numpy(x)), terms=256)


def test_weights_go_to_pytorch_and_back() -> None:
    torch = need_module("torch")
    make: Make = lambda nn: nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2))  # noqa: E731
    ours, theirs = make(nn), make(torch.nn)
    theirs.load_state_dict({k: torch.from_numpy(v) for k, v in ours.state_dict().items()})
    again = make(nn)
    again.load_state_dict(theirs.state_dict())
    for name, array in ours.state_dict().items():
        np.testing.assert_array_equal(again.state_dict()[name], array)
