"""The suite where packages that graphc can do without are not installed."""

from __future__ import annotations

import re

from tests.tools import run_python

WITHOUT = """
import sys

absent = {"torch", "onnx", "onnxruntime", "ml_dtypes", "safetensors"}

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in absent:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
import graphc
import pytest
status = pytest.main(["-q", "-rs", "-p", "no:cacheprovider", "tests/frontends", "tests/torch"])
assert not absent & set(sys.modules)
sys.exit(status)
"""


def test_the_tests_of_front_ends_skip_without_pytorch_and_onnx() -> None:
    output = run_python("-c", WITHOUT, environment={"CI": ""})
    reasons = re.findall(r"^SKIPPED \[\d+\] tests/\S+: (.*)$", output, re.MULTILINE)
    assert {reason.partition(":")[0] for reason in reasons} == {
        "torch is not installed",
        "onnx is not installed",
    }
    assert not re.search(r"\d+ (failed|error)", output)
