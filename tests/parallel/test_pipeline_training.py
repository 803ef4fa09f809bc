"""The stages of a pipeline train as one process does with `accumulate=`, to the bit."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import pytest

from tests.parallel.pipelines import trained
from tests.parallel.ranks import over_mpi, over_tcp
from tests.tools import first_quick

MODULE = "tests.parallel.pipelines"
BATCHES = (2, 3, 4, 8)
"""Numbers of micro-batches."""


def results(ranks: int, cases: str, batches: str) -> list[dict[str, Any]]:
    """What each rank has trained, by case and number of micro-batches."""
    return [ended.result for ended in over_tcp(ranks, MODULE, cases, batches)]


def same(found: list[dict[str, Any]], case: str, batches: int) -> None:
    """All ranks return the results of one process, and have its state together."""
    expected = trained(case, batches)
    for rank in found:
        assert rank[f"{case} {batches}"] == expected, (case, batches)


def close(found: list[dict[str, Any]], case: str, batches: int) -> None:
    """All ranks return one thing, which is that of one process but for rounding."""
    assert len({json.dumps(rank) for rank in found}) == 1
    expected, got = trained(case, batches), found[0][f"{case} {batches}"]
    losses = [[float.fromhex(loss) for loss in each["losses"]] for each in (got, expected)]
    np.testing.assert_allclose(*losses, rtol=2e-6)
    for name, weights in expected["weights"].items():
        np.testing.assert_allclose(got["weights"][name], weights, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    "asked",
    first_quick(
        2,
        [
            (2, "lenet,tied,clipped", (3,)),
            (3, "gpt,recurrent", (2,)),
            (4, "lenet,gpt,tied", (2, 3)),
            (2, "sgd,adam,ema,narrow,streams,lean,gpt,dropout,recurrent", (2, 3)),
            (3, "lenet,tied,clipped,ema,narrow,streams", (2, 3)),
            (4, "sgd,adam,clipped,dropout,ema,narrow", (2, 8)),
        ],
    ),
)
def test_stages_have_the_bits_of_one_process(asked: tuple[int, str, tuple[int, ...]]) -> None:
    ranks, cases, counts = asked
    found = results(ranks, cases, ",".join(map(str, counts)))
    for case in cases.split(","):
        for batches in counts:
            same(found, case, batches)


@pytest.mark.parametrize("ranks", first_quick(1, [3, 2, 4]))
def test_any_number_of_micro_batches_will_do(ranks: int) -> None:
    found = results(ranks, "adam", "1,2,3,4,8")
    for batches in (1, *BATCHES):
        same(found, "adam", batches)


@pytest.mark.parametrize("ranks", first_quick(1, [3, 2, 4]))
def test_random_chains_are_cut_at_random_places(ranks: int) -> None:
    cases = [f"random-{seed}" for seed in range(4 if ranks == 3 else 6)]
    found = results(ranks, ",".join(cases), "3")
    for seed, case in enumerate(cases):
        assert len({json.dumps(rank) for rank in found}) == 1
        if seed % 2 == 0:
            same(found, case, 3)
        else:
            close(found, case, 3)


@pytest.mark.parametrize("ranks", first_quick(1, [3, 2, 4]))
def test_blocks_with_batch_normalization_agree_within_rounding(ranks: int) -> None:
    close(results(ranks, "residual", "3"), "residual", 3)


def test_a_second_run_has_the_same_bits() -> None:
    assert results(2, "lenet", "4") == results(2, "lenet", "4")


def test_ranks_of_mpi_train_as_those_over_tcp_do() -> None:
    ended = over_mpi(3, "-m", MODULE, "tied", "4")
    assert ended.code == 0, ended.err
    digests = re.findall(r'"embedding\.weight": "(\w{64})"', ended.out)
    assert digests == [trained("tied", 4)["state"]["embedding.weight"]] * 3
