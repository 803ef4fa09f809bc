"""The kit's comparison of copies with parameters of a graph's nodes, on a driver that records."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cuda.records import DRIVERS, count, recorded
from tools.gpu_check import binding


@pytest.mark.parametrize("by", DRIVERS)
def test_both_ways_read_the_array_in_every_step(by: str, tmp_path: Path):
    seen = recorded("recording_binding", tmp_path, by)
    lines = seen["record"]
    steps, sizes = 1 + 3, 2
    assert count(lines, ("copy",)) == steps * sizes
    assert lines.count("copy 1 bytes 4096") == steps
    given = [line.split() for line in lines if line.startswith("set_parameters")]
    assert len(given) == steps * sizes * binding.READERS
    assert [words[3] for words in given[:4]] == ["1", "2", "1", "2"]
    assert count(lines, ("graph_launch",)) == 2 * steps * sizes
    assert count(lines, ("graph_destroy",)) == sizes
    assert list(seen["found"]["sizes"]) == ["4096", "65536"]
    assert seen["there"] == [0, 1, 2, 2, 3]


@pytest.mark.parametrize(
    ("columns", "least"),
    [
        ([(5, 4), (5, 9), (5, 40)], 65536),
        ([(5, 4), (5, 6), (3, 40)], None),
        ([(9, 9), (9, 9), (9, 9)], 4096),
    ],
)
def test_the_size_from_which_parameters_are_cheaper(columns, least):
    """Of [host, device], 4 and 5 by parameters."""
    sizes = ("4096", "65536", "1048576")
    found = {
        size: {"copy": list(copy), "parameters": [4, 5]}
        for size, copy in zip(sizes, columns, strict=True)
    }
    assert binding.cheaper_from(found) == least


def test_the_simulated_driver_sets_no_parameters():
    assert binding.compared("sim") == {
        "missing": "cuda-bindings set the parameters of a graph's nodes"
    }
