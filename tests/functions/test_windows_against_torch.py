"""Convolution and pooling with every form of argument that PyTorch takes, against PyTorch's."""

from __future__ import annotations

import itertools
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from graphc import functions as f
from graphc import nn
from tests.functions.comparison import Case, compare, normal
from tests.tools import need_module


@pytest.fixture(scope="module")
def torch() -> ModuleType:
    return need_module("torch")


CASES: list[Case] = []
EXTENTS = (9, 8, 7)
TIES = np.random.default_rng(1).integers(0, 3, (2, 2, *EXTENTS)).astype(float)
"""Small integers: windows hold their largest element several times."""


def case(function: str, *inputs: np.ndarray, positional: tuple[Any, ...] = (), **keys: Any) -> None:
    """Our function and torch.nn.functional's of that name, on the same arguments."""
    shapes = ", ".join(str(list(a.shape)) for a in inputs)
    settings = ", ".join([*map(repr, positional), *(f"{k}={v!r}" for k, v in keys.items())])

    def theirs(t: ModuleType, *tensors: Any) -> Any:
        return getattr(t.nn.functional, function)(*tensors, *positional, **keys)

    def ours(*tensors: Any) -> Any:
        return getattr(f, function)(*tensors, *positional, **keys)

    CASES.append(Case(f"{function}({shapes}, {settings})", ours, theirs, inputs))


def image(axes: int, channels: int = 2, batch: bool = True) -> np.ndarray:
    return normal(*((2,) if batch else ()), channels, *EXTENTS[:axes])


def ties(axes: int, batch: bool = True) -> np.ndarray:
    whole = TIES[(..., *(0,) * (3 - axes))]
    return whole if batch else whole[0]


def taps(axes: int, *channels: int) -> np.ndarray:
    return normal(*channels, *(3, 2, 3)[:axes], seed=4)


for axes in (1, 2, 3):
    for batch in (True, False):
        x, bias = image(axes, batch=batch), normal(3, seed=5)
        case(f"conv{axes}d", x, taps(axes, 3, 2), bias)
        case(f"conv_transpose{axes}d", x, taps(axes, 2, 3), bias)
        case(f"max_pool{axes}d", ties(axes, batch), positional=(2,))
        case(f"avg_pool{axes}d", x, positional=(2,))
        case(f"lp_pool{axes}d", np.abs(x) + 0.1, positional=(2.0, 2))
        case(f"adaptive_avg_pool{axes}d", x, positional=(3,))
        for size in (1, 3, 5):
            for indices in (False, True):
                name = f"adaptive_max_pool{axes}d"
                case(name, ties(axes, batch), positional=(size,), return_indices=indices)
    for one in (2, (2,), (2,) * axes):
        name = f"conv{axes}d"
        case(name, image(axes), taps(axes, 3, 2), stride=one, padding=one, dilation=one)
        settings: dict[str, Any] = {"stride": one, "padding": one, "dilation": one}
        name = f"conv_transpose{axes}d"
        padded = {**settings, "padding": one, "output_padding": (1,) * axes}
        case(name, image(axes), taps(axes, 2, 3), **padded)
        case(f"avg_pool{axes}d", image(axes), positional=(one,), stride=one, padding=(1,) * axes)
        if one != (2,):
            case(f"lp_pool{axes}d", np.abs(image(axes)), positional=(2.0, one), stride=one)
        if one != (2,) or axes == 1:
            case(f"adaptive_max_pool{axes}d", ties(axes), positional=(one,))
            case(f"adaptive_avg_pool{axes}d", image(axes), positional=(one,))
    for stride, dilation, extra in ((1, 2, 1), (1, 3, 2), (2, 3, 2), (3, 1, 2), (2, 2, 1)):
        case(
            f"conv_transpose{axes}d",
            image(axes),
            taps(axes, 2, 2),
            stride=stride,
            dilation=dilation,
            output_padding=extra,
            padding=1,
        )
    for size, stride, padding, dilation, ceil in itertools.product(
        (2, 3), (1, 2), (0, 1), (1, 2), (False, True)
    ):
        if axes == 3 and (stride == 1 or size == 2):
            continue
        case(
            f"max_pool{axes}d",
            ties(axes),
            positional=(size, stride, padding, dilation),
            ceil_mode=ceil,
            return_indices=True,
        )
for whole in (True, False):  # windows that end behind the padding
    settings = {"ceil_mode": True, "count_include_pad": whole}
    case("avg_pool1d", normal(2, 3, 6), positional=(3, 2, 1), **settings)
    case("avg_pool2d", normal(2, 3, 6, 7), positional=((3, 4), (2, 3), (1, 2)), **settings)
case("unfold", image(2, batch=False), positional=(2,))
case("fold", normal(8, 12), positional=((4, 5), 2))
case("max_pool2d", np.full((1, 1, 4, 4), -np.inf), positional=(3, 2, 1, 2), return_indices=True)
case("max_pool2d", np.full((1, 1, 4, 4), -np.inf), positional=(3, 2, 1), return_indices=True)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_values_and_gradients_are_those_of_pytorch(torch: ModuleType, case: Case) -> None:
    compare(torch, case)


LAYERS: tuple[tuple[str, tuple[Any, ...], dict[str, Any], np.ndarray], ...] = (
    ("MaxPool1d", ((2,),), {"return_indices": True}, ties(1)),
    ("MaxPool2d", (3, 2, 1), {"return_indices": True}, ties(2, batch=False)),
    ("MaxPool3d", (2,), {"return_indices": True}, ties(3)),
    ("AdaptiveMaxPool2d", ((3, None),), {"return_indices": True}, ties(2)),
    ("AvgPool1d", ((2,),), {"stride": (1,)}, ties(1, batch=False)),
)


@pytest.mark.parametrize(("name", "arguments", "keys", "x"), LAYERS)
def test_layers_give_what_those_of_pytorch_give(
    torch: ModuleType, name: str, arguments: tuple[Any, ...], keys: dict[str, Any], x: np.ndarray
) -> None:
    def theirs(t: ModuleType, x: Any) -> Any:
        return getattr(t.nn, name)(*arguments, **keys)(x)

    compare(torch, Case(name, getattr(nn, name)(*arguments, **keys), theirs, (x,)))


@pytest.mark.parametrize("mode", ["zeros", "reflect", "replicate", "circular"])
def test_convolution_layers_take_images_without_a_batch(torch: ModuleType, mode: str) -> None:
    ours = nn.Conv2d(2, 3, 3, padding=(1, 2), padding_mode=mode).to("float64")
    layer = torch.nn.Conv2d(2, 3, 3, padding=(1, 2), padding_mode=mode).double()
    ours.load_state_dict(layer.state_dict())
    compare(torch, Case(mode, ours, lambda t, x: layer(x), (image(2, batch=False),)))
