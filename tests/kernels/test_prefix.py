"""Running results on the CPU: all shapes of rows and axis, every vector width, through views."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from graphc import functions as f
from graphc.base.target import Target
from graphc.ir import Type
from graphc.ir.interpret import evaluate
from graphc.ops import Cummax, Cumsum, Logcumsumexp
from graphc.ops.prefix import Prefix
from tests.kernels.cuda_harness import assert_close
from tests.kernels.harness import Built, build, single, traced
from tests.ops.samples_order import ORDERS

SAMPLES = [s for s in ORDERS if isinstance(s.op, Prefix)]


@pytest.fixture(scope="module")
def samples() -> list[Built]:
    return build([single(s.op, s.inputs, s.op.name) for s in SAMPLES])


@pytest.mark.parametrize("which", range(len(SAMPLES)), ids=lambda i: str(SAMPLES[i]))
def test_running_results_equal_their_reference(samples: list[Built], which: int) -> None:
    sample, built = SAMPLES[which], samples[which]
    arrays = sample.arrays()
    assert built.kernel.template == "prefix"
    for inplace in (False, True):
        found = built.run(arrays, seed=which, inplace=inplace)
        for got, want in zip(found, sample.op.reference(*arrays), strict=True):
            assert_close(got, want, max(1, *want.shape))


@pytest.mark.parametrize("lanes", [4, 8])
def test_running_results_of_narrow_vectors_equal_their_reference(lanes: int) -> None:
    some = [s for s in SAMPLES if s.op.name in ("cumsum", "cummax")][::2]
    built = build([single(s.op, s.inputs, s.op.name) for s in some], Target("cpu", lanes))
    for sample, kernel in zip(some, built, strict=True):
        arrays = sample.arrays()
        for got, want in zip(kernel.run(arrays), sample.op.reference(*arrays), strict=True):
            assert_close(got, want, max(1, *want.shape))


VIEWS: dict[str, tuple[Callable[..., Any], Type]] = {
    "backwards": (lambda x: f.cumsum(f.flip(x, 1), 1), Type((3, 37))),
    "every second": (lambda x: f.cumsum(x[:, ::2], 1), Type((5, 71))),
    "transposed": (lambda x: f.cumsum(x.T, 1), Type((37, 21))),
    "permuted": (lambda x: f.cummax(f.permute_dims(x, (2, 0, 1)), 1), Type((4, 5, 18))),
    "broadcast": (lambda x: f.cumprod(f.broadcast_to(x, (20, 7)), 0), Type((7,))),
    "of a constant": (lambda x: f.cumsum(f.broadcast_to(np.float32(0.5), (3, 40)), 1), Type(())),
    "of places": (lambda x: f.cumsum(f.arange(40), 0), Type(())),
}


@pytest.mark.parametrize("name", VIEWS)
def test_a_running_result_reads_its_input_through_views(name: str) -> None:
    function, type = VIEWS[name]
    (built,) = build([traced("viewed", function, [type])])
    x = np.random.default_rng(0).uniform(0.5, 1.5, type.shape).astype(np.float32)
    expected, _ = evaluate(built.node.op.body, [x])  # type: ignore[attr-defined]
    for got, want in zip(built.run([x]), expected, strict=True):
        assert_close(got, want, max(1, *want.shape))


def test_nan_and_infinities_run_on() -> None:
    x = np.array([[1, np.nan, 3, np.inf, np.nan, 2], [-np.inf, -np.inf, 1, np.inf, 2, -np.inf]])
    x = np.tile(x.astype(np.float32), (1, 9))
    for op in (Cummax(1), Cummax(1, True), Logcumsumexp(1), Logcumsumexp(0)):
        (built,) = build([single(op, [Type(x.shape)], op.name)])
        with np.errstate(all="ignore"):
            expected = op.reference(x)
        for got, want in zip(built.run([x]), expected, strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-5)


@pytest.mark.parametrize("shape", [(200000,), (200000, 3), (2, 100000)])
def test_a_long_axis_of_few_rows_is_cut_and_its_integers_are_exact(shape: tuple[int, ...]) -> None:
    axis = int(np.argmax(shape))
    for reverse in (False, True):
        (built,) = build([single(Cumsum(axis, reverse), [Type(shape, "i32")], "cut")])
        assert len(built.kernel.phases) == 2 and built.kernel.phases[0] > 1
        x = np.random.default_rng(0).integers(-99, 99, shape).astype(np.int32)
        np.testing.assert_array_equal(built.run([x])[0], Cumsum(axis, reverse).reference(x)[0])


def test_an_extreme_without_its_place_stores_the_value_alone() -> None:
    def values(x: Any) -> Any:
        return f.cummax(x, 1)[0]

    (built,) = build([traced("values", values, [Type((5, 40))])])
    x = np.random.default_rng(0).normal(size=(5, 40)).astype(np.float32)
    np.testing.assert_array_equal(built.run([x])[0], np.maximum.accumulate(x, 1))
    assert "state.place" not in built.kernel.source
