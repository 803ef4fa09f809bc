"""Every block of the user's guide runs, and so does the README's recipe of a GAN."""

from __future__ import annotations

import re
import sys
from types import ModuleType

import numpy as np
import pytest

from tests.tools import ROOT

SECTIONS = [
    "",
    "A training loop",
    "Training and evaluation",
    "Freezing",
    "Rates, groups and averages",
    "State of one's own",
    "Several programs on one model, and the last batch",
    "Saving",
    "Randomness",
    "Debugging",
]


def blocks(document: str) -> list[tuple[str, str]]:
    """(section, text) of each Python block."""
    found, section = [], ""
    text = (ROOT / document).read_text()
    for part in re.findall(r"^## [^\n]*$|^```python\n.*?^```$", text, re.M | re.S):
        if part.startswith("## "):
            section = part[3:]
        else:
            found.append((section, part.removeprefix("```python\n").removesuffix("```")))
    return found


@pytest.fixture
def page(clean_environment: pytest.MonkeyPatch) -> ModuleType:
    """The module that the blocks of a page are; pickle finds their classes by its name."""
    clean_environment.setenv("GRAPHC_DEVICE", "reference")
    module = ModuleType("page")
    clean_environment.setitem(sys.modules, "page", module)
    return module


def run(page: ModuleType, code: list[tuple[str, str]]) -> None:
    for section, text in code:
        exec(compile(text, section or "beginning", "exec", dont_inherit=True), vars(page))


def test_every_block_of_the_guide_runs(
    page: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    code = blocks("docs/guide.md")
    assert list(dict.fromkeys(section for section, _ in code)) == SECTIONS
    run(page, code)
    said = capsys.readouterr().out
    assert "was compiled when body.0.weight had trainable=True, now it has False" in said
    assert "profile loss_fn" in said


def test_the_recipe_of_a_gan_trains_one_network_at_a_time(page: ModuleType) -> None:
    recipe = next(code for _, code in blocks("README.md") if "discriminator_loss" in code)
    run(page, [("imports", "import graphc\nfrom graphc import nn, optim"), ("recipe", recipe)])
    models = {"g": page.g, "d": page.d}
    x, z = np.ones((100, 784), np.float32), np.ones((100, 8), np.float32)
    for trained, step in (("g", lambda: page.step_g(z)), ("d", lambda: page.step_d(x, z))):
        before = {name: model.state_dict() for name, model in models.items()}
        step()
        for name, model in models.items():
            moved = (model.weight.numpy() != before[name]["weight"]).any()
            assert moved == (name == trained)
