"""The expensive tests of which `make test` runs a part."""

from __future__ import annotations

import re

import pytest

from tests.quick import PREBUILT, QUICK, mark_slow, plays_prebuilt
from tests.tools import ROOT


def test_each_is_a_parametrized_test_that_there_is() -> None:
    for file, tests in QUICK.items():
        text = (ROOT / "tests" / file).read_text()
        for name in tests:
            assert re.search(rf"^def {name}\(", text, re.MULTILINE), f"{file}::{name}"


class Item:
    def __init__(self, nodeid: str) -> None:
        self.nodeid, self.slow = nodeid, False

    def get_closest_marker(self, name: str) -> bool | None:
        return self.slow or None

    def add_marker(self, mark: pytest.MarkDecorator) -> None:
        self.slow = mark.name == "slow"


@pytest.mark.parametrize(("count", "kept"), [(1, [0]), (2, [0, 6]), (3, [0, 3, 6])])
def test_the_first_the_last_and_those_between_are_kept(count, kept, monkeypatch) -> None:
    monkeypatch.setitem(QUICK, "a.py", {"test": count})
    items = [Item(f"tests/a.py::test[{i}]") for i in range(7)] + [Item("tests/a.py::other[0]")]
    mark_slow(items)
    assert [i for i, item in enumerate(items) if not item.slow] == [*kept, 7]


def test_folders_and_files_of_prebuilt_kernels_are_there() -> None:
    assert all((ROOT / "tests" / name).exists() for name in PREBUILT)
    assert plays_prebuilt(Item("tests/nn/test_a.py::test[0]"))
    assert not plays_prebuilt(Item("tests/kernels/nn/test_a.py::test"))
