"""The wheel and the source distribution: one package, device code included, that works alone."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.tools import ROOT, need_module

DATA = (".h", ".cuh", ".cpp", ".js", ".css", ".html", "LICENSE")
"""Ends of the names of files that are no Python: device code, and the parts of a report's page."""


@pytest.fixture(scope="module")
def distributions(tmp_path_factory) -> Path:
    """A folder with the wheel and the source distribution."""
    need_module("hatchling")
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-d", str(folder)],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    return folder


def sources(root: Path) -> set[str]:
    """Every file that belongs to the package, by its place in it."""
    found = set()
    for folder, top in (("graphc", ""), ("kernels", "kernels/"), ("runtime", "runtime/")):
        for path in (root / folder).rglob("*"):
            if path.name.endswith((".py", *DATA)):
                found.add(f"graphc/{top}{path.relative_to(root / folder)}")
    return found


def test_the_wheel_holds_one_package_with_every_source_file(distributions):
    (wheel,) = distributions.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {name.split("/")[0] for name in names if ".dist-info" not in name} == {"graphc"}
    packed = {name for name in names if name.endswith((".py", *DATA)) and ".dist-info" not in name}
    assert packed == sources(ROOT)
    assert any(name.startswith("graphc/kernels/cpu/") for name in packed)
    assert "graphc/report/page/dagre/LICENSE" in packed
    assert any(name.startswith("graphc/runtime/cpu/native/") for name in packed)


def test_the_source_distribution_builds_the_same_wheel(distributions, tmp_path):
    (archive,) = distributions.glob("*.tar.gz")
    with tarfile.open(archive) as members:
        members.extractall(tmp_path, filter="data")
    (root,) = tmp_path.iterdir()
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)],
        cwd=root,
        check=True,
        capture_output=True,
    )
    (direct,), (indirect,) = distributions.glob("*.whl"), tmp_path.glob("*.whl")
    assert contents(direct) == contents(indirect)
    assert (root / "LICENSE").exists()
    assert (root / "tests" / "test_package.py").exists()


def contents(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_an_installed_wheel_compiles_and_runs_outside_the_checkout(distributions, tmp_path):
    (wheel,) = distributions.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(tmp_path / "site")
    program = """
import numpy as np, graphc
from graphc import nn
model = nn.Linear(4, 3)
run = graphc.compile(model, graphc.spec((2, 4)), device="reference")
x = np.ones((2, 4), np.float32)
parameters = model.state_dict()
assert np.allclose(run(x), x @ parameters["weight"].T + parameters["bias"])
print(graphc.__file__)
"""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    result = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={**environment, "PYTHONPATH": str(tmp_path / "site")},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip() == str(tmp_path / "site" / "graphc" / "__init__.py")
