"""Small graphs before and after each pass, as text: tests/golden/passes/PASS-what.txt.

A file is a graph, a line `->` and what the pass makes of it. The graph before is written by hand
(or copied from a dump); `pytest tests/passes/test_goldens.py --update-golden` writes the rest.
"""

from __future__ import annotations

import statistics
from pathlib import Path

import pytest

from graphc.base.target import Target
from graphc.ir import Graph, verify
from graphc.passes.pipeline import AFTER_GRADIENT, BEFORE_GRADIENT
from graphc.passes.rewriting.runner import Pass
from graphc.text import graph_text, parse
from tests.passes.meaning import CPU, assert_same_meaning

FOLDER = Path(__file__).parent.parent / "golden" / "passes"
PASSES: dict[str, Pass] = dict((*BEFORE_GRADIENT, *AFTER_GRADIENT))
AGAIN = {"store_or_recompute_traced", "hoist_gradient", "clean_hoisted"}
"""Passes that run a second time, by the names of that."""
GPU = {"channels_last", "fuse_columns", "fuse_rows", "fuse_products"}
"""Passes that do something on a GPU alone."""
ARROW = "->\n"


def apply(file: Path) -> tuple[Graph, Graph, str]:
    """The file's graph before, after the pass of its name, and the text of both."""
    before = parse(file.read_text().partition(ARROW)[0])
    verify(before)
    name = file.stem.partition("-")[0]
    after = PASSES[name](before, Target("cuda", lanes=1) if name in GPU else CPU)
    return before, after, f"{graph_text(before)}\n{ARROW}{graph_text(after)}"


@pytest.mark.parametrize("file", sorted(FOLDER.iterdir()), ids=lambda file: file.stem)
def test_a_pass_makes_what_its_golden_says_and_keeps_the_meaning(file: Path, golden) -> None:
    before, after, text = apply(file)
    golden(f"passes/{file.name}", text)
    assert_same_meaning(before, after, tolerance=1e-5)


def test_every_pass_has_a_golden_in_which_it_does_something() -> None:
    acts = set()
    for file in FOLDER.iterdir():
        before, after, _ = apply(file)
        if before != after:
            acts.add(file.stem.partition("-")[0])
    assert acts == set(PASSES) - AGAIN


def test_goldens_are_short() -> None:
    lengths = [
        part.count("\n") for file in FOLDER.iterdir() for part in file.read_text().split(ARROW)
    ]
    assert statistics.median(lengths) <= 10
