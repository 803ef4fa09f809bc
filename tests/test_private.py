"""optim.DPSGD: gradients of samples, clipped, summed and made noisy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphc
from examples.digits import LeNet
from graphc import nn, optim
from graphc.base.errors import GraphError

DEVICES = ("reference", "cpu", "sim")
RNG = np.random.default_rng(0)


class Sequences(nn.Module):
    """A layer of several rows for each sample: the norm is that of Gram matrices."""

    def __init__(self) -> None:
        self.first, self.second = nn.Linear(24, 20), nn.Linear(20, 10)

    def forward(self, x: Any) -> Any:
        return self.second(graphc.mean(graphc.tanh(self.first(x)), 1))


class Tied(nn.Module):
    """A weight that is used twice, a norm, and a recurrence."""

    def __init__(self) -> None:
        self.fc, self.norm, self.rnn = nn.Linear(8, 8), nn.LayerNorm(8), nn.GRU(8, 10)

    def forward(self, x: Any) -> Any:
        y = self.fc(self.norm(graphc.tanh(self.fc(x))))
        return self.rnn(graphc.swapaxes(y, 0, 1))[0][-1]


MODELS: dict[str, tuple[Callable[[], Any], tuple[int, ...]]] = {
    "mlp": (lambda: nn.Sequential(nn.Linear(20, 16), nn.ReLU(), nn.Linear(16, 10)), (20,)),
    "sequences": (Sequences, (3, 24)),
    "tied": (Tied, (4, 8)),
    "convolutions": (
        lambda: nn.Sequential(
            nn.Conv2d(2, 6, 3, stride=2, groups=2),
            nn.GroupNorm(2, 6),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(54, 10),
        ),
        (2, 8, 7),
    ),
    "pixels": (
        lambda: nn.Sequential(
            nn.Conv2d(8, 12, 3, stride=2, padding=1, groups=2),
            nn.ReLU(),
            nn.Conv2d(12, 20, 2, dilation=2, padding=(1, 0)),
            nn.Flatten(),
            nn.Linear(240, 10),
        ),
        (8, 7, 9),
    ),
    "lenet": (LeNet, (1, 28, 28)),
}


def loss_fn(model: Any, x: Any, y: Any) -> Any:
    return graphc.cross_entropy(model(x), y)


def naive(clip: float) -> Callable[..., Any]:
    """The mean loss and the mean of clipped gradients, each sample's in memory."""

    def clipped(model: Any, x: Any, y: Any) -> Any:
        def one(a: Any, b: Any) -> Any:
            return graphc.value_and_grad(loss_fn)(model, a[None], b[None])

        losses, slopes = graphc.vmap(one)(x, y)
        squares = [graphc.sum(graphc.reshape(g, (x.shape[0], -1)) ** 2, 1) for g in slopes.values()]
        norms = graphc.sqrt(sum(squares[1:], start=squares[0]))
        factors = graphc.minimum(1.0, clip / norms)
        sums = {n: graphc.tensordot(factors, g, 1) for n, g in slopes.items()}
        return graphc.mean(losses), norms, {n: g / x.shape[0] for n, g in sums.items()}

    return clipped


def data(shape: tuple[int, ...], count: int = 5) -> tuple[Any, Any]:
    x = RNG.standard_normal((count, *shape)).astype(np.float32)
    return x * np.linspace(0.1, 3, count, dtype=np.float32).reshape(-1, *[1] * len(shape)), (
        np.arange(count) % 10
    ).astype(np.int32)


def step_of(
    make: Callable[[], Any],
    x: Any,
    y: Any,
    device: str,
    clip: float,
    noise: float = 0.0,
    **options: Any,
) -> tuple[Any, Any]:
    """A model and its private step of rate 1."""
    graphc.seed(0)
    model = make()
    specs = graphc.spec(x.shape), graphc.spec(y.shape, "int32")
    rule = optim.DPSGD(clip, noise, lr=1.0)
    options |= {"update": rule, "device": device, "seed": 1}
    return model, graphc.compile(loss_fn, model, *specs, **options)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", [n for n in MODELS if n not in ("lenet", "pixels")])
