"""Names of torch.nn that graphc has not: the error says what comes nearest."""

from __future__ import annotations

import re

import pytest

from graphc import nn
from tests.tools import need_module

# fmt: off
MESSAGES = {
    "LazyLinear": "layers know their inputs' channels when they are made; the nearest is nn.Linear",
    "MaxUnpool2d": "the nearest is nn.Upsample",
    "utils": "the nearest is optim, whose rules have clip_grad_norm=, for clip_grad_norm_, and "
    "nn.Module for weight_norm and spectral_norm: divide the weight by its norm in forward",
    "functional": "the nearest is graphc itself, as in graphc.relu(x)",
    "Conv2D": "the nearest is nn.Conv2d",
}
# fmt: on


@pytest.mark.parametrize("name", MESSAGES)
def test_the_nearest_layer_is_named(name: str) -> None:
    message = f"graphc.nn has no {name!r}[;:] {re.escape(MESSAGES[name])}"
    with pytest.raises(AttributeError, match=f"^{message}$"):
        getattr(nn, name)


def test_what_resembles_nothing_has_no_nearest() -> None:
    with pytest.raises(AttributeError, match=r"^graphc\.nn has no 'frobnicate'$"):
        nn.frobnicate  # noqa: B018


def test_every_layer_of_pytorch_is_here_or_has_a_nearest() -> None:
    torch = need_module("torch")
    layers = [
        name
        for name, value in vars(torch.nn).items()
        if isinstance(value, type) and issubclass(value, torch.nn.Module)
    ]
    assert len(layers) > 150
    for name in layers:
        if not hasattr(nn, name):
            with pytest.raises(AttributeError, match="the nearest is"):
                getattr(nn, name)
