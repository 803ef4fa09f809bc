"""Audits: a run that is repeated has the digests of the first."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import graphc
from graphc import nn
from graphc.base.errors import GraphError
from tests.files.training import train, trainer


def test_a_run_is_verified_by_running_it_again(tmp_path: Path) -> None:
    path = tmp_path / "audit"
    for streams in ("1", "2"):
        step, audit = trainer("adam"), graphc.Audit(path)
        for number in range(3):
            train(step, number, number + 1)
            audit(number, step)
        assert len(audit) == 3, streams
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["step"] for line in lines] == [0, 1, 2]
    assert step.plan is not None
    assert {line["plan"] for line in lines} == {step.plan.verify().digest}
    other = trainer("adam", seed=1)
    with pytest.raises(
        GraphError, match=rf"^Audit: loss_fn: after step 1 the state is [0-9a-f]{{16}}, "
        rf"{re.escape(str(path))} has {lines[1]['state'][:16]}$",
    ):  # fmt: skip
        audit(1, other)


def test_half_a_line_is_written_again(tmp_path: Path) -> None:
    path = tmp_path / "audit"
    step = trainer("momentum", device="reference")
    audit = graphc.Audit(path)
    for number in range(2):
        train(step, number, number + 1)
        audit(number, step)
    whole = path.read_bytes()
    path.write_bytes(whole[:-7])
    again = graphc.Audit(path)
    assert len(again) == 1
    again(1, step)
    assert path.read_bytes() == whole


def test_other_files_and_arguments_are_named(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("step 1\n")
    with pytest.raises(GraphError, match=r"^Audit: \S+ is no audit: JSON: "):
        graphc.Audit(tmp_path / "text")
    with pytest.raises(GraphError, match=r"^Audit: cannot read \S+: Is a directory$"):
        graphc.Audit(tmp_path)
    step = trainer("momentum", device="reference")
    with pytest.raises(GraphError, match=r"^Audit: cannot write \S+: No such file or directory$"):
        graphc.Audit(tmp_path / "none" / "audit")(0, step)
    with pytest.raises(GraphError, match=r"^Audit: expected a step and a program, got 0 and "):
        graphc.Audit(tmp_path / "a")(0, nn.Linear(1, 1))  # type: ignore[arg-type]
