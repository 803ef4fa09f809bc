"""docs/graphc-in-300-lines.md runs, computes what NumPy does, and its check can fail."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from types import ModuleType

import numpy as np
import pytest

from tests.tools import ROOT, need_command

TEXT = (ROOT / "docs" / "graphc-in-300-lines.md").read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```$", TEXT, re.M | re.S)


@pytest.fixture(scope="module")
def page() -> ModuleType:
    need_command("g++")
    module = ModuleType("page_of_300_lines")
    sys.modules[module.__name__] = module  # dataclasses look their module up
    for block in BLOCKS:
        exec(compile(block, "page", "exec", dont_inherit=True), vars(module))
    return module


def test_the_page_is_about_as_long_as_it_says() -> None:
    assert len(BLOCKS) > 8
    assert sum(block.count("\n") for block in BLOCKS) <= 320
    assert max(map(len, TEXT.splitlines())) < 160
    assert max(len(line) for block in BLOCKS for line in block.splitlines()) <= 100


def test_a_step_is_that_of_numpy(page: ModuleType) -> None:
    draw = np.random.default_rng(1)
    x, target, w1, w2 = (draw.standard_normal(s).astype("f4") for s in page.SHAPES)
    loss, new1, new2 = page.Program(page.training_step())(
        x, target, w1, w2, np.ones(1), np.full(1, 0.01)
    )
    x, target, w1, w2 = (a.astype("f8") for a in (x, target, w1, w2))
    hidden = np.tanh(x @ w1)
    error = hidden @ w2 - target
    d1 = x.T @ ((2 * error @ w2.T) * (1 - hidden**2))
    np.testing.assert_allclose(loss, [(error**2).sum()], rtol=1e-5)
    np.testing.assert_allclose(new1, w1 - 0.01 * d1, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(new2, w2 - 0.01 * hidden.T @ (2 * error), rtol=1e-4, atol=1e-4)


def test_its_check_finds_values_that_share_bytes(page: ModuleType) -> None:
    places = dict(page.places)
    first, second = page.step.inputs[:2]
    length = places[second].stop - places[second].start
    start = places[first].start
    places[second] = replace(places[second], start=start, stop=start + length)
    with pytest.raises(AssertionError, match="two values share bytes at launch 0"):
        page.verify(places)


def test_operands_of_other_shapes_are_refused_and_fused_kernels_keep_no_result(
    page: ModuleType,
) -> None:
    with pytest.raises(ValueError, match=r"add: expected operands of one shape, got \(2, 3\) and"):
        page.trace(lambda a, b: a + b, (2, 3), (3, 2))
    graph, _ = page.trace(lambda a, b: ((a + b) * a).tanh(), (2, 3), (2, 3))
    (kernel,) = page.fuse(graph)
    assert [node.op for node in kernel.nodes] == ["add", "mul", "tanh"]
