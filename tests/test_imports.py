"""What `import graphc` costs and needs."""

from __future__ import annotations

import ast
import functools
from pathlib import Path

import networkx
import numpy

from tests.tools import ROOT, run_python

ROOMS = (
    ("base",),
    ("files",),
    ("parallel",),
    ("ir",),
    ("data",),
    ("ops",),
    ("text",),
    ("trace",),
    ("functions.array",),
    ("functions.network",),
    ("functions",),
    ("fft",),
    ("gradients",),
    ("linalg",),
    ("nn", "optim"),
    ("meaning",),
    ("passes.rewriting",),
    ("passes.simplify",),
    ("passes.loops",),
    ("passes.fuse",),
    ("passes.layout",),
    ("passes",),
    ("kernels.program",),
    ("kernels.loops",),
    ("kernels.cpu", "kernels.cuda", "kernels.c"),
    ("kernels.prebuilt",),
    ("kernels",),
    ("runtime.plan",),
    ("runtime.proof",),
    ("runtime",),
    ("inspect",),
    ("report",),
    ("program",),
    ("training",),
    ("export",),
    ("torch.aten", "onnx.dtypes"),
    ("onnx.operators", "onnx.writers"),
    ("torch", "onnx", "sklearn"),
    ("pytorch",),
    ("cli",),
)
"""What imports nothing above it, from the ground up: an import, also one inside a function or for
types alone, goes to the same line or to one before it. A folder's parts are meant by its name
unless they have a line of their own."""
LAZY = {
    "cli": "a subcommand imports what it needs",
    "program.inspection": "looking at a program is not part of compiling one",
    "program.program": "looking at a program is not part of compiling one",
    "pytorch": "PyTorch is an optional package",
    "program.compiler": "passes are imported by the first compile",
    "program.making": "passes are imported by the first compile",
    "program.saved_program": "plans are part of the runtime",
    "program.saved_parts": "the runtime likewise",
    "program.binaries": "the runtime likewise",
    "program.options": "passes likewise",
    "program.sizes": "looking at a program is not part of compiling one",
    "program.loading": "lowering and devices likewise",
    "program.planning": "likewise",
    "program.plan_cache": "the runtime likewise",
    "program.program_files": "looking at a program is not part of compiling one",
    "parallel.options": "most programs have one process",
    "parallel.pipeline": "most programs have one process",
    "runtime.cpu.executable": "most programs have one process",
    "export": "exporting is not part of compiling",
    "kernels.lower": "a device's printer is imported when a kernel is lowered for it",
    "runtime.cuda.device": "PyCUDA and the simulator are imported where they are used",
    "ir.graph": "notebooks alone want HTML",
    "runtime.plan.plan": "notebooks alone want HTML",
}
"""Modules and folders that import inside functions, and why."""


def test_import_takes_less_than_300_milliseconds(tmp_path):
    # The thread's own time: that of the clock also counts what else the machine does. But a core
    # that others share is slower by itself, and then so is NumPy's import, half of the whole. Byte
    # code is kept from the first import on, as an installation has it, whatever the environment.
    kept = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(tmp_path)}

    def seconds(module: str) -> float:
        clock = "time.thread_time()"
        program = f"import time; t = {clock}; import {module}; print({clock} - t)"
        return float(run_python("-c", program, environment=kept))

    times = [(seconds("graphc"), seconds("numpy")) for _ in range(5)]
    own, numpys = (min(column) for column in zip(*times, strict=True))
    assert own < max(0.3, 3 * numpys)


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
from graphc.base.target import Target

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
    wrong = [
        f"{module} imports {name}"
        for module, name, _ in imports()
        if level(name) > level(module) and not name == module.rpartition(".")[0]
    ]
    assert wrong == []


def test_no_two_files_import_each_other():
    arrows = networkx.DiGraph((module, name) for module, name, _ in imports() if module != name)
    circles = networkx.strongly_connected_components(arrows)
    assert [sorted(circle) for circle in circles if len(circle) > 1] == []


def test_imports_inside_functions_are_few_and_have_reasons():
    inside = {module for module, _, nested in imports() if nested}
    assert {m for m in inside if not reason(m)} == set()
    assert {m for m in LAZY if not any(reason(i) == LAZY[m] for i in inside)} == set()


def test_printers_of_devices_are_asked_through_lowering_alone():
    printers = ("kernels.cpu", "kernels.cuda")
    inside = ("kernels.cpu", "kernels.cuda", "kernels.prebuilt", "kernels.lower")
    assert [
        f"{m} imports {n}"
        for m, n, _ in imports()
        if n.startswith(printers) and not m.startswith(inside)
    ] == []


def level(module: str) -> int:
    """The line of `ROOMS` that names the module or the nearest folder around it."""
    while module:
        for number, names in enumerate(ROOMS):
            if module in names:
                return number
        module = module.rpartition(".")[0]
    return 0


def reason(module: str) -> str:
    while module and module not in LAZY:
        module = module.rpartition(".")[0]
    return LAZY.get(module, "")


@functools.cache
def imports():
    """(module, what it imports, whether inside a function) for all three trees, names of
    `graphc.` without that."""
    found = []
    trees = (("graphc", ""), ("kernels", "kernels."), ("runtime", "runtime."))
    modules = {}
    for folder, prefix in trees:
        for path in sorted((ROOT / folder).rglob("*.py")):
            parts = path.relative_to(ROOT / folder).with_suffix("").parts
            if folder == "graphc" and parts[0] in ("kernels", "runtime"):
                continue
            parts = parts[:-1] if parts[-1] == "__init__" else parts
            modules[(prefix + ".".join(parts)).rstrip(".")] = path
    for module, path in modules.items():
        if not module:
            continue
        tree = ast.parse(path.read_text())
        nested = {
            id(node)
            for function in ast.walk(tree)
            if isinstance(function, ast.FunctionDef)
            for node in ast.walk(function)
        }
        for node in ast.walk(tree):
            for name in imported(node):
                base = name if name in modules else name.rpartition(".")[0]
                if base in modules and base:
                    found.append((module, base, id(node) in nested))
    return found


def imported(node: ast.AST) -> list[str]:
    """What an import statement of graphc's modules names."""
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom) and node.module:
        names = [f"{node.module}.{alias.name}" for alias in node.names]
    else:
        return []
    return [name.removeprefix("graphc.") for name in names if name.startswith("graphc.")]
