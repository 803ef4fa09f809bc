"""Contractions that take the plain loop: the plan's notes say so, and why."""

from __future__ import annotations

import pytest

import graphc
from graphc.kernels.cpu import contract
from graphc.runtime.plan.plan import Plan

pytestmark = pytest.mark.usefixtures("unbuilt")


def plan(dtype: str) -> Plan:
    specs = graphc.spec((4, 5), dtype), graphc.spec((5, 6), dtype)
    found = graphc.compile(graphc.matmul, *specs, device="cpu").plan
    assert found is not None
    return found


@pytest.mark.parametrize(("dtype", "short"), [("float64", "f64"), ("int32", "i32")])
def test_sums_that_are_not_f32(dtype: str, short: str):
    note = f"matmul: plain loop: tiles are of f32, its sums of {short}"
    assert plan(dtype).notes == (note,)
    assert note in str(plan(dtype))


def test_a_nest_for_which_no_tile_is_found(monkeypatch):
    assert plan("float32").notes == ()
    monkeypatch.setattr(contract, "ranked", lambda *_: [])
    assert plan("float32").notes == ("matmul: plain loop: no tile suits it",)
