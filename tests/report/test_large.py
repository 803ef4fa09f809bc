"""Reports of whole models: small files, drawn in a browser without a word on the console."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import graphc
from graphc import nn, optim
from tests.models.images import resnet
from tests.models.sequences import gpt
from tests.report.browser import chromium
from tests.tools import need_command


class Tagger(nn.Module):
    def __init__(self) -> None:
        self.lstm = nn.LSTM(16, 32, num_layers=2, batch_first=True)
        self.head = nn.Linear(32, 10)

    def forward(self, x: Any) -> Any:
        y, _ = self.lstm(x)
        return self.head(y[:, -1])


def loss_fn(model: Any, x: Any, y: Any) -> Any:
    return graphc.cross_entropy(model(x), y)


MODELS: dict[str, tuple[Callable[[], Any], tuple[Any, ...]]] = {
    "lstm": (Tagger, (graphc.spec((16, 20, 16)), graphc.spec((16,), "int32"))),
    "gpt": (
        lambda: gpt(nn, graphc, layers=4),
        (graphc.spec((2, 12), "int32"), graphc.spec((2, 12), "int32")),
    ),
    "resnet50": (
        lambda: resnet(nn, graphc, 50),
        (graphc.spec((2, 3, 64, 64)), graphc.spec((2,), "int32")),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_a_training_step_of_a_whole_model_is_reported(name: str, tmp_path: Path) -> None:
    need_command("g++", "clang++")
    model, specs = MODELS[name]
    program = graphc.compile(loss_fn, model(), *specs, update=optim.SGD(lr=0.1))
    program.report(tmp_path / "model.html")
    assert (tmp_path / "model.html").stat().st_size < 2_000_000
    views = ("overview", "source", "passes", "kernels", "memory", "timeline", "graph")
    with chromium(tmp_path / "profile") as browser:
        for view in views:
            browser.open(tmp_path / "model.html", view)
            browser.until("document.getElementById('view').innerText.length > 40")
            drawn = "[...document.querySelectorAll('#view svg')].map((s) => s.outerHTML).join()"
            assert "NaN" not in browser.js(drawn)
        browser.until("document.querySelector('.node')")
        browser.click('button[aria-label="Open every module"]')
        assert browser.js("document.querySelectorAll('.node').length") > 20
        kernel = max(program.kernels)
        browser.js("document.activeElement.blur()")
        browser.key("/", "/")
        browser.write(kernel)
        browser.key("Enter")
        assert kernel in browser.js("document.getElementById('inspector').innerText")
        assert browser.problems == []
