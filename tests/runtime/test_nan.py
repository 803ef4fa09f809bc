"""The check for NaN names the op inside the kernel that made the first one, and its line."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphc
from graphc.base.errors import RunError
from graphc.ir import Layout, Type
from graphc.ir.state import elements
from graphc.ops.fused import Fused
from graphc.runtime.checks.nan import has_nan, kernels_of, reads_of
from graphc.runtime.plan.plan import Launch

DEVICES = ("cpu", "sim", "reference")


@pytest.fixture(autouse=True)
def check(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPHC_CHECK", "nan")


def line(fn: Callable[..., Any], text: str) -> str:
    """`file.py:number` of the only line of `fn` that holds `text`."""
    lines, first = inspect.getsourcelines(fn)
    (number,) = (first + n for n, found in enumerate(lines) if text in found)
    return f"test_nan.py:{number}"


def message_of(program: Any, *arrays: Any) -> str:
    with pytest.raises(RunError) as caught:
        program(*arrays)
    return str(caught.value)


def many_lines(x: Any) -> Any:
    a = x * 2.0
    b = graphc.where(x > 0, graphc.log(a), 0.0)  # NaN that nothing reads is none
    c = graphc.sqrt(a + 1.0)
    d = c * b + 3.0
    return graphc.tanh(d)


@pytest.mark.parametrize("device", DEVICES)
def test_the_first_value_inside_a_kernel_is_named_with_its_one_line(device: str) -> None:
    program = graphc.compile(many_lines, graphc.spec((4,)), device=device)
    (node,) = (n for n in program.graph.nodes if isinstance(n.op, Fused))
    program(np.zeros(4, np.float32))
    said = message_of(program, np.array([1, -0.25, -2, 1], np.float32))
    assert said == (
        f"NaN in %sqrt : f32[4], written by {node.op.kernel}, "
        f"{line(many_lines, 'graphc.sqrt')}; the state is unchanged"
    )


def image(x: Any, weight: Any) -> Any:
    y = graphc.relu(graphc.conv2d(x, weight)) - 1.0
    y = graphc.log(graphc.max_pool2d(y, 2))
    return graphc.sum(y * 2.0, axis=(2, 3))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("batch", [3, 20])
def test_values_with_a_batch_in_the_lanes_are_found_too(batch: int, device: str) -> None:
    program = graphc.compile(
        image, graphc.spec((batch, 1, 6, 6)), graphc.spec((2, 1, 3, 3)), device=device
    )
    x, weight = np.ones((batch, 1, 6, 6), np.float32), np.ones((2, 1, 3, 3), np.float32)
    program(x, weight)
    x[batch - 1] = 0
    assert re.fullmatch(
        rf"NaN in %log : f32\[{batch},2,2,2\], written by \w+, "
        rf"{line(image, 'graphc.log')}; the state is unchanged",
        message_of(program, x, weight),
    )


PADDED = {
    "batch in lanes": Type((20, 2, 3, 3), "f32", Layout(0, 16)),
    "channels in lanes": Type((3, 18, 2, 2), "f32", Layout(1, 16)),
    "channels last": Type((3, 2, 4, 4), "f32", Layout(1, 4)),
    "channels last, of two bytes": Type((2, 11, 3, 3), "f16", Layout(1, 8)),
    "the last axis": Type((5, 6), "f32", Layout(1, 4)),
}


@pytest.mark.parametrize("type", PADDED.values(), ids=PADDED)
def test_padding_may_hold_anything_and_elements_are_all_seen(type: Type) -> None:
    axis, width = type.layout.axis, type.layout.width
    assert axis is not None
    padding = type.nbytes // type.numpy_dtype.itemsize - type.size
    places = np.indices(type.storage_shape)
    exists = places[axis] * width + places[-1] < type.shape[axis]
    assert padding > 0 and np.sum(~exists) == padding
    stored = np.where(exists, 1, np.nan).astype(type.numpy_dtype).ravel()
    assert elements(stored, type).shape == type.shape
    assert has_nan(stored) and not has_nan(elements(stored, type))
    for place in np.flatnonzero(exists):
        one = stored.copy()
        one[place] = np.nan
        assert np.isnan(elements(one, type)).sum() == 1


@pytest.mark.parametrize("device", ["cpu", "sim"])
@pytest.mark.parametrize("channels", [2, 5])
@pytest.mark.parametrize("batch", [3, 20])
def test_no_program_is_stopped_for_its_padding(batch: int, channels: int, device: str) -> None:
    """Whose zeros would become NaN, if they took part."""

    def logarithms(x: Any, weight: Any, other: Any) -> Any:
        y = graphc.log(graphc.relu(graphc.conv2d(x, weight)) - 1.0)
        y = graphc.log(graphc.conv2d(y, other) - 1.0)
        return graphc.max_pool2d(y, 2)

    shapes = (batch, 1, 6, 6), (channels, 1, 3, 3), (3, channels, 1, 1)
    program = graphc.compile(logarithms, *map(graphc.spec, shapes), device=device)
    laned = [v for n in program.graph.nodes for v in n.outputs if v.type.layout.axis is not None]
    assert any(v.type.size * 4 < v.type.nbytes for v in laned) == (device == "sim" or batch == 20)
    arrays = [np.ones(shape, np.float32) for shape in shapes]
    assert np.isfinite(program(*arrays)).all()
    arrays[0][batch - 1] = 0
    assert re.search(
        rf"NaN in %log\S* : .*{line(logarithms, 'relu')}", message_of(program, *arrays)
    )


@pytest.mark.parametrize("batch", [3, 20])
def test_what_a_kernel_reads_has_the_shapes_of_its_node(batch: int) -> None:
    """Without the lanes that fill a register up."""
    program = graphc.compile(
        image, graphc.spec((batch, 1, 6, 6)), graphc.spec((2, 1, 3, 3)), device="cpu"
    )
    nodes, laned = kernels_of(program.graph), 0
    for step in (s for s in program.plan.steps if isinstance(s, Launch) and s.kernel in nodes):
        stored = [np.zeros(place.stop - place.start, np.uint8) for place in step.reads]
        reads = reads_of(step, nodes, stored)
        types = [v.type for v in reads.node.inputs]
        assert [x.shape for x in reads.arrays] == [t.shape for t in types]
        laned += sum(t.layout.axis is not None for t in types)
    assert (laned > 0) == (batch == 20)


def loop(x: Any) -> Any:
    def step(carry: Any, element: Any) -> Any:
        carry = carry - element
        root = graphc.sqrt(carry)
        return carry, root + 1.0

    return graphc.scan(step, graphc.ones((3,)) * 2.0, x)[1]


@pytest.mark.parametrize("device", DEVICES)
def test_a_value_inside_a_loop_is_named_with_its_iteration(device: str) -> None:
    program = graphc.compile(
        loop, graphc.spec((6, 3)), device=device, disable=("hoist", "hoist_gradient")
    )
    assert re.fullmatch(
        r"NaN in %\S*sqrt : f32\[3\], written by \w+ \(iteration 4\), "
        rf"{line(loop, 'graphc.sqrt')}; the state is unchanged",
        message_of(program, np.full((6, 3), 0.5, np.float32)),
    )
