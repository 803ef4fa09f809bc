"""A contraction's loops come to each output element once, or lowering says whose do not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import graphc
from graphc.base.errors import PlanError
from graphc.base.target import Target
from graphc.ir import Type
from graphc.ir.sections import sections_of_sums
from graphc.kernels.cpu.contract.contract import order_loops
from graphc.kernels.cpu.contract.coverage import check_plain, check_tiled
from graphc.kernels.cpu.contract.epilogue import tile_epilogue
from graphc.kernels.cpu.contract.kernel_text import plain_loops
from graphc.kernels.cpu.contract.schedule import ranked
from graphc.kernels.program.nest import contraction_nest, sectioned_nest
from graphc.ops import Conv2dDgrad, Matmul
from graphc.ops.fused import Fused
from graphc.trace import Tensor, emit
from tests.kernels.harness import build, single, traced

DEPTHWISE = ((1, 1), (1, 1), (1, 1), 4)


def _columns(dy: Tensor, weight: Tensor, *scales: Tensor) -> tuple[Tensor, ...]:
    """The columns of a depthwise gradient, one by one: sections of a single element."""
    dx = emit(Conv2dDgrad(*DEPTHWISE, (3, 3)), dy, weight)
    return tuple(dx[..., i : i + 1] / s for i, s in enumerate(scales))


COLUMNS = traced(
    "columns", _columns, [Type((3, 4, 3, 3)), Type((4, 1, 3, 3)), *[Type((3, 4, 3, 1))] * 3]
)


@pytest.mark.parametrize("inplace", [False, True])
def test_sections_of_one_element_are_not_taken_for_lanes(inplace: bool) -> None:
    """Where no tile fits, and their axis is the one along which the output is contiguous."""
    (built,) = build([COLUMNS])
    assert "struct Nest" in built.kernel.source and len(built.kernel.inplace) == 9
    random = np.random.default_rng(0)
    inputs = [random.standard_normal(v.type.shape).astype(np.float32) for v in COLUMNS.inputs]
    assert isinstance(built.node.op, Fused)
    want = built.node.op.reference(*inputs)
    for a, b in zip(built.run(inputs, inplace=inplace), want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


def test_lanes_along_sections_are_found() -> None:
    assert isinstance(COLUMNS.op, Fused)
    sections = sections_of_sums(COLUMNS.op.body)
    assert sections is not None
    nest = sectioned_nest(contraction_nest(COLUMNS.op.body), sections)
    names = [axis.name for axis in nest.axes]
    right, wrong = names.index("w"), names.index("w_section")
    for lane in (right, names.index("h")):
        epilogue = tile_epilogue(COLUMNS.op.body, nest, lane, 16)
        check_plain("columns", nest, plain_loops(nest, lane, 16, None), lane, epilogue.domain)
    epilogue = tile_epilogue(COLUMNS.op.body, nest, wrong, 16)
    with pytest.raises(PlanError) as caught:
        check_plain("columns", nest, plain_loops(nest, wrong, 16, None), wrong, epilogue.domain)
    assert str(caught.value) == "columns: its loops make 108 elements of 36"


def test_tiles_that_leave_out_or_repeat_elements_are_found() -> None:
    node = single(Matmul(), [Type((70, 30)), Type((30, 90))])
    assert isinstance(node.op, Fused)
    nest = contraction_nest(node.op.body)
    schedule = ranked(nest, Target("cpu", 16), None, 1)[0]
    assert schedule is not None
    schedule = order_loops(schedule)
    check_tiled("product", schedule)
    cut = schedule.rows.cuts[0]
    short = replace(schedule.rows, cuts=(replace(cut, size=cut.size - 1), *schedule.rows.cuts[1:]))
    with pytest.raises(PlanError, match=r"^product: its loops make \d+ elements of 6300$"):
        check_tiled("product", replace(schedule, rows=short))
    twice = replace(schedule, loops=((schedule.columns.axis, 2, 1), *schedule.loops))
    with pytest.raises(PlanError, match=r"^product: two loops go over axis n$"):
        check_tiled("product", twice)
    rows = tuple(loop for loop in schedule.loops if loop[0] != "rows")
    with pytest.raises(PlanError, match=r"^product: its loops leave out tiles of axis m$"):
        check_tiled("product", replace(schedule, loops=rows))
    nest = replace(schedule.roles.nest, sections=schedule.roles.lane)
    spanned = replace(schedule, roles=replace(schedule.roles, nest=nest))
    with pytest.raises(PlanError, match=r"^product: axis n is in the lanes and taken together$"):
        check_tiled("product", spanned)


@pytest.mark.parametrize("device", ["cpu", "sim"])
@pytest.mark.parametrize("pixels", [7, 8])
def test_gradients_of_a_convolution_before_overlapping_windows_are_right(
    pixels: int, device: str
) -> None:
    """Uneven pooling windows cut the gradient of the depthwise convolution into columns."""

    def loss(weight: Any, x: Any, depthwise: Any) -> Any:
        y = graphc.adaptive_max_pool2d(graphc.conv2d(x, weight, padding=1), 3)
        return graphc.sum(graphc.square(graphc.conv2d(y, depthwise, padding=1, groups=4)))

    shapes = (4, 3, 3, 3), (3, 3, pixels, pixels), (4, 1, 3, 3)
    random = np.random.default_rng(0)
    arrays = [random.standard_normal(shape).astype(np.float32) for shape in shapes]
    specs = [graphc.spec(shape) for shape in shapes]
    got = graphc.compile(graphc.grad(loss), *specs, device=device)(*arrays)
    want = graphc.compile(graphc.grad(loss), *specs, device="reference")(*arrays)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-3 * np.abs(want).max())
