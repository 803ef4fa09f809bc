"""What a check of a GPU installs from the wheels that were brought along."""

from __future__ import annotations

import os
import sys
from typing import Any

import pytest

from tools.gpu_check import machine
from tools.gpu_check.process import Done


@pytest.mark.parametrize(("compiler", "wheel", "asked"), [
    (True, True, False), (False, True, True), (False, False, False),
])  # fmt: skip
def test_the_large_wheel_is_installed_only_where_it_is_needed(
    tmp_path, monkeypatch, compiler: bool, wheel: bool, asked: bool
):
    commands: list[list[str]] = []

    def python(arguments: Any, seconds: float) -> Done:
        commands.append(list(arguments))
        return Done(0, "", "", 1.0)

    monkeypatch.setattr(machine, "python", python)
    monkeypatch.setattr(machine, "version", lambda name: machine.MISSING)
    monkeypatch.setattr(machine, "has_compiler", lambda: compiler)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("PYTHONPATH", "/before")
    if wheel:
        (tmp_path / "nvidia_cuda_nvrtc-13.0.88-py3-none-any.whl").touch()
    assert machine.install_missing(tmp_path, tmp_path / "to") == ""
    assert ("nvidia-cuda-nvrtc" in commands[0]) is asked
    assert os.environ["PYTHONPATH"] == f"{tmp_path / 'to'}{os.pathsep}/before"


@pytest.mark.parametrize("there", [True, False])
def test_without_a_wheel_of_pycuda_cuda_bindings_do(tmp_path, monkeypatch, there: bool):
    commands: list[list[str]] = []

    def python(arguments: Any, seconds: float) -> Done:
        commands.append(list(arguments))
        return Done(0, "", "", 1.0)

    monkeypatch.setattr(machine, "python", python)
    monkeypatch.setattr(machine, "version", lambda name: machine.MISSING)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("PYTHONPATH", "")
    if there:
        (tmp_path / "pycuda-2026.1-cp311-cp311-linux_x86_64.whl").touch()
    assert machine.install_missing(tmp_path, tmp_path / "to") == ""
    assert ("pycuda" in commands[0]) is there
    assert "cuda-bindings" in commands[0]


def test_wheels_that_cannot_be_installed_are_a_failure_with_its_text(tmp_path, monkeypatch):
    monkeypatch.setattr(machine, "version", lambda name: machine.MISSING)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("PYTHONPATH", "")
    failure = machine.install_missing(tmp_path, tmp_path / "to")
    assert "No matching distribution found for numpy" in failure
