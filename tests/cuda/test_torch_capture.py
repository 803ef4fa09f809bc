"""Programs within a capture of PyTorch's, on a driver that records and refuses what breaks one."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.cuda.records import DRIVERS, count, recorded, verbs
from tests.tools import need_module

CURRENT = 55
"""PyTorch's current stream in recording_capture.py."""
FORBIDDEN = (
    *("event_synchronize", "stream_synchronize", "context_synchronize", "mem_alloc", "mem_free"),
    *("host_alloc", "module_load", "graph_instantiate", "graph_launch", "begin_capture"),
    *("copy_to_device", "copy_to_host"),
)
OUTSIDE = (
    "cuda:0: PyTorch is capturing a CUDA graph, in which graphc only calls programs with "
    "out='device' that have run before"
)


@pytest.fixture(scope="module", params=DRIVERS)
def record(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    need_module("torch")
    return recorded("recording_capture", tmp_path_factory.mktemp("driver"), request.param)


def launches(lines: list[str]) -> list[list[str]]:
    """The words of each launch, up to its arguments."""
    found = [line.split(" arguments ")[0].split() for line in lines if "launch" in line[:6]]
    return [words for words in found if words[0] == "launch"]


def addresses(lines: list[str]) -> set[int]:
    """What the arguments of all launches may be addresses of."""
    return {int(w) for x in lines if " arguments " in x for w in x.split(" arguments ")[1].split()}


def test_the_driver_that_records_keeps_the_rules_of_captures(record):
    """So that the other tests can fail."""
    assert record["rules"] == {
        "waiting within": 900,
        "after that": 901,
        "not joined": 904,
        "two captures": 902,
        "from outside": 905,
        "event of a capture": 907,
        "in order": 0,
    }


@pytest.mark.parametrize("name", ["backend", "model", "chain", "forgotten", "refused"])
def test_a_captured_call_breaks_no_capture(record, name):
    seen = record[name]
    assert seen["status"] == 0
    assert count(seen["record"], FORBIDDEN) == 0
    assert record["depth"] == 0


def test_streams_of_their_own_are_forked_from_the_captured_stream_and_joined(record):
    seen = record["model"]
    lines = [re.sub(r"event \d+", "event", line) for line in seen["record"]]
    first, second = seen["forks"]
    assert lines[1:3] == [f"record {CURRENT} event", f"wait {first} event"]
    assert lines[-2:] == [f"record {first} event", f"wait {CURRENT} event"]
    used = {int(words[1]) for words in launches(lines)}
    assert used == {first, second}
    assert not used & set(seen["streams"])


def test_all_launches_of_the_plan_are_captured_in_its_order(record):
    seen = record["model"]
    at_once = seen["first"][: verbs(seen["first"]).index("begin_capture")]
    place = dict(zip(seen["streams"], seen["forks"], strict=True))
    expected = [["launch", str(place[int(w[1])]), *w[2:]] for w in launches(at_once)]
    assert launches(seen["record"]) == expected
    assert len(expected) > 15


def test_nothing_of_a_captured_call_lies_in_memory_that_other_calls_use(record):
    seen = record["model"]
    start, stop = seen["arena"]
    assert not [x for x in addresses(seen["record"]) if start <= x < stop]
    assert [x for x in addresses(seen["first"]) if start <= x < stop]


def test_results_are_of_the_captures_memory_and_work_memory_goes_back_to_it(record):
    seen = record["model"]
    (results,) = seen["allocated"]
    assert 0 < results < seen["peak"]
    assert (seen["before"], seen["held"], seen["given back"]) == ([], [results], [])


def test_tensors_are_read_where_they_lie_if_vectors_may(record):
    aligned, shifted = record["lying"]["aligned"], record["lying"]["shifted"]
    assert [line for line in aligned["record"] if line[:5] == "copy "] == ["copy 2 bytes 140"]
    assert count(shifted["record"], ("copy",)) == 2
    backend = record["backend"]
    assert count(backend["record"], ("copy",)) == 0
    assert set(backend["addresses"]) & addresses(backend["record"])
    assert backend["shapes"] == [[4, 5], []]


def test_a_result_goes_on_within_the_capture_and_is_read_after_it(record):
    seen = record["chain"]
    assert seen["same stream"] == []
    joined = [re.sub(r"event \d+", "event", line) for line in seen["other stream"]]
    assert joined[1:] == [f"record {CURRENT} event", "wait 77 event"]
    assert seen["stream"] == CURRENT
    assert verbs(seen["later"]) == ["context_synchronize", "copy_to_host", "stream_synchronize"]
    assert seen["shape"] == [5, 7]


def test_what_a_captured_program_holds_is_never_freed(record):
    """And what another held is freed after the capture."""
    assert count(record["forgotten"]["later"], ("module_unload",)) == 1


def test_calls_that_cannot_be_captured_say_why(record):
    found = record["refused"]
    head = "function: PyTorch is capturing a CUDA graph, and "
    assert found["to the host"] == (
        f"{head}this program's results would go to the host: compile it with out='device'"
    )
    assert found["state"] == (
        f"{head}this program updates state, which would change unnoticed whenever the graph is "
        "launched: call it outside, where it is a graph of its own"
    )
    assert found["argument"] == f"{head}x is on the host: arguments must be tensors on the GPU"
    assert found["first call"] == (
        f"{head}this program has not run before: call it once first, which loads its kernels"
    )
    assert found["stale"] == (
        "Linear: PyTorch is capturing a CUDA graph, and weight has changed on the host since the "
        "last call: call it once first"
    )
    assert found["device"] == (
        f"{head}this program is on cuda:0, PyTorch's current device is cuda:1"
    )
    assert found["messages"] == (
        f"{head}this program sends messages, for which its ranks meet on the host before each call"
    )
    for name in ("compile", "profile", "reading"):
        assert found[name] == OUTSIDE


def test_later_calls_take_turns_with_the_graph_on_pytorchs_stream(record):
    lines = [re.sub(r"event \d+", "event", line) for line in record["model"]["turn"]]
    assert lines[1:3] == [f"record {CURRENT} event", "wait 1 event"]
    assert lines[-2:] == ["record 1 event", f"wait {CURRENT} event"]
    assert verbs(lines[3:-3]) == ["copy", "copy", "graph_launch", "record", "copy"]


def test_calls_of_other_programs_are_as_before(record):
    assert verbs(record["after"]["record"]) == ["copy", "graph_launch", "record", "copy"]
