"""What a certificate promises of a plan's sums."""

from __future__ import annotations

import pytest

import graphc
from tests.tools import need_command


def program(x: graphc.Tensor, w: graphc.Tensor) -> graphc.Tensor:
    return graphc.softmax(graphc.conv2d(graphc.relu(x), w), axis=-1)


def compiled(device: str, function=program, **options: str) -> graphc.Program:
    specs = graphc.spec((2, 16, 9, 9)), graphc.spec((16, 16, 3, 3))
    return graphc.compile(function, *specs, device=device, **options)


def test_cpu_adds_in_the_order_stated() -> None:
    need_command("g++", "clang++")
    plan = compiled("cpu").plan
    found = [k.name for k in plan.kernels.values() if k.sums == "stated"]
    assert len(found) == 2
    assert "own" not in {k.sums for k in plan.kernels.values()}
    assert "sums: 2 kernels add in the order stated" in str(plan.verify())


def test_winograd_has_an_order_of_its_own() -> None:
    need_command("g++", "clang++")
    plan = compiled("cpu", precision="winograd").plan
    (own,) = (k.name for k in plan.kernels.values() if k.sums == "own")
    promise = f"sums: 1 kernels add in the order stated, 1 in an order of their own: {own}"
    assert promise in str(plan.verify())


def test_gpu_kernels_have_orders_of_their_own() -> None:
    plan = compiled("sim").plan
    sums = {k.name: k.sums for k in plan.kernels.values()}
    assert sorted(sums.values()).count("own") == 2
    assert "in an order of their own" in str(plan.verify())


@pytest.mark.parametrize("device", ["cpu", "sim"])
def test_what_adds_nothing_promises_nothing(device: str) -> None:
    if device == "cpu":
        need_command("g++", "clang++")
    plan = compiled(device, lambda x, w: graphc.max(graphc.relu(x), axis=-1)).plan
    assert {k.sums for k in plan.kernels.values()} == {"none"}
    assert plan.verify().sums == ""
