"""The tuner on the real PyCUDA, with a driver library that records what it is asked for."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import pytest

from tests.cuda.records import DRIVERS, count, recorded, verbs


@pytest.fixture(scope="module", params=DRIVERS)
def record(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    return recorded("recording_tuning", tmp_path_factory.mktemp("driver"), request.param)


def test_the_candidate_that_takes_the_device_least_is_taken(record):
    tuned = record["tuned"]
    (note,) = tuned["notes"]
    assert note == ("tune: m0_bias takes candidate 3 of 5: 0.500 of the first's time, noise 0.0%")
    assert len(tuned["kernels"]) == 2
    assert all("Tile = Registers<16, 32" in text for text in tuned["kernels"])


def test_a_gain_within_a_percent_is_no_reason_to_leave_the_model(record):
    (note,) = record["hardly faster"]["notes"]
    assert note.startswith("tune: m0_bias takes candidate 1 of 5: no other was faster")


def test_candidates_are_played_in_graphs_between_events_and_equal_layers_once(record):
    first, second, _ = record["tuned"]["records"]
    graphs = Counter(line.split()[1] for line in first if line.startswith("graph_launch"))
    assert len(graphs) == 5 and min(graphs.values()) > 3
    launches = [i for i, line in enumerate(first) if line.startswith("graph_launch")]
    for i in launches:
        around = first[i - 1].split()[:2], *(line.split()[0] for line in first[i + 1 : i + 3])
        assert around == (["record", "1"], "record", "event_synchronize")
    assert count(second, ("graph_launch", "launch")) == 0, "it is remembered"
    timed = [line for line in first if line.startswith("event_create") and line.endswith("flags 0")]
    assert len(timed) >= 2 * len(launches)


def test_a_library_that_is_faster_is_called_and_captured(record):
    """Twice: at once, and into the graph; by the algorithm that was measured to be the fastest."""
    tuned = record["libraries"]
    tune, *calls = tuned["notes"]
    assert tune == "tune: m0_bias takes candidate 7 of 8: 0.750 of the first's time, noise 0.0%"
    assert calls == [
        f"{name}: a call of cuBLASLt 13.2.3, algorithm 2 of its heuristic, 8388608 bytes of "
        "workspace"
        for name in ("m0_bias", "m1_bias")
    ]
    _, again, call = tuned["records"]
    assert count(again, ("product", "launch", "graph_launch")) == 0
    begin, end = verbs(call).index("begin_capture"), verbs(call).index("end_capture")
    products = ["product 1 algorithm 1"] * 2
    assert call[begin + 1 : end] == products
    assert [line for line in call[:begin] if line.startswith(("product", "launch"))] == products


def test_a_library_that_is_slower_is_not(record):
    slow = record["slow libraries"]
    (note,) = slow["notes"]
    assert re.match(r"tune: m0_bias takes candidate \d of 8: no other was faster", note)
    assert any("Registers<" in text for text in slow["kernels"])


def test_convolutions_of_a_library_are_captured_too(record):
    """By the engine that was measured to be the fastest, the second of those that may be had."""
    tune, *calls = [x for x in record["convolutions"]["notes"] if "streams" not in x]
    assert re.match(r"tune: conv2d_bias takes candidate 7 of 8: 0\.\d+ of the first's time", tune)
    assert "conv2d_bias: a call of cuDNN 9.28.1, algorithm 2 of its heuristic, 48 bytes of" in str(
        calls
    )
    call = record["convolutions"]["records"][1]
    begin, end = verbs(call).index("begin_capture"), verbs(call).index("end_capture")
    assert "convolution 1 engine 3" in call[:begin] and "convolution 1 engine 3" in call[begin:end]
    assert count(call, ("convolution",)) == 2


def test_a_library_that_is_not_installed_is_named(record):
    notes = record["libraries missing"]["notes"]
    assert notes[0] == (
        "tune: no library for matrix products is installed: pip install 'graphc[libraries]'"
    )
    assert "takes candidate 1 of 5" in notes[1]


def test_the_context_is_left_behind_every_measurement(record):
    assert record["depth"] == 0
