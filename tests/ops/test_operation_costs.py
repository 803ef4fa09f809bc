"""Every op says what an element of it costs, and that is so."""

from __future__ import annotations

import pytest

from graphc.ops.base import REGISTRY, Op, Pointwise, Random
from tests.ops.operation_costs import measured, samples, stated
from tests.ops.sample import Sample

COSTLY = [op for op in REGISTRY.values() if issubclass(op, Pointwise | Random)]
BY_NOISE = 16
"""Operations, 80 picoseconds: below it a kernel's time says nothing about one statement."""


@pytest.mark.parametrize("op", COSTLY, ids=lambda op: op.name)
def test_an_op_that_calls_a_function_states_its_cost(op: type[Op]) -> None:
    if op.__module__.startswith("graphc.") and "(" in getattr(op, "expression", "("):
        assert isinstance(vars(op).get("operations"), int), f"{op.name}: state `operations`"
        assert op.operations >= 1


def test_a_function_in_double_precision_costs_more_than_one_of_float32() -> None:
    cost = {name: op.operations for name, op in REGISTRY.items() if op in COSTLY}
    assert min(cost[n] for n in ("erfinv", "lgamma", "digamma", "erfc")) > 20 * cost["exp"]
    assert cost["add"] == cost["where"] == 1


@pytest.mark.slow
@pytest.mark.parametrize("sample", samples(), ids=lambda s: s.op.name)
def test_the_stated_cost_is_measured_within_a_factor_of_two(sample: Sample) -> None:
    said = stated(sample.op)
    for _ in range(5):  # other work on the machine makes kernels slower, never faster
        found = measured(sample)
        if said <= 8:
            right = found <= BY_NOISE
        else:
            right = said / 2 <= max(found, 1) <= said * 2
        if right:
            return
    pytest.fail(f"{sample.op.name}: states {said} operations, takes {found:.0f}")
