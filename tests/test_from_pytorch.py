"""Both sides of the page for users of PyTorch run, and compute the same from the same weights."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from tests.support.guide import blocks
from tests.tools import need_module

PAGE = "docs/from-pytorch.md"
THEIRS, OURS = "# PyTorch\n", "# graphc\n"
"""What blocks of one side begin with; all others belong to both."""
STEPS = 4


def sides(section: str) -> tuple[str, str]:
    """The text of a section's blocks in PyTorch and in graphc."""
    parts = [text for name, text in blocks(PAGE) if name in ("", section)]
    assert min(sum(text.startswith(begin) for text in parts) for begin in (THEIRS, OURS)) > 1
    theirs = [text for text in parts if not text.startswith(OURS)]
    ours = [text for text in parts if not text.startswith(THEIRS)]
    assert len(theirs) == len(ours) > 2
    return "".join(theirs), "".join(ours)


def played(name: str, text: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    module = ModuleType(name)
    monkeypatch.setitem(sys.modules, name, module)
    exec(compile(text, name, "exec", dont_inherit=True), vars(module))
    return module


def drawn(section: str) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    if section in ("LeNet", "ResNet"):
        shape = (8, 1, 28, 28) if section == "LeNet" else (8, 3, 16, 16)
        return rng.standard_normal(shape).astype(np.float32), rng.integers(0, 10, 8)
    shape = (4, 16) if section == "GPT" else (12, 4)
    ids = rng.integers(0, 50, (2, *shape))
    return ids[0], ids[1]


@pytest.mark.parametrize("section", ["LeNet", "ResNet", "A language model with an LSTM", "GPT"])
def test_a_model_of_the_page_trains_as_its_twin_does(
    section: str, clean_environment: pytest.MonkeyPatch
) -> None:
    torch = need_module("torch")
    clean_environment.setenv("GRAPHC_DEVICE", "reference")
    theirs, ours = (
        played(f"page_{n}", text, clean_environment) for n, text in enumerate(sides(section))
    )
    state = theirs.model.state_dict()
    weights = {n: t.numpy().copy() for n, t in state.items() if "num_batches" not in n}
    assert set(weights) == {n for n in ours.model.state_dict() if "num_batches" not in n}
    ours.model.load_state_dict({**ours.model.state_dict(), **weights})
    x, y = drawn(section)
    kind = torch.int64 if x.dtype.kind == "i" else torch.float32
    for _ in range(STEPS):
        expected = theirs.step(torch.tensor(x, dtype=kind), torch.tensor(y))
        x_here = x.astype(np.int32) if kind == torch.int64 else x
        assert float(ours.step(x_here, y.astype(np.int32))) == pytest.approx(expected, rel=2e-4)
    if section == "ResNet":
        found, wanted = ours.evaluate(x), theirs.evaluate(torch.tensor(x)).numpy()
        np.testing.assert_allclose(found, wanted, rtol=0, atol=2e-3)


def test_the_block_about_weights_gives_arrays_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    need_module("torch")
    (weights,) = [text for name, text in blocks(PAGE) if name == "Weights"]
    page = played("page_of_weights", sides("LeNet")[0] + weights, monkeypatch)
    assert page.arrays["conv1.weight"].shape == (6, 1, 5, 5)
