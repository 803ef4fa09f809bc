"""Checkpoints, evaluation and faults of pipelines."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import pytest

from tests.parallel.pipeline_runs import run
from tests.parallel.ranks import over_mpi, over_tcp

MODULE = "tests.parallel.pipeline_runs"
BEGIN_AGAIN = "; the state is that of no step: begin again from the last checkpoint"


def of_ranks(ranks: int, folder: Path, steps: int) -> dict[str, Any]:
    """What all ranks of a run have found."""
    first, *others = (e.result for e in over_tcp(ranks, MODULE, str(folder), str(steps)))
    assert all(other == first for other in others)
    return first


def test_a_run_goes_on_with_another_number_of_stages(tmp_path: Path) -> None:
    alone = run(str(tmp_path / "alone"), 3)
    folder = tmp_path / "stages"
    assert of_ranks(3, folder, 1)["first"] == 0
    assert of_ranks(2, folder, 2)["first"] == 1
    assert len(list(folder.iterdir())) == 2, "each is written once"
    last = run(str(folder), 3)
    assert last.pop("first") == 2
    assert last["2"] == alone["2"]
    for name in ("state", "model", "logits", "names"):
        assert last[name] == alone[name]
    again = of_ranks(2, tmp_path / "alone", 3)
    assert again["first"] == 3
    assert {n: again[n] for n in ("state", "model", "logits")} == {
        n: alone[n] for n in ("state", "model", "logits")
    }


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("killed", "rank 1 ended at step 2, without a word: it was killed"),
        ("raised", "rank 1 failed at step 1: ValueError: no more data"),
    ],
)
def test_a_stage_that_fails_ends_the_others(tmp_path: Path, how: str, said: str) -> None:
    begin = time.monotonic()
    ended = over_tcp(3, MODULE, str(tmp_path), "4", how, "1", "1")
    assert time.monotonic() - begin < 60
    assert all(each.code for each in ended)
    for rank in (0, 2):
        found = re.sub(r"ended at step \d", "ended at step 2", ended[rank].err)
        assert f"graphc.base.errors.RunError: {said}{BEGIN_AGAIN}" in found
    assert [path.name for path in tmp_path.iterdir()] == ["step-1.safetensors"]


def test_a_stage_that_fails_ends_the_others_under_mpiexec(tmp_path: Path) -> None:
    ended = over_mpi(2, "-m", MODULE, str(tmp_path), "3", "raised", "1", "1")
    assert ended.code
    assert f"rank 1 failed at step 1: ValueError: no more data{BEGIN_AGAIN}" in ended.err
