"""A replayed step costs the host some microseconds: by what it does, and beside a loop of calls."""

from __future__ import annotations

import pytest

from tests.cuda.records import recorded, verbs

CALLS = 74
"""Of functions, Python's and those of C, in a call of a program; 69 when this was written."""
LOOPS = 9.0
"""Times a loop of 100 calls of nothing; 4.9 to 6.0 when this was written, on two busy cores."""


def test_a_replayed_step_costs_the_host_some_microseconds(
    tmp_path_factory: pytest.TempPathFactory,
):
    """Of a network with 18 buffers of state; docs/gpu.md has microseconds."""
    found = recorded("host_time", tmp_path_factory.mktemp("driver"))
    assert verbs(found["driver"]) == [
        "copy_to_device",
        "graph_launch",
        "copy_to_host",
        "record",
        "event_synchronize",
    ]
    assert 20 < found["calls"] <= CALLS
    assert found["loops"]["run"] < found["loops"]["call"] < LOOPS, found["us"]
