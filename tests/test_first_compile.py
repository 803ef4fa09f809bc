"""What a first compile does: counts, as seconds depend on the machine."""

from __future__ import annotations

import json

import pytest

from tests.tools import run_python

PROGRAM = """
import cProfile, json, pstats, sys
from unittest.mock import patch

from benchmarks.run import compiled
from benchmarks.workloads import find
from graphc.kernels.lower import cpu_name, prebuilt
from graphc.ops.loops.scan import bodies
from tools.write_kernel_texts import CPUS, unbuilt

workload, target = find({name!r}), CPUS["avx512"]
data, before = workload.data(), set(sys.modules)
clock = cProfile.Profile()
with unbuilt(target):
    clock.enable()
    program = compiled(workload, data, "train", {{"device": "cpu", "streams": 1, "threads": 2}})
    for graph in (program.graph, *bodies(program.graph)):
        for node in graph.nodes:
            if node.op.name not in ("reshape", "scan"):
                prebuilt(node, program.plan.kernels[cpu_name(node)], target)
    clock.disable()
calls = {{}}
for (file, _, name), (_, count, *_) in pstats.Stats(clock).stats.items():
    place = file.rpartition("graphc/")[2]
    calls[place + ":" + name] = calls.get(place + ":" + name, 0) + count
new = sorted(set(sys.modules) - before)
print(json.dumps([sum(calls.values()), calls, new, list(sys.modules)]))
"""


def first_compile(name: str) -> tuple[int, dict[str, int], list[str], list[str]]:
    """The function calls of a first compile, descriptions of all kernels included, those of each
    function, the modules that it imported, and all modules."""
    output = run_python("-c", PROGRAM.format(name=name))
    calls, of_functions, new, known = json.loads(output.splitlines()[-1])
    return calls, of_functions, new, known


@pytest.mark.parametrize(
    ("name", "most", "tiles"),
    [
        ("mlp-small-b20", 370_000, 450),
        ("mnist-cnn-b100", 670_000, 2800),
        ("lstm-h64-b256", 1_440_000, 900),
    ],
)
def test_a_first_compile_makes_few_calls_and_imports_few_modules(
    name: str, most: int, tiles: int
) -> None:
    calls, of_functions, new, known = first_compile(name)
    assert calls < most  # a fifth above what it was on Python 3.11
    assert 0 < of_functions["kernels/cpu/contract/tile_cost.py:tile"] < tiles
    assert len([module for module in new if module.startswith("graphc.")]) < 185
    far = ["graphc.kernels.cuda", "graphc.runtime.sim", "graphc.report", "torch"]
    if not name.startswith("lstm"):  # loops ask for minimum cuts
        far.append("networkx")
    assert [module for module in known if module.startswith(tuple(far))] == []


def test_graphs_that_a_pass_leaves_alone_are_not_verified_again() -> None:
    _, of_functions, *_ = first_compile("mlp-small-b20")
    assert of_functions["ir/graph.py:verify"] < 15  # of 27 stages
