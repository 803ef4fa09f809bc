"""Random networks played by prebuilt kernels alone, and by compiled ones: the same bits."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.same_bits import digest
from tests.test_same_bits import kind_of
from tests.tools import first_quick, need_command

FOUND = (47, 288)
"""Networks that once differed."""


@pytest.mark.parametrize("isa", ["", "avx2", "sse2"])
@pytest.mark.parametrize("seed", first_quick(8, dict.fromkeys((*FOUND, *range(300)))))
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
