"""Nests of rows: reductions as values, under the schedules of both devices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from graphc.base.errors import GraphError
from graphc.ir import Layout
from graphc.kernels.cuda.lower import lower_cuda
from graphc.kernels.cuda.reduce import run_text
from graphc.kernels.loops.cached_rows import cache_rows
from graphc.kernels.loops.interpret import interpret
from graphc.kernels.loops.language import Nest
from graphc.kernels.loops.reduction_orders import order_reductions, ordered_rows, row_lanes
from graphc.kernels.loops.rewrites import rows_by
from graphc.kernels.loops.rows import Rows, find_rows, reduced_shape, row_axes
from graphc.kernels.loops.text import nest_text, parse_nest
from graphc.kernels.loops.verify import verify_nest
from graphc.kernels.program.access import Domain
from graphc.kernels.program.body.names import Identifiers, Pointers
from graphc.ops.base import Array
from graphc.text import parse
from tests.kernels import cuda_harness
from tests.kernels.c_harness import assert_same_bits, build_c
from tests.kernels.harness import build, pack, unpack
from tests.kernels.test_cuda_reduce_runs import BY_NAME, NODES, arrays_for
from tests.kernels.test_sum_orders_reduce import columns, draw, node, shares, statistics
from tests.sim.playing import Played, simulator

ROWS = (
    ((7,), (0,)),
    ((3, 133), (1,)),
    ((33, 5), (0,)),
    ((2, 1, 3), (1,)),
    ((5, 3, 7, 7), (0, 2, 3)),
)
LANED = (((19, 40), (1,)), ((40, 37, 3), (1,)), ((35, 6), (0,)), ((21, 4, 9), (0, 2)))
BODIES: tuple[Any, ...] = (
    *(node(statistics(axes), shape) for shape, axes in ROWS),
    *(node(shares(axes), shape) for shape, axes in ROWS[1:]),
    *(node(columns, shape) for shape in ((64, 37), (7, 20, 33), (2, 64, 1))),
    node(lambda x, y: statistics((1,))(x.astype("int8"), y.astype("int8")), (3, 33)),
)


def memory_of(body: Any, pointers: Pointers, inputs: Sequence[Array]) -> dict[str, Array]:
    """Flat arrays for the inputs of a body, and for its outputs."""
    memory = {pointers[v]: np.zeros(v.type.size, v.type.numpy_dtype) for v in body.outputs}
    for v in body.outputs:
        if v.type.layout.axis is not None:
            memory[pointers[v]] = np.zeros(v.type.storage_shape, v.type.numpy_dtype).ravel()
    for v, x in zip(body.inputs, inputs, strict=True):
        laned = v.type.layout.axis is not None
        memory[pointers[v]] = (pack(x, v.type) if laned else x).ravel().copy()
    return memory


def interpreted(nest: Nest, body: Any, pointers: Pointers, inputs: Sequence[Array]) -> list[Array]:
    """What a nest, which is proved and printed first, makes of the inputs."""
    verify_nest(nest)
    assert parse_nest(nest_text(nest)) == nest
    assert hash(parse_nest(nest_text(nest))) == hash(nest)
    memory = memory_of(body, pointers, inputs)
    with np.errstate(all="ignore"):
        interpret(nest, memory)
    flat = ((v, memory[pointers[v]]) for v in body.outputs)
    return [
        unpack(x, v.type) if v.type.layout.axis is not None else x.reshape(v.type.shape)
        for v, x in flat
    ]


def orders_of(body: Any, width: int) -> list[Rows]:
    """The rows of a body with an order, with each axis in the lanes that may lie there."""
    shape = reduced_shape(body) or (1,)
    lanes = row_lanes(body)
    return [ordered_rows(body, find_rows(body, Domain(shape, d, width))) for d in lanes]


@pytest.mark.parametrize("width", [4, 16])
@pytest.mark.parametrize("which", range(len(BODIES)))
def test_rows_are_added_in_the_order_of_the_graph(which: int, width: int):
    made = BODIES[which]
    inputs, body = draw(made), order_reductions(made.op.body)
    want = replace(made.op, body=body).evaluate(*inputs)
    for rows in orders_of(body, width):
        cached = cache_rows(rows, lambda _: 1.0, 2.0, 1 << 20)
        for nest in (rows.nest, rows_by(cached.nest, "chunk", 2)):
            assert_same_bits(interpreted(nest, body, rows.pointers, inputs), want)


@pytest.mark.parametrize(("shape", "axes"), LANED)
def test_rows_in_lanes_are_added_in_the_order_of_the_graph(shape: tuple[int, ...], axes: Any):
    for width in (4, 8):
        for function in (statistics(axes), shares(axes)):
            made: Any = node(function, shape, "f32", Layout(0, width))
            inputs, body = draw(made), order_reductions(made.op.body)
            want = replace(made.op, body=body).evaluate(*inputs)
            for rows in orders_of(body, width):
                assert_same_bits(interpreted(rows.nest, body, rows.pointers, inputs), want)


def test_a_row_that_is_cached_is_computed_once():
    (rows,) = orders_of(BODIES[6].op.body, 16)
    cached = cache_rows(rows, lambda _: 1.0, 2.0, 1 << 20)
    text, before = nest_text(cached.nest), nest_text(rows.nest)
    assert "alloc held0_data" in text and "alloc" not in before
    assert text.count("op square") < before.count("op square")


SIMULATED = (
    *("normalised_1", "normalised_64", "normalised_516", "normalised_4096", "bytes", "counts"),
    *("channels", "one_line", "no_columns", "columns_7_64", "columns_300_36", "columns_3000_40"),
    *("columns_700_516", "batch", "batch_split", "doubles", "float16", "small", "mixed"),
)
"""Kernels whose functions NumPy rounds as CUDA does: rows, and columns, in runs and not, held and
not, with trees of warps and parts, and sums of deviations."""


def test_threads_add_in_the_order_that_their_nest_states(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("GRAPHC_DENORMALS", "keep")
    nodes = [BY_NAME[name] for name in SIMULATED]
    played, nests = Played(simulator(), nodes), list[Nest]()
    for made in nodes:
        with patch.object(run_text, "verify_nest", nests.append):
            lower_cuda(made, cuda_harness.TARGET)
    for made, nest in zip(nodes, nests, strict=True):
        arrays = arrays_for(made, special=False)
        pointers = Identifiers().pointers(made.op.body)
        got = interpreted(nest, made.op.body, pointers, arrays)
        assert_same_bits(played.run(made, arrays), got, made.op.kernel)


def test_every_nest_of_threads_is_parsed_back():
    nests = list[Nest]()
    with patch.object(run_text, "verify_nest", nests.append):
        for made in NODES:
            lower_cuda(made, cuda_harness.TARGET)
    assert len(nests) == len(NODES)
    for nest in nests:
        verify_nest(nest)
        assert parse_nest(nest_text(nest)) == nest


def random_reductions(seed: int) -> list[Any]:
    """Bodies of odd shapes, reduced along axes that are drawn."""
    random, made = np.random.default_rng(seed), []
    for number in range(8):
        rank = int(random.integers(1, 5))
        shape = tuple(int(n) for n in random.choice([1, 2, 3, 5, 8, 13, 17, 31, 67], rank))
        count = int(random.integers(1, rank + 1))
        axes = tuple(sorted(int(d) for d in random.choice(rank, count, replace=False)))
        function = [statistics(axes), shares(axes)][number % 2]
        dtype = ["f32", "f64"][number // 2 % 2]
        one: Any = node(function, shape, dtype)
        made.append(replace(one, op=replace(one.op, kernel=f"random_{number}")))
    return made


@pytest.mark.parametrize("seed", range(3))
def test_the_interpreter_c_and_the_cpu_have_the_same_bits(seed: int, tmp_path: Path):
    nodes = random_reductions(seed)
    if seed == 0:
        extra = [replace(n, op=replace(n.op, kernel=f"k{i}")) for i, n in enumerate(BODIES)]
        nodes += extra
    for made, plain, cpu in zip(nodes, build_c(nodes, tmp_path), build(nodes), strict=True):
        inputs = draw(made)
        (rows, *_) = orders_of(made.op.body, 16)
        want = interpreted(rows.nest, made.op.body, rows.pointers, inputs)
        what = f"seed {seed}, {made.op.kernel}: {made.inputs[0]}"
        assert_same_bits(plain.run(inputs), want, f"C, {what}")
        assert_same_bits(cpu.run(inputs), want, f"C++, {what}")


SUM = """\
nest (3, 8)
memory x : f32[24]
memory y : f32[3] written
memory z : f32[8] written
for i0 chunk
  for i1 serial
    x_ : f32 = load x[8*i0 + 1*i1]
    sum_ : f32 = reduce sum x_ over i1 in 1%4
    reduce sum z[1*i1], x_ over i0 in 2*0
  store y[1*i0], sum_"""
WRONG = {
    "before its end": ("  store y", "    store y", "registers that are known"),
    "twice": ("for i1 serial\n", "for i1 serial\n    sum_ : f32 = load x[8*i0]\n", "that are new"),
    "over no loop": ("for i1 serial", "for once serial", "loops over it"),
    "by workers in no order": (" in 2*0", "", "an order for workers"),
    "by blocks": ("i0 chunk", "i0 block", "chunks or threads"),
    "in the order of others": ("1%4", "0%4", "an order of its axes"),
    "in many elements": ("z[1*i1]", "z[1*i1 + 1*i0]", "an element for all"),
    "of extremes": ("reduce sum z", "reduce max z", "a sum or product"),
    "in one element": ("z[1*i1]", "z[0]", "several iterations store one element"),
    "beyond the end": ("z[1*i1]", "z[1*i1 + 1]", "0 to 7, not 1 to 8"),
    "in what is not written": ("z : f32[8] written", "z : f32[8]", "z as written"),
}  # fmt: skip


def test_a_nest_as_text_is_computed():
    nest = parse_nest(SUM)
    verify_nest(nest)
    x = np.arange(24, dtype=np.float32)
    memory = {"x": x, "y": np.zeros(3, np.float32), "z": np.zeros(8, np.float32)}
    interpret(nest, memory)
    np.testing.assert_array_equal(memory["y"], x.reshape(3, 8).sum(1))
    np.testing.assert_array_equal(memory["z"], x.reshape(3, 8).sum(0))


@pytest.mark.parametrize("wrong", WRONG)
def test_reductions_that_are_wrong_are_refused(wrong: str):
    old, new, message = WRONG[wrong]
    assert old in SUM
    with pytest.raises(GraphError, match=message):
        verify_nest(parse_nest(SUM.replace(old, new)))


TWICE = """\
nest (3, 8)
memory x : f32[24]
memory y : f32[24] written
for i0 block
  for i1 thread
    x_ : f32 = load x[8*i0 + 1*i1]
    store y[8*i0 + 1*i1], x_
  for i1 thread
    y_ : f32 = load y[8*i0 + 1*i1]
    z_ : f32 = op relu (y_) cost 1
    store y[8*i0 + 1*i1], z_"""


def test_a_worker_may_use_again_what_it_stores_in_an_earlier_loop():
    verify_nest(parse_nest(TWICE))
    serial, other = "for i1 serial\n    y_", "load y[8*i0 + -1*i1 + 7]"
    for old, new in (("for i1 thread\n    y_", serial), ("load y[8*i0 + 1*i1]", other)):
        assert old in TWICE
        with pytest.raises(GraphError, match=r"only where it is stored|two stores meet"):
            verify_nest(parse_nest(TWICE.replace(old, new)))


def test_orders_that_are_none_are_refused():
    for wrong in ("1%%4", "threads 4", "threads 4 runs 1 trees parts 1"):
        with pytest.raises(GraphError):
            parse_nest(SUM.replace("1%4", wrong))


def test_an_order_is_part_of_a_nest():
    """Roundings say in which order numbers are added."""
    x = np.random.default_rng(1).normal(size=24).astype(np.float32)
    found = set()
    for order in ("1", "1%4", "threads 8 runs 1 trees 8 parts 1"):
        memory = {"x": x, "y": np.zeros(3, np.float32), "z": np.zeros(8, np.float32)}
        interpret(parse_nest(SUM.replace("1%4", order)), memory)
        found.add(memory["y"].tobytes())
    assert len(found) == 3


def test_softmax_is_three_loops():
    made: Any = node(shares((1,)), (9, 40))
    (rows,) = orders_of(made.op.body, 16)
    assert [len(loop.sums) for loop in rows.loops] == [2, 1, 0]
    assert nest_text(rows.nest).count("for ") == 4


APART = """graph apart
  in    %x : f64[3,2,2]
  in    %w : f64[3,2]
  in    %y : f64[3,2,2]
  %total   = sum(%x) axes=(1,) keepdims=True : f64[3,1,2]
  %squares = multiply(%w, %w)                : f64[3,2]
  %rows    = reshape(%squares) shape=(3,1,2) : f64[3,1,2]
  %product = multiply(%y, %rows)             : f64[3,2,2]
  %both    = fma(%total, %y, %product)       : f64[3,2,2]
  return %squares, %both
"""


def test_what_broadcasts_to_an_output_has_its_axes():
    """Nothing but an output of the reduced shape connects the squares with the sum."""
    known = {v.name: axes for v, axes in row_axes(parse(APART)).items()}
    assert known["squares"] == known["w"] == (0, 2)
    assert known["both"] == known["product"] == known["y"] == (0, 1, 2)
