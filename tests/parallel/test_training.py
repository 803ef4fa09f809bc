"""Several ranks train as one process does on the whole batch."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from tests.parallel.cases import CASES, trained
from tests.parallel.ranks import Ended, over_mpi, over_tcp
from tests.tools import first_quick

MODULE = "tests.parallel.cases"
ALIKE = [case for case in CASES if case not in ("dropout", "images")]
"""The cases in which ranks compute what one process does, up to rounding."""
RANDOM = [f"random-{seed}" for seed in range(6)]


def ranks(count: int, case: str, shards: int = 0, **more: str) -> list[Ended]:
    small = {"GRAPHC_BUCKET_BYTES": "3000"}
    return over_tcp(count, MODULE, case, str(shards), more={**small, **more})


def close(found: dict[str, object], expected: dict[str, object], case: str) -> None:
    tolerance = 2e-3 if case == "narrow" else 2e-5
    np.testing.assert_allclose(found["losses"], expected["losses"], rtol=tolerance)
    for name, weights in expected["weights"].items():  # type: ignore[attr-defined]
        np.testing.assert_allclose(
            found["weights"][name],  # type: ignore[index]
            weights,
            rtol=10 * tolerance,
            atol=tolerance,
            err_msg=name,
        )


@pytest.fixture(scope="module")
def pair() -> list[dict[str, Any]]:
    """What each of two ranks trains, by case."""
    return [ended.result for ended in ranks(2, ",".join(CASES))]


@pytest.mark.parametrize("case", ALIKE)
def test_two_ranks_train_as_one_process_does(case: str, pair: list[dict[str, Any]]) -> None:
    one, two = (each[case] for each in pair)
    assert one["digest"] == two["digest"]
    close(one, trained(case), case)


@pytest.mark.parametrize("count", [3, 4])
def test_more_ranks_train_as_one_process_does(count: int) -> None:
    found = [ended.result for ended in ranks(count, "adam")]
    assert len({each["digest"] for each in found}) == 1
    close(found[0], trained("adam"), "adam")


@pytest.mark.parametrize(
    "cases", first_quick(2, [("adam", "clipped", "dropout"), RANDOM[:2], RANDOM[2:]])
)
def test_shards_have_the_same_bits_for_every_number_of_ranks(cases: Sequence[str]) -> None:
    found = [e.result for n in (1, 2, 3, 4) for e in ranks(n, ",".join(cases), 12)]
    for case in cases:
        assert len({each[case]["digest"] for each in found}) == 1, case
        assert len({tuple(each[case]["losses"]) for each in found}) == 1, case


@pytest.mark.parametrize("case", first_quick(1, ["adam", "clipped", *RANDOM]))
def test_kernels_add_shards_in_the_order_of_messages(case: str) -> None:
    """As on GPUs, whose messages add in an order of their own."""
    expected = ranks(1, case, 12)[0].result["digest"]
    arguments = case, "12", "sharded" if case == "adam" else ""
    small = {"GRAPHC_BUCKET_BYTES": "3000"}
    for count in (1, 3):
        for ended in over_tcp(count, "tests.parallel.by_kernels", *arguments, more=small):
            assert set(ended.result) == {expected}, ended.result


def test_random_networks_are_the_same_on_both_ranks() -> None:
    one, two = (ended.result for ended in ranks(2, ",".join(RANDOM)))
    assert {n: one[n]["digest"] for n in RANDOM} == {n: two[n]["digest"] for n in RANDOM}


def test_a_second_run_has_the_same_bits(pair: list[dict[str, Any]]) -> None:
    again = ranks(2, ",".join(CASES))[0].result
    assert {n: x["digest"] for n, x in again.items()} == {n: pair[0][n]["digest"] for n in CASES}


def test_buckets_do_not_change_bits() -> None:
    sizes = ("1", "3000", "32M")
    runs = [ranks(2, "adam", GRAPHC_BUCKET_BYTES=size)[0].result["digest"] for size in sizes]
    assert len(set(runs)) == 1


def test_statistics_are_the_same_on_all_ranks(pair: list[dict[str, Any]]) -> None:
    one, two = (each["images"] for each in pair)
    assert one["digest"] == two["digest"]
    assert one["losses"] == two["losses"]


def test_ranks_draw_different_numbers(pair: list[dict[str, Any]]) -> None:
    """The mean is not that of one process, whose draws are those of the whole batch."""
    one, two = (each["dropout"] for each in pair)
    assert one["digest"] == two["digest"]
    assert not np.allclose(one["losses"], trained("dropout")["losses"], rtol=1e-6)


def test_ranks_of_mpi_train_as_those_over_tcp_do() -> None:
    ended = over_mpi(2, "-m", MODULE, "adam", more={"GRAPHC_BUCKET_BYTES": "3000"})
    assert ended.code == 0, ended.err
    digests = re.findall(r'"digest": "(\w+)"', ended.out)  # both ranks may write one line
    assert digests == [ranks(2, "adam")[0].result["digest"]] * 2
