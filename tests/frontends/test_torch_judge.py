"""What benchmarks/torch_operators.py says of operators, with torchcts as its judge."""

from __future__ import annotations

import ast
from importlib.util import find_spec

import pytest

from tests.tools import need_module, run_python

need_module("torch")
if (
    find_spec("torchcts") is None
):  # which asks for an older PyTorch: installed without what it needs
    pytest.skip("torchcts is not installed", allow_module_level=True)

# In a process of its own, since torchcts declares marks that this suite does not have.
SCRIPT = """
import json
from benchmarks.torch_operators import check, table
from graphc import functions as f
from graphc.torch.aten.rules import _RULES

found = {}

def look(title, name):
    result = check(name, "float32", 2)
    found[title] = result["verdict"], result["samples"]
    return result

look("right", "abs")
look("partly", "linalg.lu_factor")
look("left", "bernoulli")
look("none", "bitwise_and")
_RULES["aten.abs.default"] = f.negative
wrong = look("wrong", "abs")
look("sign of nan", "sgn")
_RULES["aten.sign.default"] = f.sign  # NumPy's, which is NaN
look("nan", "sgn")
lines = [json.dumps({"name": "abs", "dtype": "float32", **wrong})]
print(found)
print(table(lines))
"""


def test_each_verdict_and_wrong_rules_are_found() -> None:
    environment = {"GRAPHC_DEVICE": "reference"}
    output = run_python("-W", "ignore", "-c", SCRIPT, environment=environment)
    first, *table = output.splitlines()
    found = ast.literal_eval(first)
    assert found["right"] == ("right", {"right": 3})
    assert found["partly"][0] == "partly"
    assert found["left"][0] == "not offered"
    assert found["none"] == ("no sample", {})
    assert found["wrong"] == ("wrong", {"wrong": 3})
    assert "wrong" not in found["sign of nan"][1]
    assert found["nan"][0] == "wrong" and found["nan"][1]["wrong"] == 1
    assert table[2:4] == [
        "| float32, operators | 0 | 0 | 0 | 0 | 1 | 0 | 0 |",
        "| float32, samples | 0 | 0 | 0 | 0 | 3 | 0 | 0 |",
    ]
    assert table[-1].startswith("abs float32: wrong ")
