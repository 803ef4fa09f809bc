"""A running result that kernels do not know: its class and its `Combine` are all there is of it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from graphc.ir import Type
from graphc.ops.combine import Combine
from graphc.ops.prefix import Prefix
from tests.kernels.c_harness import assert_same_bits, build_c
from tests.kernels.cuda_harness import assert_close
from tests.kernels.harness import build, single
from tests.sim.playing import Played, simulator

SHAPES = ((5, 70), (300, 9), (3, 2100))


@dataclass(frozen=True)
class Cumhypot(Prefix):
    """y[..., i, ...] is the root of the sum of squares of x[..., 0, ...] to x[..., i, ...] >= 0."""

    name: ClassVar[str] = "cumhypot"
    combine: ClassVar[Combine] = Combine("sqrt({a} * {a} + {b} * {b})", 0)
    accepts: ClassVar[tuple[str, ...]] = ("f32",)

    def running(self, x: Any) -> Any:
        return np.sqrt(np.cumsum(np.square(x), self.axis, x.dtype))


def case(shape: tuple[int, int], reverse: bool) -> tuple[Any, Any, Any]:
    op, kind = Cumhypot(1, reverse), Type(shape, "f32")
    x = np.random.default_rng(0).uniform(size=shape).astype(np.float32)
    return single(op, (kind,), f"cumhypot_{shape[0]}_{reverse}"), x, op.reference(x)[0]


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_it_runs_on_a_cpu(shape: tuple[int, int], reverse: bool):
    node, x, expected = case(shape, reverse)
    (built,) = build([node])
    (found,) = built.run([x])
    assert_close(found, expected, shape[1])


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_plain_c_has_the_bits_of_a_cpu(shape: tuple[int, int], reverse: bool, tmp_path: Path):
    node, x, _ = case(shape, reverse)
    (built,), (plain,) = build([node]), build_c([node], tmp_path)
    assert_same_bits(plain.run([x]), built.run([x]))


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_it_runs_on_a_simulated_gpu(shape: tuple[int, int], reverse: bool):
    node, x, expected = case(shape, reverse)
    (found,) = Played(simulator(), [node]).run(node, [x])
    assert_close(found, expected, shape[1])
