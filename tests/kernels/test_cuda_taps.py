"""Convolutions that leave out the steps of k at which a tile of rows meets nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphc
from graphc import nn, optim
from graphc.ir import Graph
from graphc.kernels.cuda.contract.contract import Problem
from graphc.kernels.cuda.contract.taps import Taps, problems_by_taps
from graphc.kernels.program.kernel import Kernel
from graphc.kernels.program.nest import Nest, contraction_nest
from graphc.ops.fused import kernels_in
from tests.kernels.cuda_harness import build_device
from tests.tools import need_command


def step(case: Any, device: str, precision: str = "tf32") -> Any:
    """A training step whose second convolution is that of the case, and its images."""
    batch, before, after, size, taps, settings = case
    graphc.seed(1)
    model = nn.Sequential(
        nn.Conv2d(before, before, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(before, after, taps, **settings),
    )

    def loss(model: Any, x: Any) -> Any:
        y = model(x)
        return graphc.mean(y * y)

    x = graphc.spec((batch, before, *size))
    rule = optim.SGD(lr=1.0)
    return graphc.compile(
        loss, model, x, update=rule, device=device, precision=precision, streams=1
    ), model


def gradient(case: Any) -> tuple[Nest, list[tuple[Problem, Taps]]]:
    """The nest of the data gradient, and the orders of its rows with the taps that they meet."""
    program, _ = step(case, "cuda")
    (node,) = (
        n for n in kernels_in(program.graph) if any(m.op.called == "dgrad" for m in n.body.nodes)
    )
    nest = contraction_nest(node.body, lanes=False)
    return nest, problems_by_taps(nest, node.body)


def executed(nest: Nest, taps: Taps, m: int, depth: int) -> float:
    """Products of whole tiles of `m` rows, for each that exists."""
    products = nest.extents(range(len(nest.axes)))
    rows = -(-len(taps.rows) // m) * m / len(taps.rows)
    return taps.share(m, depth) * rows * 2 * products / nest.flops


STRIDED = (8, 64, 64, (56, 56), (3, 3), {"stride": 2, "padding": 1})
UNPADDED = (100, 32, 64, (12, 12), (5, 5), {})


@pytest.mark.parametrize("case", [STRIDED, UNPADDED], ids=["strided", "unpadded"])
def test_hardly_more_is_computed_than_exists(case: Any) -> None:
    nest, [(_, taps), *_] = gradient(case)
    assert nest.flops < 0.6 * 2 * nest.extents(range(len(nest.axes)))
    assert executed(nest, taps, 64, 32) <= 1.4
    if case is STRIDED:
        assert executed(nest, taps, 64, 32) <= 1.15


def test_lines_of_pixels_meet_more_than_pixels() -> None:
    """The rows of an image's line lie together, whose taps read the same."""
    _, orders = gradient(UNPADDED)
    (pixels, by_pixels), (lines, by_lines) = orders
    names = [[p.nest.axes[i].name for i in p.rows] for p in (pixels, lines)]
    assert names == [["h", "w", "n"], ["h", "n", "w"]]
    assert by_pixels.share(64, 32) < by_lines.share(64, 32) < 0.75


def test_a_tile_meets_what_any_of_its_rows_meets() -> None:
    taps = Taps(2, 64, np.array([1, 0, 2, 2, 0], np.uint32))
    assert list(taps.tiles(2)) == [1, 2, 0]
    assert taps.share(2, 32) == pytest.approx(1 / 3)
    assert taps.share(5, 32) == 1
    assert taps.share(2, 64) == pytest.approx(2 / 3)


ODD = [
    (8, 16, 16, (8, 8), (3, 3), {"stride": 2, "padding": 1}),
    (5, 16, 12, (9, 7), (3, 3), {"stride": 2, "padding": 1}),
    (6, 20, 50, (12, 12), (5, 5), {}),
    (2, 16, 16, (10, 10), (3, 3), {"stride": 3, "padding": 1}),
    (4, 8, 8, (9, 9), (3, 1), {"stride": 2, "dilation": 2}),
    (64, 16, 16, (7, 7), (3, 3), {"padding": 1}),
    (4, 16, 12, (9, 8), (1, 1), {"stride": 2}),
]


def taken(kernels: Any) -> list[Kernel]:
    return [k for k in kernels if "taps_of_tiles" in k.source]


PRECISIONS = ("float32", "tf32")


@pytest.mark.parametrize("order", [0, -1], ids=["first", "last"])
@pytest.mark.parametrize(
    ("case", "precision"),
    [
        pytest.param(case, precision, marks=() if (n + m) % 2 == 0 else pytest.mark.slow)
        for n, case in enumerate(ODD)
        for m, precision in enumerate(PRECISIONS)
    ],
    ids=str,
)
def test_gradients_are_right(
    case: Any, precision: str, order: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the first order of rows, by all that decides their taps, and in the last."""

    def one(nest: Nest, body: Graph) -> list[tuple[Problem, Taps]]:
        found = problems_by_taps(nest, body)
        return [found[order]] if found else []

    monkeypatch.setattr("graphc.kernels.cuda.contract.contract_kernel.problems_by_taps", one)
    monkeypatch.setenv("GRAPHC_CHECK", "race")
    monkeypatch.setattr("graphc.kernels.cuda.contract.schedules.WORTH", 10)
    x = np.random.default_rng(0).standard_normal((case[0], case[1], *case[3])).astype("float32")
    states = []
    for device in ("reference", "sim"):
        program, model = step(case, device, precision)
        program(x)
        states.append(model.state_dict())
    assert taken(program.plan.kernels.values())
    for name, value in states[0].items():
        np.testing.assert_allclose(states[1][name], value, rtol=1e-3, atol=1e-4)


def test_a_compiler_of_devices_takes_the_text(tmp_path: Path) -> None:
    program, _ = step(STRIDED, "cuda")
    (kernel,) = taken(program.plan.kernels.values())
    usage = build_device([kernel], tmp_path, need_command("nvcc"), "sm_90a")
    assert all(u.spilled == 0 for u in usage.values())


KEPT = [
    ((2, 64, 24, (9, 7), (3, 3), {"padding": 1}), 1, "k c_part=2 r=3 s=3 c=32"),
    ((2, 96, 16, (8, 8), (3, 1), {}), 1, "k c_part=3 r=3 s=1 c=32"),
    ((2, 32, 16, (8, 8), (3, 3), {}), 1, "k r=3 s=3 c=32"),
    ((2, 64, 16, (8, 8), (1, 1), {}), 0, "c=64"),
]


@pytest.mark.parametrize(("case", "again", "depth"), KEPT, ids=["64", "96", "32", "one tap"])
def test_taps_that_follow_each_other_read_few_lines_of_memory(
    case: Any, again: int, depth: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 128 bytes per pixel, all taps before the next 128; what they read again stays in L1."""
    monkeypatch.setenv("GRAPHC_CHECK", "race")
    batch, before, after, size, taps, settings = case
    graphc.seed(1)
    model = nn.Conv2d(before, after, taps, **settings)
    spec = graphc.spec((batch, before, *size))
    x = np.random.default_rng(0).standard_normal(spec.shape).astype("float32")
    results = []
    for device in ("reference", "sim"):
        program = graphc.compile(model, spec, device=device, precision="tf32", streams=1)
        results.append(program(x))
    (kernel,) = (k for k in program.plan.kernels.values() if k.template == "contract")
    assert kernel.source.count("bool again = true;") == again
    assert depth in kernel.source
    np.testing.assert_allclose(results[1], results[0], rtol=1e-3, atol=1e-4)
