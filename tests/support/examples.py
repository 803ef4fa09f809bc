"""Helpers of test_examples.py and of tests beside it."""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType

from tests.tools import ROOT, need_command

EXAMPLES = ROOT / "examples"


def load(name: str) -> ModuleType:
    """The example as a module."""
    need_command("g++", "clang++")
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