def test_a_step_is_that_of_gradients_of_each_sample(name: str, device: str) -> None:
    make, shape = MODELS[name]
    x, y = data(shape)
    check(make, x, y, device)


@pytest.mark.parametrize("device", DEVICES)
def test_products_of_pixels_give_the_norms_of_convolutions(
    device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("graphc.program.sample_norms.DIRECT", 1e9)
    make, shape = MODELS["pixels"]
    check(make, *data(shape), device)


def test_a_lenet_too() -> None:
    make, shape = MODELS["lenet"]
    check(make, *data(shape), "cpu")


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", ["mlp", "sequences", "tied", "convolutions"])
def test_micro_batches_add_up(name: str, device: str) -> None:
    make, shape = MODELS[name]
    check(make, *data(shape, 6), device, accumulate=3)


def test_micro_batches_take_less_memory_and_draw_noise_once() -> None:
    make, shape = MODELS["convolutions"]
    x, y = data(shape, 60)
    whole, step = step_of(make, x, y, "cpu", 1.0, 2.0)
    parts, other = step_of(make, x, y, "cpu", 1.0, 2.0, accumulate=6)
    assert other.plan.peak_bytes < 0.4 * step.plan.peak_bytes
    np.testing.assert_allclose(step(x, y), other(x, y), rtol=1e-5)
    for name, expected in whole.state_dict().items():
        found = parts.state_dict()[name]
        np.testing.assert_allclose(found, expected, atol=1e-5, rtol=1e-4, err_msg=name)


def check(make: Callable[[], Any], x: Any, y: Any, device: str, **options: Any) -> None:
    graphc.seed(0)
    twin = make()
    specs = graphc.spec(x.shape), graphc.spec(y.shape, "int32")
    norms = graphc.compile(naive(1.0), twin, *specs, device="cpu")(x, y)[1]
    clip = float(np.median(norms))  # some samples are clipped, others not
    assert norms.min() < clip < norms.max()
    loss, _, slopes = graphc.compile(naive(clip), twin, *specs, device="cpu")(x, y)
    model, step = step_of(make, x, y, device, clip, **options)
    before = model.state_dict()
    np.testing.assert_allclose(step(x, y), loss, rtol=1e-5)
    after = model.state_dict()
    for name, expected in slopes.items():
        found = before[name] - after[name]
        np.testing.assert_allclose(found, expected, atol=3e-6, rtol=1e-3, err_msg=name)


@pytest.mark.parametrize("name", ["mlp", "pixels"])
def test_bits_depend_on_neither_streams_nor_threads(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, shape = MODELS[name]
    x, y = data(shape, 20)
    found = []
    for streams, threads in ((1, 1), (2, 2), (4, 3)):
        monkeypatch.setenv("GRAPHC_THREADS", str(threads))
        graphc.seed(0)
        model = make()
        specs = graphc.spec(x.shape), graphc.spec(y.shape, "int32")
        rule = optim.DPSGD(0.5, 1.0, lr=0.1)
        step = graphc.compile(loss_fn, model, *specs, update=rule, streams=streams, seed=1)
        losses = [step(x, y).tobytes() for _ in range(3)]
        found.append((losses, [a.tobytes() for a in model.state_dict().values()]))
    assert found[0] == found[1] == found[2]


def test_norms_of_convolutions_of_small_images_need_no_gradients_of_samples() -> None:
    """Those of 40 samples' 3 x 3 filters of 32 to 48 channels would take 2.2 MB."""
    make = lambda: nn.Sequential(nn.Conv2d(32, 48, 3), nn.Flatten(), nn.Linear(768, 10))  # noqa: E731
    x, y = data((32, 6, 6), 40)
    check(make, x, y, "cpu")
    _, step = step_of(make, x, y, "cpu", 1.0)
    assert step.plan.peak_bytes < 1_500_000


def test_dense_layers_have_no_gradients_of_samples_in_memory() -> None:
    """100 samples' gradients of a layer of 64 x 64 would take 1.6 MB."""
    x = RNG.standard_normal((100, 64)).astype(np.float32)
    y = np.zeros(100, np.int32)
    layers = [layer for _ in range(3) for layer in (nn.Linear(64, 64), nn.Tanh())]
    _, step = step_of(lambda: nn.Sequential(*layers), x, y, "cpu", 1.0)
    assert step.plan.peak_bytes < 600_000


def test_noise_has_the_deviation_asked_for() -> None:
    x, y = data((20,), 8)
    make = MODELS["mlp"][0]
    clip, noise = 0.5, 3.0
    exact, step = step_of(make, x, y, "cpu", clip)
    noisy, other = step_of(make, x, y, "cpu", clip, noise)
    draws = []
    for _ in range(4):
        state = exact.state_dict()
        noisy.load_state_dict(state)
        step(x, y)
        other(x, y)
        difference = [noisy.state_dict()[n] - a for n, a in exact.state_dict().items()]
        draws.append(np.concatenate([d.ravel() for d in difference]) * 8 / (noise * clip))
    all_draws = np.stack(draws)
    assert abs(all_draws.std() - 1) < 0.05 and abs(all_draws.mean()) < 0.06
    assert np.abs(np.corrcoef(all_draws) - np.eye(4)).max() < 0.15


def test_results_are_those_of_the_batch() -> None:
    x, y = data((20,))

    def both(model: Any, x: Any, y: Any) -> Any:
        logits = model(x)
        return graphc.cross_entropy(logits, y), logits

    model = MODELS["mlp"][0]()
    specs = graphc.spec(x.shape), graphc.spec(y.shape, "int32")
    expected = graphc.compile(model, specs[0], device="cpu")(x)
    step = graphc.compile(both, model, *specs, update=optim.DPSGD(1.0, 1.0), device="cpu")
    _, logits = step(x, y)
    np.testing.assert_allclose(logits, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("mixed", [None, "bfloat16"])
def test_private_training_learns(mixed: str | None) -> None:
    x = RNG.standard_normal((64, 6)).astype(np.float32)
    y = (x[:, 0] > 0).astype(np.int32)
    graphc.seed(0)
    model = nn.Linear(6, 2)
    specs = graphc.spec((64, 6)), graphc.spec(64, "int32")
    rule = optim.DPSGD(1.0, 0.5, lr=0.5, momentum=0.9)
    step = graphc.compile(loss_fn, model, *specs, update=rule, mixed=mixed, seed=0)
    losses = [float(step(x, y)) for _ in range(30)]
    assert losses[-1] < 0.5 * losses[0]


def message(**options: Any) -> str:
    specs = graphc.spec((4, 8)), graphc.spec(4, "int32")
    model = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8))
    with pytest.raises(GraphError) as caught:
        graphc.compile(loss_fn, model, *specs, update=optim.DPSGD(1.0, 1.0), **options)
    return str(caught.value).partition(" (test_")[0]


def test_what_does_not_fit_is_named() -> None:
    assert message(accumulate=3).startswith("accumulate=3: expected a batch of 3 equal parts, got ")
    assert message(mixed="float16") == (
        "mixed: DPSGD expected None or 'bfloat16', since a step that is skipped where a scaled "
        "loss overflows would tell of its samples"
    )
    assert message().startswith("batch_norm: expected more than 1 element per channel")
    with pytest.raises(GraphError) as caught:
        optim.DPSGD(0.0, 1.0)
    assert str(caught.value).startswith("DPSGD: clip expected a positive number, got 0.0")
    with pytest.raises(GraphError) as caught:
        graphc.compile(
            lambda m, x: graphc.sum(x), nn.Linear(8, 8), graphc.spec((4, 8)),
            update=optim.DPSGD(1.0, 1.0),
        )  # fmt: skip
    assert str(caught.value).startswith(
        "the loss depends on none of the trainable parameters of the arguments"
    )
