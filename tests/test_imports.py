"""What `import graphc` costs and needs."""

from __future__ import annotations

import re
from pathlib import Path

import numpy

from tests.tools import ROOT, run_python

LAYERS = (
    ("errors", "config", "html", "locks", "messages", "lines"),
    ("dtypes", "dlpack", "ir", "target", "tree", "state", "arguments", "failures"),
    ("ops", "text", "text_parser", "text_literal", "interpret"),
    ("trace", "bounds", "operand", "functions", "vocabulary"),
    ("gradient", "scan_gradient", "cost", "nn", "optim", "weights", "tracing"),
    ("passes",),
    ("kernels",),
    ("runtime",),
    ("compiled", "program"),
    ("inspect", "cli"),
)
"""Imports at the top of a module go to its own layer or one above it in this list."""


def test_import_takes_less_than_300_milliseconds():
    # The thread's own time: that of the clock also counts what else the machine does.
    program = "import time; t = time.thread_time(); import graphc; print(time.thread_time() - t)"
    seconds = [float(run_python("-c", program)) for _ in range(5)]
    assert min(seconds) < 0.3


def test_import_needs_only_numpy_and_networkx():
    # -S keeps out what the start-up files of installed packages import by themselves.
    packages = str(Path(numpy.__file__).parent.parent)
    program = f"""
import sys
sys.path.append({packages!r})
import graphc
names = {{name.partition(".")[0] for name in sys.modules}} - sys.stdlib_module_names
print(*sorted(name for name in names if not name.startswith("_")))
"""
    assert set(run_python("-S", "-c", program).split()) <= {"graphc", "networkx", "numpy"}


def test_tracing_planning_and_printing_need_no_compiler(tmp_path):
    program = """
import graphc
from graphc import nn, optim
from graphc.program import make_plan_of
from graphc.target import Target

def loss_fn(model, x, y):
    return graphc.cross_entropy(model(x), y)

specs = graphc.spec((8, 6)), graphc.spec((8,), "int32")
step = graphc.compile(
    loss_fn, nn.Linear(6, 3), *specs, update=optim.SGD(lr=0.1), device="reference"
)
plan = make_plan_of(step.graph, Target("cpu", lanes=16), streams=1)
assert all("extern" in kernel.source for kernel in plan.kernels.values())
print(plan)
"""
    output = run_python("-c", program, environment={"PATH": str(tmp_path), "CXX": ""})
    assert output.startswith("plan loss_fn")


def test_imports_point_one_way():
    level = {name: i for i, names in enumerate(LAYERS) for name in names}
    wrong = []
    for folder, prefix in (("graphc", ""), ("kernels", "kernels."), ("runtime", "runtime.")):
        for path in sorted((ROOT / folder).rglob("*.py")):
            if path.is_relative_to(ROOT / "graphc" / "kernels"):
                continue
            if path.is_relative_to(ROOT / "graphc" / "runtime"):
                continue
            module = prefix + ".".join(path.relative_to(ROOT / folder).with_suffix("").parts)
            own = module.split(".")[0]
            if own == "__init__":
                continue
            for line in path.read_text().splitlines():
                match = re.match(r"(?:from|import) graphc\.(\w+)", line)
                if match and level[match[1]] > level[own]:
                    wrong.append(f"{module} imports graphc.{match[1]}")
    assert wrong == []
