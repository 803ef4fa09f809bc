"""Reductions whose threads move runs of neighbours and hold their rows: where, and rightly."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import graphc
from graphc.base.dtypes import convert, shown
from graphc.ir import DTYPES
from graphc.kernels.cuda.reduce.reduce import HELD_BYTES, MOST_THREADS, Shape, choose_shape
from graphc.kernels.cuda.shared.kernel_source import BLOCKS, THREADS
from graphc.kernels.loops.rows import find_rows, reduced_shape
from graphc.kernels.lower import lower
from graphc.kernels.program.access import Domain
from graphc.ops.fused import Fused
from graphc.runtime.sim.native import BACKWARD, FORWARD
from tests.kernels.cuda_harness import TARGET, build_device, traced
from tests.sim.playing import Played, simulator
from tests.tools import first_quick, need_command


def spec(*shape: int, dtype: str = "float32") -> Any:
    return graphc.spec(shape, dtype)


def softmax(x: Any) -> Any:
    shifted = graphc.exp(x - graphc.max(x, axis=-1, keepdims=True))
    return shifted / graphc.sum(shifted, axis=-1, keepdims=True)


def narrow_softmax(x: Any) -> Any:
    """As passes leave it: numbers of two bytes in memory, none in registers."""
    return graphc.astype(softmax(graphc.astype(x, "float32")), x.dtype)


def wide_sum(x: Any) -> Any:
    return graphc.sum(graphc.astype(x, "float32"), axis=0)


def normalised(x: Any, scale: Any) -> Any:
    """Two stages, the elements, and two values for each row."""
    mean = graphc.mean(x, axis=1, keepdims=True)
    centred = x - mean
    root = graphc.rsqrt(graphc.mean(centred * centred, axis=1, keepdims=True) + 1e-3)
    return centred * root * scale, graphc.reshape(mean, (-1,)), root


def columns(x: Any, y: Any, row: Any) -> Any:
    """Two sums over rows, of which one needs a value for each row, and an element output."""
    product = x * y + row
    return product, graphc.sum(product, axis=0), graphc.max(x, axis=0)


def batch_normalised(x: Any, scale: Any) -> Any:
    mean = graphc.mean(x, axis=0)
    centred = x - mean
    root = graphc.rsqrt(graphc.mean(centred * centred, axis=0) + 1e-3)
    return centred * root * scale, mean


def three_centred(x: Any, y: Any, z: Any, *rows: Any) -> Any:
    """Three images whose elements meet their sums and `rows`, which there are once for a column."""
    found = x + y + z
    for image in (x, y, z):
        found = found * graphc.sum(image, axis=0)
    for row in rows:
        found = found * row + x
    return found


def scaled(x: Any, scale: Any) -> Any:
    """What there is once leads to the sum of all elements, and is kept."""
    root = graphc.rsqrt(scale * scale + 1e-3)
    return x * root, root, graphc.sum(graphc.square(x * root))


def taken(table: Any, row: Any, scale: Any) -> Any:
    """A row of a table for each index, which is no load of every element."""
    return softmax(graphc.take(table, row, 0) * scale)


SIZES = ((1, 64), (7, 64), (8, 63), (9, 68), (100, 4), (300, 36), (3000, 40), (700, 516))
LENGTHS = (1, 2, 3, 4, 5, 8, 31, 32, 36, 100, 128, 129, 512, 1000, 1023, 1024, 2052, 4096, 4097)
NARROW = ("float16", "bfloat16")
ROWS = [
    *(traced(f"softmax_{n}", softmax, spec(5, n)) for n in LENGTHS),
    *(traced(f"normalised_{n}", normalised, spec(9, n), spec(n)) for n in (1, 7, 64, 516, 4096)),
    traced("softmax_32768", softmax, spec(3, 32768)),
    traced("softmax_33024", softmax, spec(3, 33024)),
    traced("softmax_double", softmax, spec(3, 1028, dtype="float64")),
    *(traced(f"softmax_{d}", narrow_softmax, spec(3, 1032, dtype=d)) for d in NARROW),
    traced("softmax_half", narrow_softmax, spec(3, 1028, dtype="float16")),
    traced("sliced", lambda x: softmax(x[:, 4:260]), spec(7, 264)),
    traced("unaligned", lambda x: softmax(x[:, 3:259]), spec(7, 264)),
    traced("pitched", lambda x: softmax(x[:, :256]), spec(7, 263)),
    traced("bytes", lambda x: graphc.max(x, axis=1), spec(3, 256, dtype="int8")),
    traced("counts", lambda x: graphc.sum(x, axis=1), spec(3, 256, dtype="int64")),
    traced("taken", taken, spec(9, 64), spec(6, dtype="int32"), spec(64)),
    traced("channels", lambda x: x - graphc.mean(x, axis=(0, 2), keepdims=True), spec(6, 5, 64)),
    traced("one_channel", scaled, spec(8, 1, 1, 16), spec(1, 1, 1, 1)),
    traced("one_line", scaled, spec(1, 4096), spec(1, 1)),
    traced("no_columns", lambda x: graphc.sum(x, axis=1), spec(8, 0)),
]
COLUMNS = [
    *(
        traced(f"columns_{n}_{m}", columns, spec(n, m), spec(n, m), spec(n, 1))
        for n, m in SIZES
    ),
    traced("batch", batch_normalised, spec(40, 64), spec(64)),
    traced("batch_split", batch_normalised, spec(3000, 64), spec(64)),
    traced("batch_of_rows", lambda x: softmax(graphc.permute_dims(x, (0, 2, 1))), spec(3, 50, 16)),
    traced("doubles", lambda x: graphc.sum(x, axis=0), spec(600, 64, dtype="float64")),
    *(traced(d, wide_sum, spec(600, 64, dtype=d)) for d in NARROW),
    traced("small", lambda x: graphc.max(x, axis=0), spec(600, 64, dtype="int8")),
    traced("mixed", lambda x, y: (graphc.sum(x, axis=0), graphc.sum(y, axis=0)),
           spec(600, 64), spec(600, 64, dtype="int64")),
]  # fmt: skip
NODES = [*ROWS, *COLUMNS]


def name_of(node: Any) -> str:
    assert isinstance(node.op, Fused)
    return node.op.kernel


BY_NAME = {name_of(n): n for n in NODES}


def shape_of(name: str) -> Shape:
    return chosen(BY_NAME[name])


def chosen(node: Any) -> Shape:
    body = node.op.body
    return choose_shape(find_rows(body, Domain(reduced_shape(body)), recompute=True))


def arrays_for(node: Any, special: bool) -> list[Any]:
    """Numbers for the node's inputs; `special` ones have NaN, infinities and zeros of both signs
    among them."""
    random, arrays = np.random.default_rng(len(name_of(node))), []
    for value in node.inputs:
        kind = DTYPES[value.type.dtype]
        if value.type.dtype[0] == "i":
            arrays.append(random.integers(0, 6, value.type.shape).astype(kind))
            continue
        numbers = random.standard_normal(value.type.shape)
        if special and numbers.size:
            places = random.integers(0, numbers.size, 6)
            numbers.reshape(-1)[places] = [np.nan, np.inf, -np.inf, 0.0, -0.0, np.inf]
        arrays.append(convert(numbers, kind))
    return arrays


def assert_near(got: Any, want: Any, length: int) -> None:
    """Equal but for the rounding of a sum of `length` floats, and of results of few bits."""
    if got.dtype.kind not in "fV":
        np.testing.assert_array_equal(got, want)
        return
    narrow = {"f16": 2.0**-10, "bf16": 2.0**-7}
    name = next((d for d in narrow if DTYPES[d] == got.dtype), "")
    eps = float(np.finfo(np.float32 if name else got.dtype).eps)
    got, want = (shown(x).astype(np.float64) for x in (got, want))
    finite = np.abs(want[np.isfinite(want)])
    scale = max(1.0, float(finite.max(initial=0.0)))
    tolerance = (8 * np.sqrt(length) * eps + 4 * narrow.get(name, 0.0)) * scale
    np.testing.assert_allclose(got, want, rtol=0, atol=tolerance, equal_nan=True)


@pytest.mark.parametrize("special", [False, True])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_results_are_right_in_any_order_of_threads(special: bool):
    need_command("g++", "clang++")
    played = Played(simulator(check=True), NODES)
    for node in NODES:
        arrays = arrays_for(node, special)
        ahead, back = (played.run(node, arrays, order) for order in (FORWARD, BACKWARD))
        length = max(a.size for a in arrays)
        for got, other, want in zip(ahead, back, node.op.reference(*arrays), strict=True):
            assert got.tobytes() == other.tobytes(), name_of(node)
            assert_near(got, want, length)


def test_runs_are_of_sixteen_bytes_where_rows_are_whole_aligned_ones():
    ones = {n for n in BY_NAME if shape_of(n).length == 1}
    odd = {"unaligned", "pitched", "columns_8_63", "no_columns", "batch_of_rows"}
    odd |= {f"softmax_{n}" for n in LENGTHS if n % 4} | {"normalised_1", "normalised_7"}
    assert ones == odd
    eights = {n for n in BY_NAME if shape_of(n).length == 8}
    assert eights == {"softmax_float16", "softmax_bfloat16", *NARROW, "bytes", "small"}


def test_short_rows_are_loaded_once_and_all_at_the_beginning():
    for name in ("softmax_4096", "normalised_4096", "softmax_4097", "softmax_32768", "sliced"):
        assert shape_of(name).keeps_row
        before, _, after = lower(BY_NAME[name], TARGET).source.partition("rows.reduce<")
        assert "rows.hold(" in before
        assert "*reinterpret_cast<const Run<" in before
        assert "*reinterpret_cast<const Run<" not in after
    assert not shape_of("softmax_33024").keeps_row


def test_what_a_thread_holds_is_bounded():
    for name in BY_NAME:
        shape = shape_of(name)
        if shape.keeps_row:
            runs = -(-shape.columns // (shape.length * shape.along))
            assert runs * shape.length * 4 <= HELD_BYTES


def test_a_run_of_rows_is_stored_and_its_sums_are_kept_together():
    kernel = lower(BY_NAME["columns_3000_40"], TARGET)
    assert "Several<Stage0, 4> stage0 = rows.reduce<" in kernel.source
    assert "*reinterpret_cast<Run<float, 4>*>(" in kernel.source
    shape = shape_of("columns_3000_40")
    assert (shape.across, shape.along, shape.length) == (8, 32, 4)
    assert kernel.launches[0].grid == (-(-40 // 32), shape.splits, 1)


def test_splits_never_put_more_than_two_blocks_on_a_multiprocessor():
    for name in BY_NAME:
        shape = shape_of(name)
        assert shape.splits == 1 or shape.blocks * shape.splits <= BLOCKS
        assert shape.splits == 1 or shape.threads == THREADS
        assert THREADS <= shape.threads <= MOST_THREADS


def test_few_blocks_have_more_threads_each_and_no_second_launch():
    shape = shape_of("columns_700_516")
    assert (shape.across, shape.along, shape.length, shape.splits) == (4, 128, 4, 1)


def test_values_of_a_row_leave_fewer_registers_for_what_its_thread_keeps():
    kept = []
    for rows in (0, 5, 10):
        specs = (*(spec(1568, 528) for _ in range(3)), *(spec(528) for _ in range(rows)))
        kept.append(chosen(traced(f"three_{rows}", three_centred, *specs)))
    assert [(s.register_steps, s.shared_steps) for s in kept] == [(5, 2), (5, 2), (4, 3)]


@pytest.mark.parametrize("arch", first_quick(1, ["sm_90a", "sm_80"]))
def test_nvcc_takes_them_and_spills_nothing(arch: str, tmp_path: Any):
    usage = build_device([lower(n, TARGET) for n in NODES], tmp_path, need_command("nvcc"), arch)
    assert usage
    assert {symbol for symbol, u in usage.items() if u.spilled} == set()
