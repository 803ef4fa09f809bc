"""The file of a report: whole, offline, and with what the program says inside."""

from __future__ import annotations

import base64
import json
import re
import zlib
from dataclasses import asdict
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphc.base.errors import GraphError
from graphc.cli import main
from graphc.report.data import program_data
from graphc.report.page import page
from graphc.report.summary import byte_text, figures, time_text
from tests.report.programs import training


class Links(HTMLParser):
    """What a page would load from elsewhere."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [f"{tag} {n}={v}" for n, v in attrs if n in ("src", "href", "srcset")]


def data_in(text: str) -> Any:
    packed = re.search(r'<script id="data"[^>]*>([^<]*)</script>', text)
    assert packed is not None
    return json.loads(zlib.decompress(base64.b64decode(packed[1])))


def test_a_page_holds_all_data_and_loads_nothing() -> None:
    data = program_data(training("lenet"))
    text = page([data])
    assert data_in(text) == json.loads(json.dumps({"programs": [asdict(data)]}))
    assert Links(text).found == ["a href=#view"]
    loads = r"@import|url\((?!#)|fetch\(|XMLHttpRequest|sourceMappingURL|\bimport\("
    assert re.findall(loads, re.sub(r"url\(#[^)]*\)", "", text)) == []
    assert len(text) < 300_000


def test_the_library_keeps_its_licence() -> None:
    text = page([program_data(training("mlp", "reference"))])
    assert "Copyright (c) 2012-2014 Chris Pettitt" in text
    assert "Permission is hereby granted, free of charge" in text


def test_names_of_the_user_are_text() -> None:
    program = training("mlp", "reference")
    data = program_data(program)
    name = "</script><b>&"
    marked = type(data)(
        **{**vars(data), "summary": type(data.summary)(**{**vars(data.summary), "name": name})}
    )
    text = page([marked])
    assert name not in text
    assert data_in(text)["programs"][0]["summary"]["name"] == name


def test_report_writes_the_file_and_measures(tmp_path: Path) -> None:
    program = training("lenet")
    before = program.state_dict()
    program.report(tmp_path / "model.html")
    data = data_in((tmp_path / "model.html").read_text())["programs"][0]
    assert data["summary"]["measured"] > 0
    assert all(kernel["measured"] > 0 for kernel in data["kernels"])
    assert {span["step"] for span in data["timeline"]} == set(range(len(data["steps"])))
    after = program.state_dict()
    assert all((before[name] == after[name]).all() for name in before)


def test_report_takes_the_arrays_of_a_call(tmp_path: Path) -> None:
    program = training("mlp")
    x, y = np.ones((20, 12), np.float32), np.zeros(20, np.int32)
    program.report(tmp_path / "model.html", x, y=y)
    assert data_in((tmp_path / "model.html").read_text())["programs"][0]["timeline"]
    with pytest.raises(GraphError, match="loss_fn: "):
        program.report(tmp_path / "model.html", x)


def test_report_without_measuring_is_the_same_each_time(tmp_path: Path) -> None:
    for name in ("a", "b"):
        training("lenet").report(tmp_path / name, measure=False)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_two_programs_stand_beside_each_other(tmp_path: Path) -> None:
    training("lenet").report(tmp_path / "a.html", versus=training("mlp"), measure=False)
    text = (tmp_path / "a.html").read_text()
    assert [p["summary"]["kernels"] for p in data_in(text)["programs"]] == [
        len(training("lenet").kernels),
        len(training("mlp").kernels),
    ]
    assert text.count('<dl class="strip">') == 2


def test_versus_is_a_program(tmp_path: Path) -> None:
    message = r"^report: versus expected a program, got int \(test_page\.py:\d+\)$"
    with pytest.raises(GraphError, match=message):
        training("mlp").report(tmp_path / "a.html", versus=3)  # type: ignore[arg-type]


def test_a_report_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "nowhere" / "a.html"
    message = f"cannot write the report to {path}: No such file or directory"
    with pytest.raises(GraphError, match=f"^{re.escape(message)}$"):
        training("mlp", "reference").report(path)


PROGRAM = """
import graphc
from graphc import nn

def linear():
    return graphc.compile(nn.Linear(4, 3), graphc.spec((2, 4)), device="reference")
"""


def test_the_command_line_writes_a_report(tmp_path: Path, capsys: Any, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "of_report.py").write_text(PROGRAM)
    place = "of_report.py:linear"
    assert main(["report", place, "--versus", place, "--output", "two.html"]) == 0
    size = (tmp_path / "two.html").stat().st_size
    assert capsys.readouterr().out == f"two.html: {size / 1e6:.2f} MB\n"
    assert len(data_in(Path("two.html").read_text())["programs"]) == 2
    assert main(["report", place, "--no-measure"]) == 0
    assert Path("Linear.html").exists()
    capsys.readouterr()
    assert main(["report", "nowhere.py:linear"]) == 1
    message = "graphc: report: expected FILE.py:NAME, got 'nowhere.py:linear': no such file\n"
    assert capsys.readouterr().err == message


def test_figures_have_three_digits_and_a_unit() -> None:
    assert [byte_text(n) for n in (0, 999, 1234, 56_789, 456_000_000, 999_999)] == [
        *("0 B", "999 B", "1.23 kB", "56.8 kB", "456 MB", "1.00 MB"),
    ]
    assert [time_text(t) for t in (0.5, 12.25, 3560, 1_500_000)] == [
        *("0.50 µs", "12.2 µs", "3.56 ms", "1.50 s"),
    ]


def test_the_strip_says_what_was_and_what_is() -> None:
    data = program_data(training("lenet"))
    named = {name: (before, after) for name, before, after, _ in figures(data.summary)}
    assert named["Kernels"] == (f"{data.summary.ops:,}", f"{data.summary.kernels:,}")
    assert named["Streams"] == ("", "1")
    assert named["Time a call"][1] == time_text(data.summary.predicted)
