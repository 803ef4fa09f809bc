"""Capturing streams as a graph, and what is wrong with a capture."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from graphc.runtime.sim import LogicError, RaceError
from tests.support.stream_bugs import NBYTES, Setting, X, setting


@pytest.fixture
def it() -> Iterator[Setting]:
    it = setting()
    yield it
    it.device.scheduler.drop()


def test_a_graph_of_two_streams_plays_again_and_again(it: Setting):
    it.device.begin_capture(it.first)
    it.forked()
    graph = it.device.end_capture(it.first)
    assert graph.nodes == (
        "copy to the device", "scale", "scale", "add", "copy to the host"
    )  # fmt: skip
    assert not it.device.log
    for factor in range(3):
        it.given[:] = factor * X
        graph.launch(it.first)
        it.first.synchronize()
        np.testing.assert_array_equal(it.got, 5 * factor * X)


def test_the_nodes_of_a_graph_run_in_any_order_that_its_edges_allow():
    orders = set()
    for seed in range(8):
        it = setting(seed)
        it.device.memset_d8(it.x, 0, NBYTES)
        it.device.begin_capture(it.first)
        it.events[0].record(it.first)
        it.second.wait_for_event(it.events[0])
        it.device.memset_d8_async(it.y, 0, NBYTES, it.first)
        it.scale(it.second, it.x, it.z, 3.0)
        it.events[1].record(it.second)
        it.first.wait_for_event(it.events[1])
        it.device.end_capture(it.first).launch(it.first)
        it.first.synchronize()
        orders.add(tuple(it.device.log)[-2:])
    assert orders == {("memset", "scale"), ("scale", "memset")}


def test_a_stream_that_was_forked_must_be_joined(it: Setting):
    it.device.begin_capture(it.first)
    with pytest.raises(RaceError, match="scale on stream 2 writes them, add on stream 1 reads"):
        it.forked(without="join")
    with pytest.raises(LogicError) as caught:
        it.device.end_capture(it.first)
    assert str(caught.value) == (
        "end_capture: stream 2 was forked from stream 1 and not joined: scale would never be "
        "waited for"
    )


def test_what_is_captured_must_be_in_order(it: Setting):
    it.device.begin_capture(it.first)
    it.events[0].record(it.first)
    it.second.wait_for_event(it.events[0])
    it.upload(it.first)
    with pytest.raises(RaceError, match="bytes 0 to 4000 of x"):
        it.scale(it.second, it.x, it.z, 3.0)


def test_graphs_on_two_streams_race_as_their_nodes_do(it: Setting):
    it.device.begin_capture(it.first)
    it.device.memset_d8_async(it.y, 0, NBYTES, it.first)
    graph = it.device.end_capture(it.first)
    graph.launch(it.first)
    with pytest.raises(RaceError, match="graph on stream 1 writes them, graph on stream 2 writes"):
        graph.launch(it.second)


def test_the_host_cannot_wait_for_a_stream_that_is_captured(it: Setting):
    it.device.begin_capture(it.first)
    with pytest.raises(LogicError) as caught:
        it.first.synchronize()
    assert str(caught.value) == "stream 1: synchronize on a stream that is being captured"


def test_a_capture_waits_for_no_event_from_outside(it: Setting):
    it.events[0].record(it.second)
    it.device.begin_capture(it.first)
    with pytest.raises(LogicError) as caught:
        it.first.wait_for_event(it.events[0])
    assert str(caught.value) == "stream 1 is being captured and waits for an event from outside"


def test_nobody_waits_for_an_event_of_a_finished_capture(it: Setting):
    it.device.begin_capture(it.first)
    it.events[0].record(it.first)
    it.device.end_capture(it.first)
    with pytest.raises(LogicError) as caught:
        it.second.wait_for_event(it.events[0])
    assert str(caught.value) == (
        "stream 2 waits for an event that was recorded in a finished capture"
    )
    with pytest.raises(LogicError) as caught:
        it.events[0].synchronize()
    assert str(caught.value) == "the event was recorded in a capture: it never ends"


def test_a_capture_begins_once_and_ends_where_it_began(it: Setting):
    it.device.begin_capture(it.first)
    with pytest.raises(LogicError) as caught:
        it.device.begin_capture(it.first)
    assert str(caught.value) == "begin_capture: stream 1 is being captured already"
    with pytest.raises(LogicError) as caught:
        it.device.end_capture(it.second)
    assert str(caught.value) == "end_capture: no capture began on stream 2"


def test_a_host_array_changed_before_the_graph_has_read_it(it: Setting):
    it.device.begin_capture(it.first)
    it.upload(it.first)
    graph = it.device.end_capture(it.first)
    graph.launch(it.first)
    it.given[0] = 9
    with pytest.raises(LogicError, match=r"^the source of a copy to the device was changed"):
        it.first.synchronize()
