"""Processes that are killed at any moment: runs with checkpoints go on with the same bits, and
others load programs from a cache that is half full."""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import graphc
from graphc import nn
from graphc.runtime.compilers import cache as cached_files
from tests.files.training import train, trainer
from tests.tools import ROOT, run_python

STEPS = 400
slow = pytest.mark.slow
RUN = f"""
import sys
import graphc
from tests.files.training import train, trainer
folder, audit = sys.argv[1], graphc.Audit(sys.argv[2])
step = trainer("averages")
found = graphc.load_checkpoint(folder, step)
first = 0 if found is None else found.step
print("ready", first, flush=True)
for number in range(first, {STEPS}):
    train(step, number, number + 1)
    audit(number, step)
    graphc.save_checkpoint(folder, number + 1, step, keep=2)
print("done", flush=True)
"""
LOAD = """
import sys, numpy as np, graphc
print("ready", flush=True)
print(graphc.load(sys.argv[1])(np.ones((3, 4), np.float32)).tobytes().hex())
"""


def start(code: str, *arguments: str, cache: Path) -> subprocess.Popen[str]:
    environment = {**os.environ, "GRAPHC_CACHE_DIR": str(cache), "GRAPHC_PLAN_CACHE": "1"}
    command = [sys.executable, "-c", code, *arguments]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=ROOT, env=environment, stdout=pipe, stderr=pipe, text=True)


@pytest.mark.parametrize("kills", [5, pytest.param(50, marks=slow)])
def test_a_killed_run_goes_on_with_the_bits_of_a_whole_one(kills: int, tmp_path: Path) -> None:
    draw, step = random.Random(kills), trainer("averages")
    audit = graphc.Audit(tmp_path / "audit")
    for number in range(STEPS):
        train(step, number, number + 1)
        audit(number, step)
    before, folder, went_on = (tmp_path / "audit").read_bytes(), tmp_path / "run", 0
    for _ in range(kills):
        with start(RUN, str(folder), str(tmp_path / "audit"), cache=tmp_path / "cache") as process:
            assert process.stdout is not None
            first = process.stdout.readline().split()
            try:
                process.wait(draw.uniform(0, 0.4))
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGKILL)
            said, errors = process.communicate()
        assert errors == ""
        assert first[0] == "ready"
        went_on += int(first[1]) > 0
        if "done" in said or int(first[1]) == STEPS:
            for path in folder.iterdir():
                path.unlink()
    assert went_on >= kills // 3
    assert (tmp_path / "audit").read_bytes() == before


def test_processes_load_with_one_empty_cache_while_some_are_killed(tmp_path: Path) -> None:
    draw, path, cache = random.Random(0), tmp_path / "program", tmp_path / "cache"
    model = nn.Sequential(
        nn.Linear(4, 8), nn.ReLU(), nn.LayerNorm(8), nn.Linear(8, 5), nn.Softmax(1)
    )
    program = graphc.compile(model, graphc.spec((3, 4)), device="cpu")
    program.save(path)
    expected = program(np.ones((3, 4), np.float32)).tobytes().hex()
    processes = [start(LOAD, str(path), cache=cache) for _ in range(8)]
    killed = processes[::3]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in killed:
        try:
            process.wait(draw.uniform(0, 1))
        except subprocess.TimeoutExpired:
            process.kill()
    said = [process.communicate() for process in processes]
    for process, (output, errors) in zip(processes, said, strict=True):
        if process.returncode != -signal.SIGKILL:
            assert (output.strip(), errors) == (expected, "")
    with start(LOAD, str(path), cache=cache) as last:
        assert last.communicate()[0].split() == ["ready", expected]


@pytest.mark.parametrize("rounds", [2, pytest.param(100, marks=slow)])
def test_processes_build_into_one_empty_cache_while_some_are_killed(
    rounds: int, tmp_path: Path
) -> None:
    built = tmp_path / "cache" / "cpu"
    built.mkdir(0o700, parents=True)
    with cached_files.open_folder("cpu") as folder:
        for kind in ("player-*", "prebuilt-*", "*.o"):
            for path in folder.glob(kind):
                shutil.copy2(path, built)
    environment = {"GRAPHC_CACHE_DIR": str(tmp_path / "cache"), "GRAPHC_PLAN_CACHE": "1"}
    words = ("-m", "tests.files.killed_builds", str(rounds), str(tmp_path / "cache"))
    said = run_python(*words, environment=environment).splitlines()[-1]
    found = re.fullmatch(
        rf"{rounds} rounds: (\d+) killed, (\d+) finished with the same bits, (\d+) .*", said
    )
    assert found and int(found[1]) + int(found[2]) == 8 * rounds
    assert int(found[1]) >= rounds and int(found[2]) >= 5 * rounds and int(found[3]) > rounds
