"""Sums, agreement and failures of ranks, here threads of one process over TCP."""

from __future__ import annotations

import socket
import time
from contextlib import suppress

import numpy as np
import pytest

from graphc.base.errors import RunError
from graphc.parallel import mesh
from graphc.parallel.group import ALONE
from graphc.parallel.options import buckets
from graphc.parallel.transport import collect
from tests.parallel.threads import at_once, groups

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
@pytest.mark.parametrize(("pieces", "size"), [(1, 1), (1, 1000), (3, 17), (2, 100_003)])
def test_a_sum_adds_pieces_in_the_order_of_the_ranks(ranks: int, pieces: int, size: int) -> None:
    terms = RNG.standard_normal((ranks, pieces, size)).astype(np.float32)
    expected = terms[0, 0].copy()
    for piece in terms.reshape(-1, size)[1:]:
        expected += piece
    sums = [np.empty(size, np.float32) for _ in range(ranks)]
    with groups(ranks) as found:
        at_once(ranks, lambda r: found[r].sum_pieces([*terms[r]], sums[r]))
        at_once(ranks, lambda r: found[r].check())
    for each in sums:
        np.testing.assert_array_equal(each, expected)


def test_a_sum_may_replace_its_term() -> None:
    arrays = [np.full(1000, rank + 1.0) for rank in range(3)]
    with groups(3) as found:
        at_once(3, lambda r: found[r].sum_pieces([arrays[r]], arrays[r]))
    assert all((array == 6.0).all() for array in arrays)


def test_rank_0_broadcasts() -> None:
    arrays = [np.full((7, 3), rank, np.int32) for rank in range(3)]
    with groups(3) as found:
        at_once(3, lambda r: found[r].broadcast([arrays[r]]))
    assert all((array == 0).all() for array in arrays)


def test_ranks_collect_texts_of_any_length() -> None:
    texts = [b"", b"a" * 5000, b"bc"]
    with groups(3) as found:
        assert at_once(3, lambda r: collect(found[r].transport, texts[r])) == [texts] * 3


def test_ranks_with_equal_facts_agree_and_others_do_not() -> None:
    facts = [{"plan": "a", "specs": "x f32[2]"}] * 2 + [{"plan": "b", "specs": "x f32[3]"}]
    with groups(3) as found:
        at_once(3, lambda r: found[r].compare("step", facts[0]))
        with pytest.raises(RunError) as error:
            at_once(3, lambda r: found[r].compare("step", facts[r]))
    assert str(error.value) == (
        "step: the ranks do not run the same program\n"
        "  rank 2 differs from rank 0 in plan: b, not a\n"
        "  rank 2 differs from rank 0 in specs: x f32[3], not x f32[2]"
    )


def test_a_rank_that_fails_says_why() -> None:
    with groups(2) as found:
        found[0].step = 7
        found[0].fail("ValueError: no data")
        until = time.monotonic() + 10
        with pytest.raises(RunError) as error:
            while time.monotonic() < until:
                found[1].check()
    assert str(error.value) == (
        "rank 0 failed at step 7: ValueError: no data; the state is that of no step: begin again "
        "from the last checkpoint"
    )


def test_a_rank_that_does_not_come_to_a_sum_is_missed() -> None:
    with groups(2, seconds=0.3) as found:
        found[0].sum_pieces([np.ones(3)], np.ones(3))
        with pytest.raises(RunError, match=r"rank 0 stopped at step 0: 0\.3 seconds"):
            found[0].check()


def test_a_rank_that_does_not_connect_is_named() -> None:
    listener, address = mesh.listen("127.0.0.1")
    with pytest.raises(RunError) as error:
        mesh.connect(0, 3, address, "key", 0.3, listener)
    assert str(error.value) == (
        f"rank 0 of 3 waited 0.3 seconds at {address} for ranks 1, 2: timed out"
    )


def test_strangers_are_turned_away() -> None:
    listener, address = mesh.listen("127.0.0.1")
    host, port = address.split(":")
    with socket.create_connection((host, int(port))) as stranger:
        stranger.sendall(b"GET / HTTP/1.1\r\nHost: somewhere\r\n\r\n")
        found = at_once(
            2, lambda r: mesh.connect(r, 2, address, "key", 20.0, None if r else listener)
        )
        with suppress(ConnectionResetError):
            assert stranger.recv(100) == b""
    for peers in found:
        peers.close()


def test_a_process_by_itself_sums_its_pieces() -> None:
    total = np.empty(2, np.float32)
    ALONE.sum_pieces([np.float32([1, 2]), np.float32([3, 4])], total)
    assert total.tolist() == [4, 6]


@pytest.mark.parametrize(
    ("sizes", "limit", "expected"),
    [
        ([], 4, []),
        ([1, 1, 1], 2, [[0, 1], [2]]),
        ([9, 1, 2, 9], 3, [[0], [1, 2], [3]]),
        ([1, 2, 3], 100, [[0, 1, 2]]),
    ],
)
def test_buckets_keep_the_order(sizes: list[int], limit: int, expected: list[list[int]]) -> None:
    assert buckets(sizes, limit) == expected
