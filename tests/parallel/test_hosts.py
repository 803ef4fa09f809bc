"""Ranks on two hosts, which a cable joins."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.parallel.hosts import Hosts, two_hosts
from tests.parallel.ranks import on_hosts
from tests.parallel.test_training import ranks

FAULTS = "tests.parallel.faults"


@pytest.fixture
def hosts() -> Iterator[Hosts]:
    with two_hosts() as made:
        yield made


def test_ranks_on_two_hosts_have_the_bits_of_one_process(hosts: Hosts) -> None:
    with on_hosts(hosts, (0, 1, 1), "tests.parallel.cases", "adam", "12") as wait:
        found = [ended.result for ended in wait()]
    alone = ranks(1, "adam", 12)[0].result
    assert [each["digest"] for each in found] == [alone["digest"]] * 3
    assert [each["losses"] for each in found] == [alone["losses"]] * 3


def test_a_killed_rank_ends_that_of_the_other_host(hosts: Hosts, tmp_path: Path) -> None:
    with on_hosts(hosts, (0, 1), FAULTS, str(tmp_path), "killed", "1", "2", "5") as wait:
        first, second = wait()
    assert (first.code, second.code) == (1, -9)
    assert "rank 1 ended at step" in first.err.splitlines()[-1], first.err


def test_both_ranks_end_when_the_cable_is_pulled(hosts: Hosts, tmp_path: Path) -> None:
    """No connection is closed and no packet comes, so each rank misses the other in time."""
    arguments = str(tmp_path), "not", "1", "0", "1000000", "3"
    with on_hosts(hosts, (0, 1), FAULTS, *arguments) as wait:
        while not os.listdir(tmp_path):
            time.sleep(0.01)
        hosts.unplug()
        begin = time.monotonic()
        first, second = wait()
    assert (first.code, second.code) == (1, 1)
    assert "3 seconds went by without rank 1" in first.err, first.err
    assert "3 seconds went by without rank 0" in second.err, second.err
    assert time.monotonic() - begin < 30
