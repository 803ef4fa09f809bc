"""What passes and lowering may know of a machine, and from where."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from graphc.base.config import read
from graphc.base.target import KINDS, Target, kind_of
from tests.tools import ROOT

ASKING = ("graphc/passes", "kernels/program", "kernels/cpu", "kernels/cuda")
"""Where nothing depends on the name of a device."""


def device_tests(path: Path) -> list[str]:
    """The comparisons, matches and look-ups in a module that hold the name of a device."""
    asking = ast.Compare | ast.MatchValue | ast.Subscript | ast.Dict
    return [
        f"{path.name}:{part.lineno} {part.value}"
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, asking)
        for part in ast.walk(node)
        if isinstance(part, ast.Constant) and part.value in KINDS
    ]


@pytest.mark.parametrize("folder", ASKING)
def test_no_pass_and_no_template_asks_for_the_name_of_a_device(folder: str) -> None:
    paths = sorted((ROOT / folder).rglob("*.py"))
    assert paths
    assert [found for path in paths for found in device_tests(path)] == []


@pytest.mark.parametrize(
    "text",
    [
        'target.device == "cpu"',
        'target.device in ("cuda", "sim")',
        'not "cpu" != target.device',
        '{"cuda": 1}[target.device]',
        'match target.device:\n    case "sim":\n        pass',
    ],
)
def test_asking_for_the_name_of_a_device_would_be_found(text: str, tmp_path: Path) -> None:
    path = tmp_path / "asking.py"
    path.write_text(text)
    assert device_tests(path)


@pytest.mark.parametrize("device", KINDS)
def test_every_device_that_may_be_configured_has_a_kind(device: str) -> None:
    assert read(device=device).device == device
    assert Target(device).kind is kind_of(device) is KINDS[device]


def test_only_vectors_make_lanes() -> None:
    assert Target("cpu", 16).has_lanes and Target("cpu", 4).has_lanes
    assert not Target("cpu", 1).has_lanes
    assert not any(Target(device, 16).has_lanes for device in ("cuda", "sim", "reference"))
    assert not Target("cuda", 16).fills_lanes(16)


def test_the_number_of_a_device_does_not_matter() -> None:
    assert kind_of("cuda:1") is kind_of("cuda")


def constants(path: Path) -> dict[str, tuple[object, bool]]:
    """The figures that a module names in capitals: name -> value, and whether a docstring
    follows."""
    body = ast.parse(path.read_text()).body
    found = {}
    for node, behind in zip(body, [*body[1:], ast.Pass()], strict=True):
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]).strip("_").isupper():
            parts = list(ast.walk(node.value))
            numbers = [p.value for p in parts if isinstance(p, ast.Constant)]
            if any(isinstance(n, int | float) for n in numbers):
                told = isinstance(behind, ast.Expr) and isinstance(behind.value, ast.Constant)
                found[ast.unparse(node.targets[0])] = ast.unparse(node.value), told
    return found


FIGURES = {
    path.relative_to(ROOT).as_posix(): constants(path)
    for folder in (*ASKING, "runtime/planner")
    for path in sorted((ROOT / folder).rglob("*.py"))
}


def test_every_figure_says_what_it_is_of() -> None:
    assert sum(map(len, FIGURES.values())) > 40
    silent = [
        f"{p} {n}" for p, found in FIGURES.items() for n, (_, told) in found.items() if not told
    ]
    assert silent == []


def test_no_figure_has_two_homes() -> None:
    homes: dict[tuple[str, object], list[str]] = {}
    for path, found in FIGURES.items():
        for name, (value, _) in found.items():
            homes.setdefault((name, value), []).append(path)
    assert {key: paths for key, paths in homes.items() if len(paths) > 1} == {}
