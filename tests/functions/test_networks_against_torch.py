"""Functions of neural networks against PyTorch's: values and gradients, in float64."""

from __future__ import annotations

from types import ModuleType

import numpy as np
import pytest

from graphc import functions as f
from tests.functions.comparison import (
    Case,
    Function,
    compare,
    labels,
    normal,
    positive,
    torch_arrays,
)
from tests.tools import need_module


@pytest.fixture(scope="module")
def torch() -> ModuleType:
    return need_module("torch")


CASES: list[Case] = []


def case(name: str, ours: Function, theirs: Function, *inputs: np.ndarray) -> None:
    CASES.append(Case(name, ours, theirs, inputs))


X, IMAGE, SIGNED = normal(3, 5), normal(2, 4, 7, 6), normal(3, 9, seed=5) * 30

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
    "conv1d",
    lambda x, w, b: f.conv1d(x, w, b, stride=2, padding=2, dilation=2, groups=2),
    lambda t, x, w, b: t.nn.functional.conv1d(x, w, b, 2, 2, 2, 2),
    normal(3, 4, 9),
    normal(6, 2, 3),
    normal(6),
)
for settings in (
    {},
    {"stride": (2, 3), "padding": 1, "output_padding": (1, 2)},
    {"groups": 2, "dilation": 2, "padding": (0, 2)},
):
    case(
        f"conv_transpose2d {settings}",
        lambda x, w, b, s=settings: f.conv_transpose2d(x, w, b, **s),
        lambda t, x, w, b, s=settings: t.nn.functional.conv_transpose2d(x, w, b, **s),
        IMAGE,
        normal(4, 6 // settings.get("groups", 1), 3, 2),
        normal(6),
    )
SEEN = np.tril(np.ones((3, 5)), 1).astype(bool)
for settings in ({}, {"is_causal": True}, {"attn_mask": SEEN, "scale": 0.3}):
    case(
        f"scaled_dot_product_attention {sorted(settings)}",
        lambda q, k, v, s=settings: f.scaled_dot_product_attention(q, k, v, **s),
        lambda t, q, k, v, s=settings: t.nn.functional.scaled_dot_product_attention(
            q, k, v, **torch_arrays(t, s)
        ),
        normal(2, 2, 3, 4),
        normal(2, 2, 5, 4, seed=1),
        normal(2, 2, 5, 6, seed=2),
    )
case(
    "scaled_dot_product_attention with numbers for a mask",
    lambda q, m: f.scaled_dot_product_attention(q, q, q, m),
    lambda t, q, m: t.nn.functional.scaled_dot_product_attention(q, q, q, m),
    normal(2, 3, 4),
    normal(3, 3, seed=1),
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


@pytest.mark.parametrize("case", CASES, ids=str)
def test_values_and_gradients_equal_torchs(torch: ModuleType, case: Case) -> None:
    compare(torch, case)
