"""Random networks played by prebuilt kernels alone, and by compiled ones: the same bits."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.families.gpt import GPT
from benchmarks.run import compiled
from benchmarks.same_bits import digest
from tests.test_same_bits import kind_of
from tests.tools import first_quick, need_command

FOUND = (47, 288, 1027)
"""Networks that once differed, or never ended."""


@pytest.mark.parametrize("isa", ["", "avx2", "sse2"])
@pytest.mark.parametrize("seed", first_quick(9, dict.fromkeys((*FOUND, *range(300)))))
def test_prebuilt_kernels_have_the_bits_of_compiled_ones(
    seed: int, isa: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    need_command("g++", "clang++")
    if isa and seed % 3:
        pytest.skip("every third network on other instruction sets")
    monkeypatch.setenv("GRAPHC_ISA", isa)
    seen = set()
    for tier in "01":
        monkeypatch.setenv("GRAPHC_TIER", tier)
        outputs = kind_of(seed)(seed, threads=2, streams=1)
        seen.add(digest(np.where(a == a, a, np.nan) if a.dtype.kind == "f" else a for a in outputs))
    assert len(seen) == 1


def test_a_transformer_trains_prebuilt_with_the_bits_of_compiled_kernels(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Attention, normalized rows and their gradients: nothing waits for a compiler."""
    need_command("g++", "clang++")
    workload = GPT("small", 2, layers=1, features=64, positions=40, symbols=50)
    data, seen = workload.data(), set()
    for tier in "01":
        monkeypatch.setenv("GRAPHC_TIER", tier)
        options = {"device": "cpu", "threads": 2, "streams": 1}
        step = compiled(workload, data, "train", options)
        losses = [step(data.x, data.y) for _ in range(2)]
        assert step.plan is not None
        tiers = [note for note in step.plan.notes if note.startswith("tiers: ")]
        assert bool(tiers) == (tier == "0")
        assert not any("compiled before" in note for note in tiers), tiers
        seen.add(digest([*losses, *step.state_dict().values()]))
    assert len(seen) == 1
