"""A rank that fails ends the others, with its number and the step; training goes on from there."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

import pytest

from tests.parallel.ranks import Ended, over_mpi, over_tcp

MODULE = "tests.parallel.faults"
GO_ON = "; the state is that of no step: begin again from the last checkpoint"
WORDS = {
    "killed": r"rank 1 ended at step [23], without a word: it was killed",
    "raised": r"rank 1 failed at step 2: ValueError: no more data",
    "ended": r"rank 0 stopped at step 3: rank 1 closed its connection",
}
"""What rank 0 says when rank 1 fails after the second step, which rank 0 may be in or behind."""


def train(ranks: int, folder: Path, how: str = "", *more: str) -> list[Ended]:
    return over_tcp(ranks, MODULE, str(folder), how or "not", "1", "2", "5", *more)


@pytest.mark.parametrize("how", WORDS)
def test_a_rank_that_fails_ends_the_other(how: str, tmp_path: Path) -> None:
    first, second = train(2, tmp_path, how)
    assert first.code == 1
    assert second.code == {"killed": -9, "raised": 1, "ended": 0}[how]
    said = first.err.splitlines()[-1]
    assert re.fullmatch(f"graphc.base.errors.RunError: {WORDS[how]}{GO_ON}", said), first.err


def test_a_rank_that_stops_is_missed_in_time(tmp_path: Path) -> None:
    begin = time.monotonic()
    first, _ = over_tcp(2, MODULE, str(tmp_path), "stopped", "1", "2", "5", "2")
    assert "rank 0 stopped at step 3: 2 seconds went by without rank 1" in first.err
    assert time.monotonic() - begin < 45


def test_training_goes_on_with_other_numbers_of_ranks(tmp_path: Path) -> None:
    """Killed on 3 ranks, and ended on 2: the losses are those of one process, to the bit."""
    assert [ended.code for ended in train(3, tmp_path, "killed")] == [1, -9, 1]
    found = [ended.result for ended in train(2, tmp_path)]
    assert found[0] == found[1]
    whole = train(1, tmp_path / "whole")[0].result
    assert found[0]["first"] == 2
    assert [found[0][str(n)] for n in (2, 3, 4)] == [whole[str(n)] for n in (2, 3, 4)]


def test_one_rank_writes_checkpoints(tmp_path: Path) -> None:
    train(2, tmp_path)
    assert sorted(os.listdir(tmp_path)) == [f"step-{n}.safetensors" for n in (3, 4, 5)]


def test_a_killed_rank_of_mpi_ends_the_run(tmp_path: Path) -> None:
    begin = time.monotonic()
    ended = over_mpi(2, "-m", MODULE, str(tmp_path), "killed", "1", "2", "5")
    assert ended.code != 0
    assert re.search(f"graphc: rank 0 ends: {WORDS['killed']}", ended.err), ended.err
    assert time.monotonic() - begin < 60
