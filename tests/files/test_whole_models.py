"""Whole models and random programs, saved and loaded: the same bits, forwards and in training."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import graphc
from graphc import optim
from tests.random_programs import RandomProgram
from tests.small_models import MODELS, loss_fn


@pytest.mark.parametrize("name", MODELS)
def test_models_train_on_from_a_file(name: str, tmp_path: Path) -> None:
    make, shape = MODELS[name]
    graphc.seed(0)
    specs = graphc.spec(shape), graphc.spec(shape[:1], "int32")
    step = graphc.compile(loss_fn, make(), *specs, update=optim.Adam(lr=0.01), device="cpu")
    draw = np.random.default_rng(0)
    x = draw.standard_normal(shape).astype(np.float32)
    y = draw.integers(0, 10, shape[0], dtype=np.int32)
    step(x, y)
    step.save(tmp_path / "step")
    again = graphc.load(tmp_path / "step")
    for _ in range(2):
        assert again(x, y).tobytes() == step(x, y).tobytes()
    ours, theirs = again.state_dict(), step.state_dict()
    assert {n: a.tobytes() for n, a in ours.items()} == {n: a.tobytes() for n, a in theirs.items()}


@pytest.mark.parametrize("seed", range(12))
def test_random_programs_are_loaded_as_they_were(seed: int, tmp_path: Path) -> None:
    function, draw = RandomProgram(seed), np.random.default_rng(seed)
    arrays = [draw.standard_normal(spec.shape).astype(np.float32) for spec in function.specs]
    program = graphc.compile(function, *function.specs, device="reference")
    program.save(tmp_path / "f")
    again = graphc.load(tmp_path / "f")
    for mine, theirs in zip(again(*arrays), program(*arrays), strict=True):
        assert mine.tobytes() == theirs.tobytes()
