"""Contractions that take the plain loop, and why, and the tile of others: the plan says so."""

from __future__ import annotations

import pytest

import graphc
from graphc.base.target import Target
from graphc.ir import Type
from graphc.kernels.cpu.contract import contract
from graphc.kernels.lower import lower
from graphc.ops import Matmul
from graphc.runtime.plan.plan import Plan
from tests.kernels.harness import single

pytestmark = pytest.mark.usefixtures("unbuilt")


def plan(dtype: str) -> Plan:
    specs = graphc.spec((4, 5), dtype), graphc.spec((5, 6), dtype)
    found = graphc.compile(graphc.matmul, *specs, device="cpu").plan
    assert found is not None
    return found


@pytest.mark.parametrize(("dtype", "short"), [("int8", "i8"), ("uint8", "u8")])
def test_sums_of_bytes(dtype: str, short: str):
    note = f"matmul: plain loop: there are no tiles for sums of {short}"
    assert plan(dtype).notes == (note,)
    assert note in str(plan(dtype))


@pytest.mark.parametrize(("dtype", "short"), [("f64", "pair of registers"), ("i32", "register")])
def test_a_tile_says_what_its_registers_hold(dtype: str, short: str):
    node = single(Matmul(), [Type((40, 50), dtype), Type((50, 64), dtype)])
    assert f"16 of n in each {short}: by the model" in lower(node, Target("cpu", 16)).choice


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
def test_a_nest_for_which_no_tile_is_found(dtype: str, monkeypatch):
    assert plan(dtype).notes == ()
    monkeypatch.setattr(contract, "ranked", lambda *_: [])
    assert plan(dtype).notes == ("matmul: plain loop: no tile suits it",)
