"""The tool that changes the sources finds places, and tells what the tests say of a change."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tools import ROOT
from tools.mutants.__main__ import AREAS, Area, Mutant, changed, draw, tried
from tools.mutants.sites import PythonSites, Site, header_sites

PYTHON = '''"""A text with < in it."""
TABLE = 3


def f(a, b):
    """Another < one."""
    if a < b and not b:
        raise ValueError(f"{a} < {b}")
    return [min(x, 2) for x in a if x]
'''


def test_a_seed_draws_the_same_changes_of_all_areas() -> None:
    drawn = draw(ROOT, 1)
    assert drawn == draw(ROOT, 1)
    counts = {name: sum(m.area == name for m in drawn) for name in AREAS}
    assert counts == {name: area.count for name, area in AREAS.items()}
    assert all((ROOT / m.path).read_text().splitlines()[m.line - 1] for m in drawn)


def test_places_of_python_are_no_messages_and_no_tables() -> None:
    found = {(s.kind, changed(PYTHON.encode(), s).decode()) for s in PythonSites(PYTHON).sites}
    lines = {(kind, next(changed_lines(text))) for kind, text in found}
    assert lines == {
        ("compare", "    if a <= b and not b:"),
        ("and-or", "    if a < b or not b:"),
        ("sign", "    if a < b and (b):"),
        ("condition", "    if True:"),
        ("condition", "    if False:"),
        ("name", "    return [max(x, 2) for x in a if x]"),
        ("constant", "    return [min(x, 3) for x in a if x]"),
        ("filter", "    return [min(x, 2) for x in a if True]"),
    }


def changed_lines(text: str) -> Iterator[str]:
    before = PYTHON.splitlines()
    return (new for new, old in zip(text.splitlines(), before, strict=True) if new != old)


def test_places_of_a_header_are_code() -> None:
    text = "#if N < 4\n  for (int i = 0; i < n; ++i) {  // a < b\n    f(x);\n"
    found = [(s.kind, text[s.start : s.stop], s.new) for s in header_sites(text)]
    assert found == [("operator", "<", "<="), ("constant", "0", "1"), ("statement", "f(x);", ";")]


def test_a_change_is_tried_and_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "one.py").write_text("def one():\n    return 1\n")
    lines = "import sys", "sys.path.insert(0, {!r})", "import one"
    test = "\n".join((*lines, "def test_one():", "    assert one.one() {} 1\n"))
    area = Area(1, ("one.py",), (("tests/test_one.py",),))
    monkeypatch.setitem(AREAS, "one", area)
    mutant = Mutant("one", "one.py", 2, Site("constant", 22, 23, "2"), "1")
    for sign, said, only_near in ((">=", "survived", True), ("==", "killed: FAILED", False)):
        (tmp_path / "tests" / "test_one.py").write_text(test.format(str(tmp_path), sign))
        assert tried(tmp_path, mutant, only_near).startswith(said)
    assert (tmp_path / "one.py").read_text() == "def one():\n    return 1\n"
