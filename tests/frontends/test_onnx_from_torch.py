"""Models that PyTorch's exporter writes compute what they computed there."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.frontends.onnx_models import run
from tests.tools import need_module

torch = need_module("torch")
nn = torch.nn


class Tagger(nn.Module):
    """Scores of a tag for each symbol of a sequence."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(50, 16)
        self.layers = nn.LSTM(16, 24, 2, batch_first=True, bidirectional=True)
        self.head = nn.Linear(48, 7)

    def forward(self, x: Any) -> Any:
        return self.head(self.layers(self.embed(x))[0])


def convolutional() -> Any:
    layers = [nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.Hardswish(), nn.MaxPool2d(3, 2, 1)]
    more = [nn.Conv2d(8, 8, 3, groups=4), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(32, 5)]
    return nn.Sequential(*layers, *more)


def transformer() -> Any:
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, activation="gelu")
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)


CASES: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
    "convolutions": (convolutional, lambda: torch.randn(2, 3, 24, 24)),
    "tagger": (Tagger, lambda: torch.randint(0, 50, (2, 6))),
    "gated": (lambda: nn.GRU(5, 6, 2), lambda: torch.randn(4, 2, 5)),
    "transformer": (transformer, lambda: torch.randn(2, 5, 16)),
}


@pytest.mark.parametrize("name", CASES)
def test_a_model_of_pytorch(name: str) -> None:
    import graphc.onnx

    torch.manual_seed(0)
    model, x = (make() for make in CASES[name])
    model.eval()
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(model, (x,), file, dynamo=False, opset_version=17)
        expected = model(x)
    expected = expected[0] if isinstance(expected, tuple) else expected
    found = run(graphc.onnx.load(file.getvalue()), x.numpy())
    found = found[0] if isinstance(found, tuple) else found
    np.testing.assert_allclose(found, expected.detach().numpy(), rtol=1e-4, atol=1e-5)
