"""docs/contributing.md: its example of an op works, its lists of files are whole."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
from pathlib import Path

from tests.tools import ROOT, need_command, run_python

PAGE = (ROOT / "docs" / "contributing.md").read_text()
TREES = ("graphc", "kernels", "runtime")
DEVICES = {"cpu", "cuda", "sim", "reference"}
PARTS_OF_DEVICES = (
    "kernels/cpu/",
    "kernels/cuda/",
    "runtime/cpu/",
    "runtime/cuda/",
    "runtime/sim/",
)
COMPILERS = (
    "background_builds",
    "player_library",
    "prebuilt_library",
    "shared_objects",
    "shipped",
    "translation_units",
)
PARTS_OF_THE_CPU = ("graphc/export/", *(f"runtime/compilers/{name}.py" for name in COMPILERS))
"""Programs of the CPU as files, and its compiler's side, which the simulator uses too."""
TORCHS = re.compile(r"graphc/(nn|functions|torch)/")
"""Names of PyTorch's that are taken for ours."""

CHECK = """
import numpy as np
import graphc
from graphc.ops.pointwise.elementary import Cbrt
from tests.ops import test_axes, test_samples, test_sweep
from tests.ops.samples import SAMPLES

ours = [sample for sample in SAMPLES if sample.op.name == "cbrt"]
assert len(ours) > 10 and graphc.__file__.startswith(FOLDER), graphc.__file__
test_samples.test_every_op_has_a_sample()
for sample in ours:
    test_samples.test_the_reference_has_the_inferred_types_at_any_float_width.check(sample)
    wide = sample.with_floats("f64")
    test_samples.test_the_gradient_equals_central_differences.check(wide)
for device in (test_sweep.on_cpu, test_sweep.on_checked_sim):
    assert test_sweep.differences(device, ours) == []

sizes = np.exp2(np.random.default_rng(0).uniform(-120, 120, 20000))
x = np.concatenate([sizes, -sizes, [-27, 8]]).astype(np.float32)
y = graphc.compile(graphc.cbrt, graphc.spec(x.shape), device="cpu")(x)
exact = np.cbrt(x.astype(np.float64))
units = np.abs(y - exact) / np.spacing(np.abs(exact).astype(np.float32))
assert units[-2:].max() < 4 < units.max() < Cbrt.units
"""


def test_the_example_adds_an_op_in_three_files(tmp_path: Path) -> None:
    need_command("g++", "clang++")
    changes = re.findall(r"^```diff\n(.*?)^```$", PAGE, re.M | re.S)
    assert len({re.findall(r"^\+\+\+ b/(.*)$", change, re.M)[0] for change in changes}) == 3
    for folder in (*TREES, "tests", "tools"):
        shutil.copytree(ROOT / folder, tmp_path / folder, symlinks=True)
    subprocess.run(
        [need_command("git"), "apply", "-"],
        input="".join(changes), cwd=tmp_path, check=True, text=True,
    )  # fmt: skip
    check = f"FOLDER = {str(tmp_path)!r}{CHECK}"
    run_python("-c", check, environment={"PYTHONPATH": str(tmp_path)}, folder=tmp_path)
    page = "from tools.write_ops_page import page; print(page())"
    written = run_python("-c", page, environment={"PYTHONPATH": str(tmp_path)}, folder=tmp_path)
    assert "| `cbrt` | y = the cube root of a" in written and "| `cbrt(x)` |" in written


def test_a_device_is_named_in_the_places_that_are_listed_and_nowhere_else() -> None:
    section = PAGE.partition("## A device")[2]
    listed = re.findall(r"^\d\. `(.*?)`:", section, re.M)
    assert len(listed) <= 6
    assert {path for path in modules() if names_devices(ROOT / path)} == set(listed)


def test_every_file_that_is_named_exists() -> None:
    paths = [name for name in re.findall(r"`(\w+/[\w./]*)`", PAGE) if "NAME" not in name]
    assert len(paths) > 15
    assert [path for path in paths if not (ROOT / path).exists()] == []


def modules() -> list[str]:
    """Modules outside of devices."""
    own = (*PARTS_OF_DEVICES, *PARTS_OF_THE_CPU, "runtime/reference.py")
    links = ("graphc/kernels/", "graphc/runtime/")
    paths = [str(path.relative_to(ROOT)) for tree in TREES for path in (ROOT / tree).rglob("*.py")]
    return [p for p in paths if not p.startswith((*own, *links)) and not TORCHS.match(p)]


def names_devices(path: Path) -> bool:
    """Whether a string of the code is a device's name; defaults of arguments, which a caller
    gives, do not count."""
    tree = ast.parse(path.read_text())
    functions = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)]
    defaults = {
        id(node) for f in functions for default in f.args.defaults for node in ast.walk(default)
    }
    return any(
        isinstance(n, ast.Constant) and n.value in DEVICES and id(n) not in defaults
        for n in ast.walk(tree)
    )
