"""The data-parallel examples learn the same on mpiexec, Ray and Dask as in one process."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import Any

import pytest

from tests.parallel.ranks import LIMIT, Ended, environment, over_mpi
from tests.support.examples import EXAMPLES
from tests.tools import need_module, run_python

EPOCHS = "2"


def losses(output: str) -> list[str]:
    found = re.findall(r"epoch +\d+/2  loss (\d\.\d{8})", output)
    return list(dict.fromkeys(found))


@pytest.fixture(scope="module")
def alone() -> list[str]:
    """The losses of one process."""
    need_module("sklearn")
    command = str(EXAMPLES / "data_parallel.py"), "--epochs", EPOCHS
    found = losses(run_python(*command, environment={"GRAPHC_NUM_THREADS": "1"}))
    assert len(found) == 2
    return found


def test_mpiexec_gives_the_bits_of_one_process(alone: list[str]) -> None:
    ended: Ended = over_mpi(2, str(EXAMPLES / "data_parallel.py"), "--epochs", EPOCHS)
    assert ended.code == 0, ended.err
    assert losses(ended.out) == alone
    assert re.search(r"^2 processes, test accuracy \d\d\.\d %$", ended.out, re.MULTILINE)


def test_dask_gives_the_bits_of_one_process(alone: list[str]) -> None:
    need_module("distributed")
    assert losses(run("data_parallel_dask")) == alone


def test_ray_gives_the_bits_of_one_process(alone: list[str]) -> None:
    need_module("ray")
    output = run("data_parallel_ray")
    assert losses(output) == alone
    assert re.search(r"^2 workers of Ray, test accuracy \d\d\.\d %$", output, re.MULTILINE)


def run(name: str) -> str:
    """The output of an example, whose packages may warn."""
    command = [sys.executable, str(EXAMPLES / f"{name}.py"), "--epochs", EPOCHS]
    options: dict[str, Any] = {"capture_output": True, "text": True, "timeout": LIMIT}
    ended = subprocess.run(command, env=environment(), **options)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_stages_give_the_bits_of_one_process() -> None:
    command = str(EXAMPLES / "pipeline_parallel.py"), "--steps", "20"
    said = r"step  20/20  loss (\d\.\d{8})"
    alone = re.findall(said, run_python(*command, environment={"GRAPHC_NUM_THREADS": "1"}))
    ended = over_mpi(2, *command)
    assert ended.code == 0, ended.err
    assert re.findall(said, ended.out) == alone != []
    assert "pipeline: F0 F1 B0 F2 B1 F3 B2 B3, at most 2 of 4 micro-batches" in ended.out
