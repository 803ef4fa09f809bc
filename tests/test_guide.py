"""Every block of the user's guide runs."""

from __future__ import annotations

import re
import sys
from types import ModuleType

import numpy as np
import pytest

from tests.support.guide import blocks
from tests.tools import ROOT, need_module

SECTIONS = [
    "",
    "A training loop",
    "Batches of data",
    "Training and evaluation",
    "Fit",
    "Freezing",
    "Learning rates, groups and averages",
    "Custom update rules",
    "Between gradients and update",
    "Large batches in little memory",
    "Several processes",
    "Mixed precision",
    "Private training",
    "Custom state",
    "Several programs on one model",
    "Batches and sequences of any size",
    "Loops over time",
    "Loops that end by data, and branches",
    "Vectorizing with vmap",
    "Gradients of your own",
    "Jacobians and second derivatives",
    "Linear algebra and Fourier transforms",
    "Generation with a cache",
    "Reinforcement learning",
    "The first call",
    "Saving",
    "Checkpoints",
    "Programs as files",
    "Randomness",
    "Debugging",
]


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


def test_the_recipe_of_l_bfgs_finds_a_lower_loss(page: ModuleType) -> None:
    need_module("scipy")
    run(page, [code for code in blocks("docs/guide.md") if code[0] == ""])
    recipe = re.search(
        r"^```py\n(from scipy.*?)^```$", (ROOT / "docs/guide.md").read_text(), re.M | re.S
    )
    assert recipe is not None
    exec(compile(recipe[1], "recipe", "exec", dont_inherit=True), vars(page))
    assert page.found.fun < 0.5 * page.objective(page.first)[0]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_the_estimators_of_the_guide_learn(
    page: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    need_module("sklearn")
    run(page, [code for code in blocks("docs/guide.md") if code[0] == ""])
    text = (ROOT / "docs/guide.md").read_text().partition("## scikit-learn\n")[2]
    found = re.findall(r"^```py\n(.*?)^```$", text.partition("\n## ")[0], re.M | re.S)
    run(page, [("scikit-learn", code) for code in found])
    assert len(found) == 2 and page.search.score(page.data, page.labels) > 0.9
    assert "mlpclassifier__alpha" in capsys.readouterr().out
    assert page.model.score(page.data, page.labels) > 0.8


def test_tokens_made_one_at_a_time_are_those_of_the_whole_text(page: ModuleType) -> None:
    wanted = ("", "Generation with a cache")
    run(page, [code for code in blocks("docs/guide.md") if code[0] in wanted])
    x, heads = page.data[:6], page.attention.heads
    made = x @ page.attention.make.weight.numpy().T + page.attention.make.bias.numpy()
    query, key, value = np.moveaxis(made.reshape(6, 3, heads, -1), (1, 2), (0, 1))
    scores = query @ key.swapaxes(1, 2) / np.sqrt(query.shape[-1])
    scores = np.where(np.tril(np.ones((6, 6))) > 0, scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    right = (weights / weights.sum(-1, keepdims=True) @ value).swapaxes(0, 1).reshape(6, -1)[3:]
    np.testing.assert_allclose(np.concatenate(page.made)[:, 0], right, rtol=1e-5, atol=1e-6)


def test_the_recipe_of_a_gan_trains_one_network_at_a_time(page: ModuleType) -> None:
    recipe = next(code for _, code in blocks("docs/guide.md") if "discriminator_loss" in code)
    run(page, [("imports", "import graphc\nfrom graphc import nn, optim"), ("recipe", recipe)])
    models = {"g": page.g, "d": page.d}
    x, z = np.ones((100, 784), np.float32), np.ones((100, 8), np.float32)
    for trained, step in (("g", lambda: page.step_g(z)), ("d", lambda: page.step_d(x, z))):
        before = {name: model.state_dict() for name, model in models.items()}
        step()
        for name, model in models.items():
            moved = (model.weight.numpy() != before[name]["weight"]).any()
            assert moved == (name == trained)
