"""The wheel and the source distribution: one package, device code included, that works alone."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from graphc.base.config import INSTRUCTION_SETS
from graphc.runtime.compilers import shipped
from tests.tools import ROOT, first_quick, need_command, need_module
from tools.build_wheel import build_wheel

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


STEP = """
import numpy as np, graphc
from graphc import nn, optim
from graphc.runtime.compilers import player_library, prebuilt_library
graphc.seed(0)
model = nn.Sequential(nn.Linear(20, 30), nn.ReLU(), nn.Linear(30, 3))
specs = graphc.spec((7, 20)), graphc.spec((7,), "int32")
def loss(model, x, y):
    return graphc.cross_entropy(model(x), y)
step = graphc.compile(loss, model, *specs, update=optim.SGD(lr=0.1), device="cpu")
x = np.random.default_rng(0).standard_normal((7, 20)).astype(np.float32)
losses = [step(x, np.arange(7, dtype=np.int32) % 3).tobytes().hex() for _ in range(3)]
library = prebuilt_library.find_library()
print(player_library.player_library()._name, library and library.handle._name, *losses)
"""


def trained(site: Path, cache: Path, **variables: str) -> list[str]:
    """The paths of player and library, and three losses, by the package in `site`."""
    own = {"PYTHONPATH": str(site), "GRAPHC_CACHE_DIR": str(cache), "GRAPHC_TIER": "", **variables}
    result = subprocess.run(
        [sys.executable, "-c", STEP],
        cwd=cache.parent,
        env={**os.environ, **own},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout.split()


@pytest.mark.parametrize("isas", first_quick(1, [("sse2",), tuple(INSTRUCTION_SETS)]))
def test_a_wheel_with_objects_needs_no_compiler(isas: tuple[str, ...], tmp_path: Path) -> None:
    need_module("hatchling")
    need_command("g++", "clang++")
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        pytest.skip("such wheels are for Linux on x86-64")
    wheel = build_wheel(tmp_path / "dist", isas)
    tag = re.fullmatch(r"graphc-[\d.]+-py3-none-manylinux_2_(\d+)_x86_64\.whl", wheel.name)
    assert tag is not None and int(tag[1]) <= int(platform.libc_ver()[1].split(".")[1])
    site = tmp_path / "site"
    zipfile.ZipFile(wheel).extractall(site)
    objects = site / "graphc" / "runtime" / "shipped"
    assert sorted(path.name.rsplit("-", 1)[0] for path in objects.iterdir()) == sorted(
        ["player", *(f"prebuilt-{isa}" for isa in isas)]
    )
    losses = set()
    for isa in isas:
        player, library, *own = trained(
            site, tmp_path / isa, GRAPHC_ISA=isa, CXX="no-such-compiler"
        )
        assert Path(player).parent == Path(library).parent == objects
        assert Path(library).name.startswith(f"prebuilt-{isa}-")
        losses.add(tuple(own))
    _, _, *own = trained(ROOT, tmp_path / "checkout", GRAPHC_TIER="1")
    assert losses == {tuple(own)}


@pytest.mark.slow
def test_a_wheel_for_another_machine_has_its_objects(tmp_path: Path, monkeypatch) -> None:
    """Objects of ARM64, by a cross compiler; a Python of ARM64 gets its bits from them."""
    need_module("hatchling")
    need_module("ziglang")
    monkeypatch.delenv("CXX", raising=False)
    wheel = build_wheel(tmp_path / "dist", machine="aarch64")
    assert wheel.name.endswith("-py3-none-manylinux_2_17_aarch64.whl")
    site = tmp_path / "site"
    zipfile.ZipFile(wheel).extractall(site)
    paths = shipped.player("aarch64").path, shipped.prebuilt("neon", "aarch64").path
    for path in paths:
        header = (site / path.relative_to(ROOT)).read_bytes()[:20]
        assert header[:4] == b"\x7fELF" and int.from_bytes(header[18:20], "little") == 183


def test_a_wheel_of_other_sources_is_not_used(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(shipped, "SHIPPED", tmp_path)
    path = shipped.player().path
    path.touch()
    assert shipped.player_of_this_machine() == path
    monkeypatch.setattr(shipped, "LIBRARY_FLAGS", (*shipped.LIBRARY_FLAGS, "-g"))
    assert shipped.player_of_this_machine() is None
