"""Every example in the docstrings of the public packages runs and prints what it says."""

from __future__ import annotations

import doctest
import importlib
import inspect
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType
from typing import Any

import numpy as np
import pytest

import graphc
from graphc import nn, optim
from tests.tools import need_module

PACKAGES = (
    "graphc",
    "graphc.data",
    "graphc.nn",
    "graphc.optim",
    "graphc.optim.schedules",
    "graphc.text",
    "graphc.training",
)
NAMES = {"graphc": graphc, "nn": nn, "np": np, "optim": optim}
"""What the examples take as imported."""
METHODS = (FunctionType, property, classmethod, staticmethod)
OPTIONS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS | doctest.IGNORE_EXCEPTION_DETAIL


def public(package: str) -> Iterator[tuple[str, Any]]:
    """(qualified name, object) of what a package exports and of the classes' public methods."""
    module = importlib.import_module(package)
    for name in module.__all__:
        found = getattr(module, name)
        if inspect.ismodule(found):
            continue
        yield f"{package}.{name}", found
        for attribute, value in vars(found).items() if inspect.isclass(found) else ():
            if not attribute.startswith("_") and isinstance(value, METHODS):
                yield f"{package}.{name}.{attribute}", value


def examples(package: str) -> dict[str, str]:
    """Qualified name -> docstring, of those that hold an example."""
    documented = ((name, inspect.getdoc(found) or "") for name, found in public(package))
    return {name: text for name, text in documented if ">>>" in text}


EXAMPLES = {name: text for package in PACKAGES for name, text in examples(package).items()}


@pytest.fixture
def reference(clean_environment: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Programs are computed by NumPy, files are written to a folder of the test's own, and the
    seed is reset."""
    clean_environment.setenv("GRAPHC_DEVICE", "reference")
    clean_environment.chdir(tmp_path)
    yield
    graphc.seed()


def run(name: str, text: str) -> None:
    test = doctest.DocTestParser().get_doctest(text, dict(NAMES), name, None, None)
    said: list[str] = []
    result = doctest.DocTestRunner(optionflags=OPTIONS).run(test, out=said.append)
    assert result.attempted and not result.failed, "".join(said)


@pytest.mark.usefixtures("reference")
@pytest.mark.parametrize("name", EXAMPLES)
def test_the_example_prints_what_it_says(name: str) -> None:
    run(name, EXAMPLES[name])


@pytest.mark.usefixtures("reference")
@pytest.mark.parametrize("package", ["onnx", "sklearn"])
def test_the_examples_of_a_front_end_print_what_they_say(package: str) -> None:
    need_module(package)
    found = examples(f"graphc.{package}")
    assert found
    for name, text in found.items():
        run(name, text)


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_object_has_a_docstring(package: str) -> None:
    assert [name for name, found in public(package) if not inspect.getdoc(found)] == []


def test_an_example_with_another_result_fails() -> None:
    with pytest.raises(AssertionError, match=r"Expected:\s+3\s+Got:\s+2"):
        run("wrong", ">>> 1 + 1\n3\n")


@pytest.mark.parametrize("package", ["graphc.nn", "graphc.optim"])
def test_every_module_and_optimizer_has_an_example(package: str) -> None:
    names = set(importlib.import_module(package).__all__) - {"schedules"}
    assert [name for name in names if f"{package}.{name}" not in EXAMPLES] == []
