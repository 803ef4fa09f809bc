"""What notebooks and print() show of models, programs, graphs, plans and profiles."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any

import numpy as np

import graphc
from graphc import nn
from graphc.inspect.profile import Profile, ProfileRow
from tests.tools import need_command


class Reader(HTMLParser):
    """The words of a page, by the tag that they stand in, and that every tag is closed."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.words: dict[str, list[str]] = {}
        self.feed(page)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.setdefault(self.open[-1], []).append(data)


class Net(nn.Module):
    def __init__(self) -> None:
        self.conv, self.norm = nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2)
        self.same = self.conv

    def forward(self, x: Any) -> Any:
        return graphc.relu(self.norm(self.conv(x)))


def program(device: str = "reference") -> graphc.Program:
    return graphc.compile(Net(), graphc.spec((1, 1, 5, 5)), device=device)


SUMMARY = """\
Net: 29 elements, 24 of them trainable, 120 bytes
path  module       parameters                                                                       elements
      Net                                                                                                  0
conv  Conv2d       weight f32[2,1,3,3], bias f32[2]                                                       20
norm  BatchNorm2d  weight f32[2], bias f32[2], (running_mean f32[2]), (running_var f32[2]), (num_batches_tracked i64[])         9\
"""  # noqa: E501


def test_a_summary_lists_modules_with_their_parameters() -> None:
    lines = [line.split() for line in str(Net().summary()).splitlines()]
    assert lines == [line.split() for line in SUMMARY.splitlines()]


def test_a_summary_counts_shared_parameters_once() -> None:
    model = Net()
    model.norm.weight = model.conv.bias
    summary = model.summary()
    assert [row.elements for row in summary.rows] == [0, 20, 7]
    assert (summary.elements, summary.trainable) == (27, 22)
    model.norm.bias = model.norm.weight = nn.Parameter(np.ones(2))
    assert [row.elements for row in model.summary().rows] == [0, 20, 7]


def test_columns_of_a_summary_begin_below_each_other() -> None:
    lines = str(Net().summary()).splitlines()[1:]
    start = lines[0].index("parameters")
    assert [line[start - 2 : start] for line in lines] == ["  "] * 4
    assert len({len(line) for line in lines}) == 1


def test_a_summary_is_a_table_in_notebooks() -> None:
    page = Reader(Net().summary()._repr_html_())
    assert page.words["caption"] == ["Net: 29 elements, 24 of them trainable, 120 bytes"]
    assert page.words["td"][-4:] == ["norm", *page.words["td"][-3:-1], "9"]


def test_a_graph_is_shown_as_its_text() -> None:
    graph = program().stages["trace"]
    page = Reader(graph._repr_html_())
    assert page.words["pre"] == [str(graph)]
    assert page.words["summary"] == [
        f"graph Net: 1 inputs, 6 pieces of state, {len(graph.nodes)} nodes"
    ]


def test_a_program_and_its_plan_are_shown() -> None:
    need_command("g++", "clang++")
    compiled = program("cpu")
    assert compiled.plan is not None
    page = Reader(compiled._repr_html_())
    assert page.words["div"] == [
        *("Kernels", "Launches a call", "Bytes moved a call"),
        *("Peak of work memory", "Streams", "Time a call"),
    ]
    kernels = str(len(compiled.kernels))
    assert [w.rpartition("→ ")[2] for w in page.words["b"][:2]] == [kernels, kernels]
    assert page.words["b"][3:5] == [f"{compiled.plan.peak_bytes} B", "1"]
    assert page.words["pre"][0] == "x : f32[1,1,5,5]"
    assert page.words["pre"][2:] == [str(compiled.graph), str(compiled.plan)]
    assert page.words["summary"][0] == repr(compiled)
    assert Reader(compiled.plan._repr_html_()).words["summary"] == [
        f"plan Net: {len(compiled.plan.steps)} launches on 1 stream(s), "
        f"peak {compiled.plan.peak_bytes} bytes of work memory"
    ]


def test_a_program_of_the_reference_has_no_plan_to_show() -> None:
    page = Reader(program()._repr_html_())
    assert [s.split()[0] for s in page.words["summary"]] == ["Program(Net,", "state", "graph"]


def test_a_profile_is_a_table_in_notebooks() -> None:
    rows = (
        ProfileRow("a<b>", "f.py:1", 2, 3000.0, 10**6, 10**6),
        ProfileRow("c", "", 2, 1e3, 0, 0),
    )
    page = Reader(Profile("p", 2, rows)._repr_html_())
    assert page.words["caption"] == ["profile p: 2.000 ms in kernels"]
    assert page.words["td"] == [
        *("a<b>", "f.py:1", "2", "3.0", "75.0", "1,500.0", "0.0", "0.0", "1.0", "0.7", "0.7", "0"),
        *("c", "2", "1.0", "25.0", "500.0", "0.0", "0.0", "0.0", "0.0", "0.0", "0"),
    ]
    measured = program().profile(np.zeros((1, 1, 5, 5), np.float32), repeats=1)
    assert len(Reader(measured._repr_html_()).words["td"]) > 9
