"""Messages between two ranks, and from one to all, over TCP."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from graphc import ops
from graphc.base.errors import RunError
from graphc.ir import Type
from tests.parallel.threads import at_once, groups

LARGE = 3_000_001
"""Elements: more than the system holds on their way, so that a send waits for its receiver."""


def test_arrays_go_from_rank_to_rank_in_order() -> None:
    with groups(3) as found:

        def call(rank: int) -> list[Any]:
            group, array = found[rank], np.zeros(LARGE, np.float32)
            got = []
            for number in range(3):
                if rank:
                    group.receive(array, rank - 1)
                    got.append((array[0], array[-1]))
                else:
                    array[:] = number + 1
                if rank < 2:
                    group.send(array, rank + 1)
            group.finish()
            return got

        first, *others = at_once(3, call)
    assert first == []
    assert others == [[(1, 1), (2, 2), (3, 3)]] * 2


def test_any_rank_shares_with_all() -> None:
    with groups(3) as found:

        def call(rank: int) -> list[int]:
            got = []
            for root in range(3):
                array = np.full(5, rank, np.int32)
                found[rank].share(array, root)
                got.append(int(array.sum()))
            return got

        assert at_once(3, call) == [[0, 5, 10]] * 3


def test_a_message_from_a_rank_that_fails_is_missing() -> None:
    with groups(2) as found:
        found[1].fail("no more data")
        found[0].receive(np.zeros(4, np.float32), 1)
        with pytest.raises(RunError, match=r"^rank 1 failed at step 0: no more data; the state"):
            found[0].finish()


def test_messages_mean_what_one_rank_knows() -> None:
    token, x = np.array(True), np.arange(3, dtype=np.float32)
    assert ops.Send(1).reference(token, x) == (token,)
    made, zeros = ops.Receive(0, (3,), "f32").reference(token)
    assert made is token
    np.testing.assert_array_equal(zeros, np.zeros(3))
    assert ops.Share(0, (3,), "f32").reference(token, x)[1] is x
    np.testing.assert_array_equal(ops.Share(0, (3,), "f32").reference(token)[1], np.zeros(3))
    assert ops.Share(0, (3,), "f32").infer(ops.TOKEN) == (ops.TOKEN, Type((3,), "f32"))
