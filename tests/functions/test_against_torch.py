"""Values and gradients of the functions against PyTorch's, in float64."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from graphc import functions as f
from graphc.gradient import gradients
from graphc.trace import current_builder
from tests.functions.tracing import run
from tests.tools import need_module

Function = Callable[..., Any]


@pytest.fixture(scope="module")
def torch() -> ModuleType:
    return need_module("torch")


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape)


def labels(classes: int, *shape: int, dtype: str = "i8", seed: int = 3) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, classes, shape).astype(dtype)


def positive(*shape: int) -> np.ndarray:
    return np.abs(normal(*shape)) + 0.1


# Each: a name, our function, PyTorch's (given torch and the tensors), the inputs.
CASES: list[tuple[str, Function, Function, tuple[np.ndarray, ...]]] = []


def case(name: str, ours: Function, theirs: Function, *inputs: np.ndarray) -> None:
    CASES.append((name, ours, theirs, inputs))


X, A, B = normal(3, 5), normal(4, 1, 5, seed=1), normal(3, 1, seed=2)
IMAGE, SIGNED = normal(2, 4, 7, 6), normal(3, 9, seed=5) * 30

for name in ("exp", "expm1", "tanh", "sigmoid", "relu", "erf", "sin", "cos", "abs", "square"):
    case(name, getattr(f, name), lambda t, x, n=name: getattr(t, n)(x), X)
for name in ("log", "log1p", "sqrt", "rsqrt", "reciprocal"):
    case(name, getattr(f, name), lambda t, x, n=name: getattr(t, n)(x), positive(3, 5))
for name in ("add", "subtract", "multiply", "divide", "maximum", "minimum", "remainder"):
    case(name, getattr(f, name), lambda t, a, b, n=name: getattr(t, n)(a, b), A, B)
case("pow", f.pow, lambda t, a, b: a**b, positive(4, 1, 5), B)
for exponent in (-1, -0.5, 0.5, 0, 1, 2, 3, 4, 2.5, -2):
    case(
        f"pow {exponent}", lambda x, e=exponent: x**e, lambda t, x, e=exponent: x**e, positive(3, 4)
    )
case("number to the power", lambda x: 2.5**x, lambda t, x: 2.5**x, X)
case("where", lambda a, b: f.where(a > b, a, b * 2), lambda t, a, b: t.where(a > b, a, b * 2), A, B)
case("clip", lambda x: f.clip(x, -0.5, 0.7), lambda t, x: t.clip(x, -0.5, 0.7), X)
case("clip above", lambda x: f.clip(x, max=0.2), lambda t, x: t.clip(x, max=0.2), X)
case(
    "clip at its limits",
    lambda x: f.clip(x, 1, 2),
    lambda t, x: t.clip(x, 1, 2),
    np.array([0.0, 1.0, 1.5, 2.0, 3.0]),
)
case("sign", lambda x: f.sign(x) * x, lambda t, x: t.sign(x) * x, X)
case(
    "maximum of equals",
    lambda a, b: f.maximum(a, b) + 2 * f.minimum(a, b),
    lambda t, a, b: t.maximum(a, b) + 2 * t.minimum(a, b),
    np.array([1.0, 2.0, 3.0]),
    np.array([2.0, 2.0, 1.0]),
)
case(
    "relu and abs at zero", lambda x: f.relu(x) + f.abs(x), lambda t, x: t.relu(x) + x.abs(), X * 0
)

for axis in (None, 0, -1, (0, 2)):
    keep = axis != 0
    for name, theirs in (("sum", "sum"), ("mean", "mean"), ("max", "amax"), ("min", "amin")):
        case(
            f"{name} {axis}",
            lambda x, n=name, a=axis, k=keep: getattr(f, n)(x, axis=a, keepdims=k),
            lambda t, x, n=theirs, a=axis, k=keep: getattr(t, n)(
                x, dim=(0, 1, 2) if a is None else a, keepdim=k
            ),
            normal(2, 3, 4),
        )
    case(
        f"var {axis}",
        lambda x, a=axis: f.var(x, a, correction=1),
        lambda t, x, a=axis: t.var(x, (0, 1, 2) if a is None else a, correction=1),
        normal(2, 3, 4),
    )
case("std", lambda x: f.std(x, 1), lambda t, x: t.std(x, 1, correction=0), X)
case(
    "max of equals",
    lambda x: f.max(x, axis=1),
    lambda t, x: t.amax(x, 1),
    np.array([[1.0, 3.0, 3.0], [2.0, 2.0, 2.0]]),
)
case("argmax", lambda x: (f.argmax(x, 1), f.sum(x)), lambda t, x: (t.argmax(x, 1), t.sum(x)), X)
case("argmin", lambda x: (f.argmin(x, 0, True), x), lambda t, x: (t.argmin(x, 0, True), x), X)

case("matmul", f.matmul, lambda t, a, b: a @ b, normal(3, 4), normal(4, 5))
case("batched", f.matmul, lambda t, a, b: a @ b, normal(2, 1, 3, 4), normal(5, 4, 2))
case("batch times matrix", f.matmul, lambda t, a, b: a @ b, normal(2, 3, 5, 4), normal(4, 2))
case("matrix times batch", f.matmul, lambda t, a, b: a @ b, normal(5, 4), normal(3, 4, 2))
case("vector times matrix", f.matmul, lambda t, a, b: a @ b, normal(4), normal(3, 4, 2))
case("batch times vector", f.matmul, lambda t, a, b: a @ b, normal(2, 3, 4), normal(4))
case("dot", f.matmul, lambda t, a, b: a @ b, normal(4), normal(4, seed=1))
for shape in ((2, 4), (3, 2, 4), (4,)):
    case(
        f"linear {shape}",
        f.linear,
        lambda t, x, w, b: t.nn.functional.linear(x, w, b),
        normal(*shape),
        normal(5, 4),
        normal(5),
    )
for settings in (
    {},
    {"stride": (2, 1), "padding": 1},
    {"padding": (2, 0), "dilation": 2},
    {"groups": 2, "padding": 1},
    {"padding": "valid"},
):
    case(
        f"conv2d {settings}",
        lambda x, w, b, s=settings: f.conv2d(x, w, b, **s),
        lambda t, x, w, b, s=settings: t.nn.functional.conv2d(x, w, b, **s),
        IMAGE,
        normal(6, 4 // settings.get("groups", 1), 3, 2),
        normal(6),
    )
for window in ((2,), (3, 2), ((3, 2), (1, 2), (1, 0)), (3, 1, 1)):
    case(
        f"max_pool2d {window}",
        lambda x, w=window: f.max_pool2d(x, *w),
        lambda t, x, w=window: t.nn.functional.max_pool2d(x, *w),
        IMAGE,
    )
    for counted in (True, False):
        case(
            f"avg_pool2d {window} {counted}",
            lambda x, w=window, c=counted: f.avg_pool2d(x, *w, count_include_pad=c),
            lambda t, x, w=window, c=counted: t.nn.functional.avg_pool2d(
                x, *w, count_include_pad=c
            ),
            IMAGE,
        )

for name, arguments in (
    ("gelu", {}),
    ("gelu", {"approximate": "tanh"}),
    ("silu", {}),
    ("leaky_relu", {"negative_slope": 0.2}),
    ("elu", {"alpha": 1.5}),
    ("softplus", {"beta": 2.0, "threshold": 10.0}),
    ("softplus", {}),
):
    for values in (X, SIGNED, X * 0):
        case(
            f"{name} {arguments}",
            lambda x, n=name, a=arguments: getattr(f, n)(x, **a),
            lambda t, x, n=name, a=arguments: getattr(t.nn.functional, n)(x, **a),
            values,
        )
for axis in (0, 1, -1):
    for name in ("softmax", "log_softmax", "logsumexp"):
        case(
            f"{name} {axis}",
            lambda x, n=name, a=axis: f.square(getattr(f, n)(x, a)),
            lambda t, x, n=name, a=axis: getattr(t, n)(x, a) ** 2,
            SIGNED,
        )

LOGITS, DEEP = normal(6, 5), normal(2, 5, 3, 2)
for logits, target in (
    (LOGITS, labels(5, 6)),
    (DEEP, labels(5, 2, 3, 2)),
    (normal(5), labels(5)),
    (LOGITS * 300, labels(5, 6)),
):
    for settings in (
        {},
        {"reduction": "sum"},
        {"reduction": "none"},
        {"label_smoothing": 0.1},
        {"ignore_index": 2},
        {"weight": positive(5)},
        {"weight": positive(5), "label_smoothing": 0.2, "ignore_index": 1},
    ):
        case(
            f"cross_entropy {logits.shape} {sorted(settings)}",
            lambda x, y, s=settings: f.cross_entropy(x, y, **s),
            lambda t, x, y, s=settings: t.nn.functional.cross_entropy(
                x, y.long(), **torch_arrays(t, s)
            ),
            logits,
            target,
        )
        if "label_smoothing" not in settings:
            case(
                f"nll_loss {logits.shape} {sorted(settings)}",
                lambda x, y, s=settings: f.nll_loss(x, y, **s),
                lambda t, x, y, s=settings: t.nn.functional.nll_loss(
                    x, y.long(), **torch_arrays(t, s)
                ),
                logits,
                target,
            )
for settings in ({}, {"label_smoothing": 0.1, "weight": positive(5)}):
    case(
        f"cross_entropy of probabilities {sorted(settings)}",
        lambda x, y, s=settings: f.cross_entropy(x, f.softmax(y, 1), **s),
        lambda t, x, y, s=settings: t.nn.functional.cross_entropy(
            x, t.softmax(y, 1), **torch_arrays(t, s)
        ),
        DEEP,
        normal(2, 5, 3, 2, seed=8),
    )
for name in ("mse_loss", "l1_loss"):
    for reduction in ("mean", "sum", "none"):
        case(
            f"{name} {reduction}",
            lambda x, y, n=name, r=reduction: getattr(f, n)(x, y, r),
            lambda t, x, y, n=name, r=reduction: getattr(t.nn.functional, n)(x, y, reduction=r),
            X,
            normal(3, 5, seed=9),
        )
case(
    "binary_cross_entropy_with_logits",
    f.binary_cross_entropy_with_logits,
    lambda t, x, y: t.nn.functional.binary_cross_entropy_with_logits(x, y),
    np.concatenate([SIGNED, np.zeros((3, 1))], 1),
    np.random.default_rng(4).uniform(size=(3, 10)),
)

case(
    "layer_norm",
    lambda x, w, b: f.square(f.layer_norm(x, (5, 3), w, b)),
    lambda t, x, w, b: t.nn.functional.layer_norm(x, (5, 3), w, b) ** 2,
    normal(4, 5, 3),
    normal(5, 3),
    normal(5, 3, seed=1),
)
case(
    "layer_norm alone",
    lambda x: f.square(f.layer_norm(x, 3)) * x,
    lambda t, x: t.nn.functional.layer_norm(x, (3,)) ** 2 * x,
    normal(4, 5, 3),
)
case(
    "group_norm",
    lambda x, w, b: f.square(f.group_norm(x, 2, w, b)) * x,
    lambda t, x, w, b: t.nn.functional.group_norm(x, 2, w, b) ** 2 * x,
    IMAGE,
    normal(4),
    normal(4, seed=1),
)
case(
    "conv2d same",
    lambda x, w: f.conv2d(x, w, padding="same"),
    lambda t, x, w: t.nn.functional.conv2d(t.nn.functional.pad(x, (0, 1, 1, 1)), w),
    IMAGE,
    normal(6, 4, 3, 2),
)
case(
    "batch_norm by the batch",
    lambda x, w, b: f.square(f.batch_norm(x, None, None, w, b)) * x,
    lambda t, x, w, b: t.nn.functional.batch_norm(x, None, None, w, b, True) ** 2 * x,
    IMAGE,
    normal(4),
    normal(4, seed=1),
)
MEAN, VARIANCE = normal(4, seed=5), positive(4)
case(
    "batch_norm by running statistics",
    lambda x, w, b: f.square(f.batch_norm(x, MEAN, VARIANCE, w, b, training=False)),
    lambda t, x, w, b: (
        t.nn.functional.batch_norm(x, t.from_numpy(MEAN), t.from_numpy(VARIANCE), w, b) ** 2
    ),
    IMAGE,
    normal(4),
    normal(4, seed=1),
)

case("reshape", lambda x: f.reshape(x, (5, -1)) ** 2, lambda t, x: x.reshape(5, -1) ** 2, X)
case("flatten", lambda x: f.flatten(x) ** 2, lambda t, x: x.flatten(1) ** 2, IMAGE)
case("permute", lambda x: x.permute_dims((2, 0, 1)) ** 2, lambda t, x: x.permute(2, 0, 1) ** 2, A)
case("transpose", lambda x: x.T @ x, lambda t, x: x.T @ x, X)
case("squeeze", lambda x: f.squeeze(x, 1) ** 2, lambda t, x: x.squeeze(1) ** 2, A)
case("expand", lambda x: f.expand_dims(x, -1) ** 2, lambda t, x: x[..., None] ** 2, X)
case(
    "broadcast", lambda x: f.broadcast_to(x, (4, 3, 5)) ** 2, lambda t, x: x.expand(4, 3, 5) ** 2, X
)
case("flip", lambda x: f.flip(x, (0, 2)) * x, lambda t, x: x.flip(0, 2) * x, A)
case(
    "concat",
    lambda a, b: f.concat([a, b, a], 1) ** 2,
    lambda t, a, b: t.cat([a, b, a], 1) ** 2,
    normal(2, 3),
    normal(2, 1),
)
case(
    "stack",
    lambda a, b: f.stack([a, b], -1) ** 2,
    lambda t, a, b: t.stack([a, b], -1) ** 2,
    X,
    X + 1,
)
case(
    "pad",
    lambda x: f.pad(x, [(1, 2), (0, 3)], 2.0) ** 2,
    lambda t, x: t.nn.functional.pad(x, (0, 3, 1, 2), value=2.0) ** 2,
    X,
)
case("tril", lambda x: f.tril(x, 1) * f.triu(x, -1), lambda t, x: t.tril(x, 1) * t.triu(x, -1), X)
case(
    "take",
    lambda x, i: f.take(x, i, 1) ** 2,
    lambda t, x, i: x[:, i.long()] ** 2,
    X,
    labels(5, 2, 4),
)
case(
    "embedding",
    lambda i, w: f.embedding(i, w) ** 2,
    lambda t, i, w: t.nn.functional.embedding(i.long(), w) ** 2,
    labels(3, 2, 4, dtype="i4"),
    X,
)


def torch_arrays(torch: ModuleType, settings: dict[str, Any]) -> dict[str, Any]:
    return {k: torch.from_numpy(v) if isinstance(v, np.ndarray) else v for k, v in settings.items()}


@pytest.mark.parametrize(("name", "ours", "theirs", "inputs"), CASES, ids=[c[0] for c in CASES])
def test_values_and_gradients_equal_torchs(
    torch: ModuleType,
    name: str,
    ours: Function,
    theirs: Function,
    inputs: tuple[np.ndarray, ...],
) -> None:
    got = run(ours, *inputs, slopes=True)
    tensors = [torch.tensor(a, requires_grad=a.dtype.kind == "f") for a in inputs]
    found = theirs(torch, *tensors)
    results = list(found) if isinstance(found, tuple) else [found]
    wanted = [t for t in tensors if t.requires_grad]
    total = sum(r.sum() for r in results if r.is_floating_point())
    slopes = torch.autograd.grad(total, wanted, allow_unused=True)
    expected = [r.detach().numpy() for r in results] + [
        np.zeros(t.shape) if s is None else s.numpy() for t, s in zip(wanted, slopes, strict=True)
    ]
    assert len(got) == len(expected)
    for a, b in zip(got, expected, strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9)


SECOND_ORDER: list[tuple[str, Function, Function]] = [
    ("variance", lambda x: f.var(x, (0, 2)), lambda t, x: t.var(x, (0, 2), correction=0)),
    (
        "layer_norm",
        lambda x: f.layer_norm(x, 4) ** 3,
        lambda t, x: t.nn.functional.layer_norm(x, (4,)) ** 3,
    ),
    ("softmax", lambda x: f.softmax(x, 1) ** 2, lambda t, x: t.softmax(x, 1) ** 2),
    ("gelu", f.gelu, lambda t, x: t.nn.functional.gelu(x)),
    (
        "conv2d",
        lambda x: f.conv2d(x, x[:, :, 1:, 1:] * x[:, :, 1:, :-1], padding=1) ** 2,
        lambda t, x: t.nn.functional.conv2d(x, x[:, :, 1:, 1:] * x[:, :, 1:, :-1], padding=1) ** 2,
    ),
    (
        "avg_pool2d",
        lambda x: f.square(f.avg_pool2d(f.square(x), 2)),
        lambda t, x: t.nn.functional.avg_pool2d(x**2, 2) ** 2,
    ),
]


@pytest.mark.parametrize(("name", "ours", "theirs"), SECOND_ORDER, ids=[c[0] for c in SECOND_ORDER])
def test_gradients_of_gradients_equal_torchs(
    torch: ModuleType, name: str, ours: Function, theirs: Function
) -> None:
    x = normal(2, 3, 4) if name not in ("conv2d", "avg_pool2d") else normal(2, 3, 4, 4)

    def penalty(x: Any) -> Any:
        y = ours(x)
        (slope,) = gradients([y], [f.ones_like(y)], [x], current_builder())
        return slope * slope

    value, second = run(penalty, x, slopes=True)
    tensor = torch.tensor(x, requires_grad=True)
    (slope,) = torch.autograd.grad(theirs(torch, tensor).sum(), tensor, create_graph=True)
    (expected,) = torch.autograd.grad((slope * slope).sum(), tensor)
    np.testing.assert_allclose(value, (slope * slope).detach().numpy(), rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(second, expected.numpy(), rtol=1e-8, atol=1e-8)
