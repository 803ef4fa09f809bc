"""`torch.compile(backend="graphc")` with tensors on a GPU, on a driver that records."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.cuda.records import DRIVERS, count, recorded
from tests.tools import need_module

WAITS = ("event_synchronize", "stream_synchronize", "context_synchronize")


@pytest.fixture(scope="module", params=DRIVERS)
def record(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    need_module("torch")
    return recorded("recording_torch", tmp_path_factory.mktemp("driver"), request.param)


def test_tensors_are_read_and_given_where_they_lie(record):
    lines = record["second"]
    assert count(lines, ("copy_to_device", "copy_to_host")) == 0
    assert count(lines, WAITS) == 0
    copies = [line for line in lines if line.startswith("copy ")]
    assert len(copies) == 3  # two arguments into the arena, all results out of it
    assert copies[:2] == ["copy 1 bytes 48", "copy 1 bytes 60"]
    assert record["results"] == [
        ["cuda:0", [4, 5], "torch.float32"],
        ["cuda:0", [], "torch.float32"],
    ]


def test_streams_wait_for_each_other(record):
    assert record["asked"] == [1, 1]  # PyTorch makes the program's stream wait for its own
    waits = [re.sub(r"event \d+", "event", line) for line in record["second"]]
    order = [line for line in waits if line.startswith(("record 1", "wait 55"))]
    assert order[-2:] == ["record 1 event", "wait 55 event"]


def test_the_allocator_of_pytorch_is_left_alone_and_so_is_memory_until_its_call_has_ended(record):
    """Of three calls two may not have ended: what they read is held, so that PyTorch gives it to
    nobody else."""
    seen = record["allocator"]
    assert count(seen["record"], ("mem_alloc", "mem_free", "host_alloc", *WAITS)) == 0
    assert seen["alive"] == [False, True, True]


def test_a_tensor_on_the_host_is_uploaded(record):
    assert count(record["on the host"], ("copy_to_device",)) == 1


def test_tensors_of_one_program_are_on_one_gpu(record):
    assert record["two"] == "expected tensors on one GPU, got them on [0, 1]"
