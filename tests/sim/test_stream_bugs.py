"""Mistakes with streams, events, memory and declared bytes: each is found, the right way is not.

Three kernels on two streams: y = 2 x on the first, z = 3 x on the second, sum = y + z on the first.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator

import numpy as np
import pytest

from graphc.runtime.sim import LaunchError, LogicError, RaceError
from graphc.runtime.sim.queues import POLICIES
from tests.sim.playing import packed, whole
from tests.support.stream_bugs import COUNT, NBYTES, Setting, X, setting


@pytest.fixture
def it() -> Iterator[Setting]:
    it = setting()
    yield it
    it.device.scheduler.drop()


def unordered(bytes_text: str, one: str, other: str) -> str:
    return (
        f"{bytes_text}: {one}, {other}, and no event or synchronisation puts one before the other"
    )


@pytest.mark.parametrize("policy", POLICIES)
def test_the_right_way_gives_the_sum_in_every_order(policy: str):
    orders = set()
    for seed in range(6):
        it = setting(seed, policy)
        it.forked()
        it.first.synchronize()
        np.testing.assert_array_equal(it.got, 5 * X)
        orders.add(tuple(it.device.log))
    assert len(orders) > 1 or policy != "random"


def test_a_fork_without_an_event(it: Setting):
    with pytest.raises(RaceError) as caught:
        it.forked(without="fork")
    assert str(caught.value) == unordered(
        "bytes 0 to 4000 of x",
        "copy to the device on stream 1 writes them",
        "scale on stream 2 reads them",
    )


def test_a_join_without_an_event(it: Setting):
    with pytest.raises(RaceError) as caught:
        it.forked(without="join")
    assert str(caught.value) == unordered(
        "bytes 0 to 4000 of z", "scale on stream 2 writes them", "add on stream 1 reads them"
    )


def test_memory_used_again_before_its_reader_is_done(it: Setting):
    it.forked()
    it.first.synchronize()
    it.scale(it.second, it.x, it.z, 4.0)
    with pytest.raises(RaceError, match="scale on stream 2 reads them, copy to the device on str"):
        it.upload(it.first)


def test_two_writers_of_the_same_bytes(it: Setting):
    it.device.memset_d8_async(it.y, 0, NBYTES, it.first)
    with pytest.raises(RaceError, match="memset on stream 1 writes them, memset on stream 2 write"):
        it.device.memset_d8_async(int(it.y) + 3999, 0, 1, it.second)


def test_neighbouring_bytes_need_no_order(it: Setting):
    it.device.memset_d8_async(it.y, 0, 2000, it.first)
    it.device.memset_d8_async(int(it.y) + 2000, 0, 2000, it.second)
    it.device.synchronize()


def test_an_event_recorded_too_early(it: Setting):
    it.events[0].record(it.first)
    it.upload(it.first)
    it.second.wait_for_event(it.events[0])
    with pytest.raises(RaceError, match="bytes 0 to 4000 of x"):
        it.scale(it.second, it.x, it.z, 3.0)


def test_a_wait_put_behind_the_launch_that_needs_it(it: Setting):
    it.upload(it.first)
    it.events[0].record(it.first)
    with pytest.raises(RaceError, match="bytes 0 to 4000 of x"):
        it.scale(it.second, it.x, it.z, 3.0)


def test_a_wait_on_the_wrong_event(it: Setting):
    it.events[1].record(it.first)
    it.upload(it.first)
    it.events[0].record(it.first)
    it.second.wait_for_event(it.events[1])
    with pytest.raises(RaceError, match="bytes 0 to 4000 of x"):
        it.scale(it.second, it.x, it.z, 3.0)


def test_an_event_that_was_never_recorded(it: Setting):
    with pytest.raises(LogicError) as caught:
        it.second.wait_for_event(it.events[0])
    assert str(caught.value) == (
        "stream 2 waits for an event that was never recorded; CUDA would not wait at all"
    )


def test_a_kernel_that_reads_what_it_does_not_declare(it: Setting):
    it.device.memset_d8(it.y, 0, NBYTES)
    it.device.memset_d8(it.z, 0, NBYTES)
    it.add(it.first, reads=[it.span(it.y)])
    with pytest.raises(LaunchError, match=r"^add reads byte 0 of 4000 bytes, which the launch"):
        it.first.synchronize()


def test_a_kernel_that_writes_more_than_it_declares(it: Setting):
    it.device.memset_d8(it.y, 0, NBYTES)
    it.device.memset_d8(it.z, 0, NBYTES)
    start = int(it.sum)
    it.add(it.first, writes=[(start, start + 2000, "sum")])
    with pytest.raises(LaunchError, match=r"^add writes \d+ bytes behind the end of sum, which"):
        it.first.synchronize()


def test_a_finding_names_the_nearest_declared_bytes(it: Setting):
    arena, stream = it.device.mem_alloc(3 * NBYTES), it.first
    it.device.memset_d8(arena, 0, 3 * NBYTES)
    a, b, c = (int(arena) + i * NBYTES for i in range(3))
    buffer = struct.pack("PPPi", a, b, c, COUNT)
    reads = [(a, a + NBYTES, "a"), (b, b + NBYTES - 20, "b")]
    add = it.module.get_function("add")
    add._launch_kernel((8,), (128,), buffer, 0, stream, reads=reads, writes=[(c, c + NBYTES, "c")])
    with pytest.raises(LaunchError) as caught:
        stream.synchronize()
    message = str(caught.value)
    assert message.startswith("add reads ")
    assert re.search(
        r"(\d+ bytes behind the end of b|\d+ bytes before c), which the launch", message
    )


def test_a_kernel_that_leaves_declared_bytes_unwritten(it: Setting):
    it.device.memset_d8(it.y, 0, NBYTES)
    it.device.memset_d8(it.z, 0, NBYTES)
    it.add(it.first, COUNT - 5)
    with pytest.raises(LaunchError) as caught:
        it.first.synchronize()
    assert str(caught.value) == (
        "add leaves 20 of the 4000 bytes of sum unwritten, from byte 3980 on"
    )


def test_a_kernel_that_runs_before_its_input_is_written(it: Setting):
    it.add(it.first)
    with pytest.raises(LaunchError, match=r"^add reads byte \d+ of [yz], which nobody has written"):
        it.first.synchronize()


@pytest.mark.parametrize("policy", POLICIES)
def test_a_host_that_reads_without_waiting_sees_no_result(policy: str):
    it = setting(policy=policy)
    it.forked()
    assert np.isnan(it.got).all()
    it.first.synchronize()
    assert not np.isnan(it.got).any()


def test_a_host_array_changed_before_its_copy_has_run(it: Setting):
    it.upload(it.first)
    it.given[3] = 7
    with pytest.raises(LogicError) as caught:
        it.first.synchronize()
    assert str(caught.value) == (
        "the source of a copy to the device was changed before the copy ran"
    )


def test_two_copies_to_one_host_array(it: Setting):
    it.forked()
    it.device.memset_d8_async(it.y, 0, NBYTES, it.first)
    with pytest.raises(RaceError, match="of a host array: copy to the host on stream 1 writes the"):
        it.device.memcpy_dtoh_async(it.got, it.x, it.second)


def test_memory_freed_while_work_waits_for_it(it: Setting):
    it.forked()
    with pytest.raises(LogicError) as caught:
        it.z.free()
    assert str(caught.value) == "memory is freed that scale on stream 2 has yet to use"
    it.device.synchronize()
    it.z.free()


def test_arguments_packed_for_memory_that_is_gone(it: Setting):
    it.device.memset_d8(it.x, 0, NBYTES)
    stale = packed(it.x, it.y, COUNT, 1.0)
    it.y.free()
    it.module.get_function("scale")._launch_kernel((8, 1, 1), (128, 1, 1), stale, 0, it.first)
    with pytest.raises(LaunchError, match=r"^scale writes 4 bytes, freed memory"):
        it.first.synchronize()


def test_declared_bytes_that_are_not_allocated(it: Setting):
    place = whole(it.y, NBYTES + 1, "y")
    with pytest.raises(LogicError) as caught:
        it.add(it.first, reads=[place])
    assert str(caught.value) == "add: the 4001 bytes of y do not lie in one allocation"


def test_a_host_that_copies_without_waiting_for_a_kernel(it: Setting):
    it.forked()
    with pytest.raises(
        RaceError, match="add on stream 1 writes them, copy to the host on stream 0"
    ):
        it.device.memcpy_dtoh(np.empty(COUNT, np.float32), it.sum)


def test_the_default_stream_is_refused(it: Setting):
    with pytest.raises(LogicError) as caught:
        it.device.memset_d8_async(it.y, 0, NBYTES)
    assert str(caught.value) == (
        "memset: a stream is needed; the default stream waits for all others and hides events "
        "that are missing"
    )


def test_a_blocking_stream_is_refused(it: Setting):
    with pytest.raises(LogicError, match=r"^Stream: flags must be 1 \(non-blocking\), got 0"):
        it.device.Stream()


def test_a_copy_from_memory_that_is_not_page_locked(it: Setting):
    with pytest.raises(LogicError) as caught:
        it.device.memcpy_htod_async(it.x, X, it.first)
    assert str(caught.value) == (
        "memcpy_htod_async: expected a page-locked array, of pagelocked_empty"
    )


def test_a_thread_without_a_context(it: Setting):
    it.device.Context.pop()
    with pytest.raises(LogicError) as caught:
        it.device.mem_alloc(4)
    assert str(caught.value) == "no context is current in this thread: push one"


@pytest.mark.parametrize("wrong", [b"", bytes(20), bytes(32)])
def test_arguments_of_the_wrong_size(it: Setting, wrong: bytes):
    with pytest.raises(LogicError) as caught:
        it.module.get_function("scale")._launch_kernel((1, 1, 1), (32, 1, 1), wrong, 0, it.first)
    assert str(caught.value) == (f"scale: {len(wrong)} bytes of arguments, its parameters take 24")
