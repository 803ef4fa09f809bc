"""GRAPHC_CHECK=nan in loops: the iteration is found, in whichever buffer the carry lies then."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import graphc
from graphc.base.errors import RunError
from graphc.runtime.plan.plan import Launch, Loop, all_steps

LENGTH = 5


def recurrence(w: Any, x: Any) -> Any:
    """h = log(h w + x[t]): NaN where a sum is negative."""

    def step(h: Any, element: Any) -> Any:
        return graphc.log(h @ w + element), ()

    h, _ = graphc.scan(step, graphc.ones((3, 4)), x)
    return h


@pytest.mark.parametrize("device", ["cpu", "sim"])
def test_a_nan_in_a_carry_with_two_buffers_is_found_in_its_iteration(
    device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRAPHC_CHECK", "nan")
    program = graphc.compile(
        recurrence, graphc.spec((4, 4)), graphc.spec((LENGTH, 3, 4)), device=device
    )
    loops = [s for s in program.plan.steps if isinstance(s, Loop)]
    writes = [p for s in all_steps(loops) if isinstance(s, Launch) for p in s.writes]
    assert any(move.period == 2 for place in writes for move in place.moves)
    w, good = np.eye(4, dtype=np.float32), np.full((LENGTH, 3, 4), 9, np.float32)
    for t in (*range(LENGTH), 2, 1):
        bad = good.copy()
        bad[t, 1, 2] = -99
        with pytest.raises(RunError) as caught:
            program(w, bad)
        assert re.search(rf"written by \S+ \(iteration {t}\), ", str(caught.value))
        # What the other buffer holds from before is nobody's: a good call goes through.
        assert np.isfinite(program(w, good)).all()
