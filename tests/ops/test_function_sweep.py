"""Every function of the random cases once, with its gradient, on every device that computes by
kernels, against NumPy: whole graphs, as users write them, through all passes."""

from __future__ import annotations

import numpy as np
import pytest

from tests.tools import need_command
from tests.torch.cases import SUBJECTS, Case, Draw, difference, program, seeds_of

TOGETHER = 40
NAMES = sorted(SUBJECTS)
BLOCKS = -(-len(NAMES) // TOGETHER)


def drawn(block: int) -> list[tuple[str, Case]]:
    """Every BLOCKS-th function, so that blocks take about equally long."""
    return [(n, SUBJECTS[n](Draw(1000 + i))) for i, n in enumerate(NAMES[block::BLOCKS])]


DEVICES = ("cpu", "sim", "checked sim")
PLACES = [
    pytest.param(device, block, marks=() if block % 3 == i else pytest.mark.slow)
    for i, device in enumerate(DEVICES)
    for block in range(BLOCKS)
]
"""Each function on one device, and in the campaign on all of them."""


@pytest.mark.parametrize(("device", "block"), PLACES)
def test_functions_mean_the_same_on_every_device(
    device: str, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    need_command("g++", "clang++")
    if device == "checked sim":
        monkeypatch.setenv("GRAPHC_CHECK", "race")
    cases = drawn(block)
    seeds = [seeds_of(case) for _, case in cases]
    expected, arguments, counts = program([c for _, c in cases], seeds, "reference")
    compiled, _, _ = program([c for _, c in cases], seeds, device.split()[-1])
    want, got = iter(expected(*arguments)), iter(compiled(*arguments))
    wrong = []
    for (name, case), count in zip(cases, counts, strict=True):
        for i in range(count):
            found = difference(next(got), np.asarray(next(want)), case)
            if found:
                wrong.append(f"{name} {[a.shape for a in case.arrays]} {case.note} [{i}]: {found}")
    assert not wrong, "\n".join(wrong)
