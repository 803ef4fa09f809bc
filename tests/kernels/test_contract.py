"""Contractions on the CPU: every op, layout and border against the reference."""

from __future__ import annotations

import re
import subprocess
from dataclasses import replace

import numpy as np
import pytest

from graphc import functions as F
from graphc.base.target import Target
from graphc.ir import Layout, Node, Type
from graphc.kernels.cpu.contract.contract import lower_contract
from graphc.kernels.cpu.contract.tile_cost import CHUNK_CYCLES
from graphc.kernels.program.nest import contraction_nest
from graphc.ops import Conv2d, Conv2dDgrad, Conv2dWgrad, Matmul, MaxPool2d
from graphc.ops.base import Array
from graphc.ops.fused import Fused
from graphc.runtime.compilers.shared_objects import KERNEL_HEADERS, cpu_target, find_compiler
from graphc.trace import Tensor, current_builder, emit
from tests.kernels.contract_samples import convolutions, matmuls
from tests.kernels.harness import Built, build, single, traced

WIDTH = cpu_target().lanes
LANES = Layout(0, WIDTH)


def _inputs(node: Node, seed: int = 0) -> list[Array]:
    random = np.random.default_rng(seed)
    arrays = []
    for value in node.inputs:
        shape, dtype = value.type.shape, value.type.numpy_dtype
        if dtype.kind == "i":
            limits = np.iinfo(dtype)
            arrays.append(random.integers(limits.min, limits.max, shape, dtype, endpoint=True))
        else:
            arrays.append(random.standard_normal(shape).astype(dtype))
    return arrays


def _assert_right(built: Built, inplace: bool = False) -> None:
    """The outputs are those of the reference in float64, to the rounding of sums that long."""
    node = built.node
    assert isinstance(node.op, Fused)
    inputs = _inputs(node)
    got = built.run(inputs, inplace=inplace)
    want = node.op.reference(*(a.astype(np.float64) if a.dtype.kind == "f" else a for a in inputs))
    nest = contraction_nest(node.op.body)
    length = nest.extents(nest.summed)
    for value, a, b in zip(node.outputs, got, want, strict=True):
        scale = max(1.0, float(np.abs(b).max(initial=0)))
        epsilon = np.finfo(a.dtype).eps if a.dtype.kind == "f" else 0.0
        tolerance = 4 * np.sqrt(length + 1) * epsilon * scale
        np.testing.assert_allclose(a, b, rtol=0, atol=tolerance, err_msg=f"{value}")


@pytest.mark.parametrize("width", sorted({4, 8, WIDTH}))
def test_matmuls_equal_the_reference(width: int) -> None:
    count = 50 if width == WIDTH else 10
    for built in build(matmuls(width, count, width), Target("cpu", width)):
        _assert_right(built)


@pytest.mark.parametrize("width", sorted({4, 8, WIDTH}))
def test_convolutions_and_gradients_equal_the_reference(width: int) -> None:
    count = 48 if width == WIDTH else 12
    for built in build(convolutions(width, count, width), Target("cpu", width)):
        _assert_right(built)


@pytest.mark.parametrize("width", sorted({4, 8, WIDTH}))
@pytest.mark.parametrize("dtype", ["f64", "i32", "i64"])
def test_sums_of_other_dtypes_equal_the_reference(dtype: str, width: int) -> None:
    """Those of integers wrap, and are right to the last bit in whatever order."""
    count = 30 if width == WIDTH else 10
    nodes = matmuls(width + 1, count, width, dtype)
    if dtype == "f64":
        nodes += convolutions(width + 1, count, width, dtype)
    tiled = 0
    for built in build(nodes, Target("cpu", width)):
        _assert_right(built)
        tiled += "struct Shape" in built.kernel.source
    assert tiled > 0.9 * len(nodes)


@pytest.mark.parametrize("width", [4, 8, 16])
def test_a_tile_may_be_a_whole_row_that_the_stride_does_not_divide(width: int) -> None:
    settings, weight, lanes = ((2, 2), (1, 1), (1, 1), 1), Type((8, 16, 3, 3)), Layout(0, width)
    (y,) = Conv2d(*settings).infer(Type((2 * width, 16, 5, 5)), weight)
    op = Conv2dDgrad(*settings, (5, 5))
    node = single(op, [y.with_layout(lanes), weight], layout=lanes)
    assert "columns[] = {{0, 1, 5}};" in lower_contract(node, Target("cpu", width)).source


def test_an_operand_whose_lanes_lie_apart_is_packed_first() -> None:
    """x [m, k] times weight [n, k] transposed, with rests of rows, registers, lanes and k."""

    def linear(x: Tensor, weight: Tensor) -> Tensor:
        return emit(Matmul(), x, F.permute_dims(weight, (1, 0)))

    shapes = [(150, 64, 96), (131, 70, 100), (60, 48, 33)]
    for built in build(
        [traced("linear", linear, [Type((m, k)), Type((n, k))]) for m, k, n in shapes]
    ):
        assert "PACKED = true" in built.kernel.source
        _assert_right(built)


@pytest.mark.parametrize("width", sorted({4, 8, WIDTH}))
def test_rows_whose_steps_lie_pages_apart_are_copied_first(width: int) -> None:
    """dy^T x, as gradients of weights are, with rests of tiles of rows, of columns and of k; where
    both operands are wide, both are copied. Several chunks share the tiles of rows."""

    def gradient(dy: Tensor, x: Tensor) -> Tensor:
        return emit(Matmul(), F.permute_dims(dy, (1, 0)), x)

    shapes = [(67, 1021, 96), (40, 1500, 1029), (129, 600, 3 * width + 5), (33, 2048, 2 * width)]
    nodes = [
        traced("gradient", gradient, [Type((k, m), dtype), Type((k, n), dtype)])
        for k, m, n in shapes
        for dtype in ("f32", "f64", "i32")
    ]
    copied = chunks = 0
    for built in build(nodes, Target("cpu", width)):
        found = re.search(r"X_TILES = (\d+)", built.kernel.source)
        copied += found is not None and int(found[1]) > 1
        chunks += built.kernel.phases[0] > 1
        _assert_right(built)
    assert copied > 2 and chunks > 2


def test_rows_that_lie_far_apart_are_packed_first() -> None:
    """dy^T x with the batch of dy in its lanes, and a plain product, with rests."""

    def gradient(dy: Tensor, x: Tensor) -> Tensor:
        return emit(Matmul(), F.permute_dims(dy, (1, 0)), x)

    dy = Type((4 * WIDTH, 300), layout=LANES)
    nodes = [
        traced("gradient", gradient, [dy, Type((4 * WIDTH, 1030))]),
        single(Matmul(), [Type((301, 67)), Type((67, 1025))]),
    ]
    for built in build(nodes):
        assert re.search(r"Y_LANE = 1;\n.*PACKED = true", built.kernel.source)
        _assert_right(built)


@pytest.mark.parametrize("length", [157, 317, 1021])
def test_sums_of_a_prime_length_leave_nothing_out(length: int) -> None:
    """No unrolling, no lanes and no parts divide them: in every transposition, with the batch in
    the lanes, and summed over a batch."""

    def turned(a: Tensor, b: Tensor) -> Tensor:
        return emit(Matmul(), F.permute_dims(a, (1, 0)), F.permute_dims(b, (1, 0)))

    def gradient(dy: Tensor, x: Tensor) -> Tensor:
        return emit(Matmul(), F.permute_dims(dy, (1, 0)), x)

    lanes = Type((WIDTH + 5, length), layout=LANES)
    nodes = [
        single(Matmul(), [Type((5, length)), Type((length, 33))]),
        single(Matmul(), [Type((1, length)), Type((length, 1))]),
        traced("turned", turned, [Type((length, 7)), Type((20, length))]),
        single(Matmul(), [lanes, Type((length, 6))], layout=LANES),
        traced("gradient", gradient, [Type((length, 9), layout=LANES), Type((length, 18))]),
    ]
    for built in build(nodes):
        _assert_right(built)


def test_other_dtypes_and_empty_extents_equal_the_reference() -> None:
    shapes = [((3, 4, 6), (3, 6, 19)), ((0, 4), (4, 5)), ((3, 0), (0, 5)), ((1, 1), (1, 1))]
    nodes = [
        single(Matmul(), [Type(a, dtype), Type(b, dtype)])
        for a, b in shapes
        for dtype in ("f32", "f64", "i32", "i64")
    ]
    settings = ((2, 1), (1, 1), (1, 2), 1)
    x, w = Type((2, 3, 7, 9), "f64"), Type((4, 3, 3, 3), "f64")
    (y,) = Conv2d(*settings).infer(x, w)
    nodes.append(single(Conv2d(*settings), [x, w]))
    nodes.append(single(Conv2dDgrad(*settings, (7, 9)), [y, w]))
    nodes.append(single(Conv2dWgrad(*settings, (3, 3)), [x, y]))
    for built in build(nodes):
        _assert_right(built)


def _conv_relu(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    total = emit(Conv2d((1, 1), (0, 0), (1, 1), 1), x, weight)
    return F.relu(total + F.reshape(bias, (1, bias.shape[0], 1, 1)))


def _lenet_conv2() -> Node:
    types = [Type((100, 20, 12, 12), layout=LANES), Type((50, 20, 5, 5)), Type((50,))]
    return traced("conv2_relu", _conv_relu, types, [LANES])


def _conv_wgrad(batch: int, channels: int, filters: int) -> Node:
    x = Type((batch, channels, 14, 14), layout=LANES)
    dy = Type((batch, filters, 14, 14), layout=LANES)
    return single(Conv2dWgrad((1, 1), (1, 1), (1, 1), 1, (3, 3)), [x, dy], "conv_wgrad")


def _conv_pool(x: Type, filters: int, taps: int, padding: int, pool: tuple[int, int]) -> Node:
    conv = Conv2d((1, 1), (padding, padding), (1, 1), 1)
    weight = Type((filters, x.shape[1], taps, taps), x.dtype)

    def function(x: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, ...]:
        biased = emit(conv, x, weight) + F.reshape(bias, (1, filters, 1, 1))
        largest, places = current_builder().emit(MaxPool2d(pool, pool, (0, 0)), biased)
        return F.relu(largest), places

    bias = Type((filters,), x.dtype)
    return traced("conv_pool", function, [x, weight, bias], [x.layout] * 2)


def test_a_contraction_pools_its_output_in_registers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows that tile the pixels or leave some over, with and without padding; also in the plain
    nest, which takes what no tile fits."""
    lanes = Type((WIDTH + 3, 3, 9, 10), layout=LANES)
    rows = Type((3, 2, 7, 8))
    wide = Type((3, 2, 6, 2 * WIDTH + 10))  # rows long enough to fill vectors by themselves
    doubles = replace(lanes, dtype="f64")
    nodes = [
        _conv_pool(x, filters, 3, padding, pool)
        for x in (lanes, doubles, rows, wide)
        for filters, padding, pool in (
            (5, 0, (2, 2)),
            (4, 1, (2, 2)),
            (3, 1, (3, 3)),
            (2, 2, (1, 2)),
        )
    ]
    tiled = build(nodes)
    # 3 x 3 windows of doubles fill more than the 16 registers that AVX2 has.
    expected = [WIDTH == 16 or number != 6 for number in range(8)]
    assert ["struct Shape" in b.kernel.source for b in tiled[:8]] == expected
    monkeypatch.setattr("graphc.kernels.cpu.contract.contract.ranked", lambda *_: [])
    for built in [*tiled, *build(nodes)]:
        assert isinstance(built.node.op, Fused)
        inputs = [np.rint(4 * a) for a in _inputs(built.node)]
        largest, places = built.run(inputs)
        # Sums of small whole numbers are exact, so that ties are ties in the reference as well.
        want, at = built.node.op.reference(*inputs)
        np.testing.assert_array_equal(largest, want)
        np.testing.assert_array_equal(places, at)


@pytest.mark.parametrize("window", [(2, 3), (3, 1), (1, 4)])
@pytest.mark.parametrize("plain", [False, True])
def test_a_pooled_epilogue_reads_what_lies_at_each_pixel_of_a_window(
    window: tuple[int, int], plain: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A residual for every pixel, added before the largest of a rectangle is taken."""
    types = [Type((WIDTH + 3, 2, 7, 10), layout=LANES), Type((3, 2, 3, 3)), Type((3, 7, 10))]

    def function(x: Tensor, weight: Tensor, residual: Tensor) -> tuple[Tensor, ...]:
        conv = emit(Conv2d((1, 1), (1, 1), (1, 1), 1), x, weight)
        pool = MaxPool2d(window, window, (0, 0))
        largest, places = current_builder().emit(pool, conv + residual)
        return largest * 2.0, places

    if plain:
        monkeypatch.setattr("graphc.kernels.cpu.contract.contract.ranked", lambda *_: [])
    (built,) = build([traced("residual_pool", function, types, [LANES] * 2)])
    assert ("struct Shape" in built.kernel.source) != plain
    assert isinstance(built.node.op, Fused)
    inputs = [np.rint(4 * a) for a in _inputs(built.node)]
    for got, want in zip(built.run(inputs), built.node.op.reference(*inputs), strict=True):
        np.testing.assert_array_equal(got, want)


def test_pooling_in_registers_passes_nan() -> None:
    (built,) = build([_conv_pool(Type((WIDTH, 1, 6, 6), layout=LANES), 1, 1, 0, (2, 2))])
    x = np.arange(WIDTH * 36, dtype=np.float32).reshape(WIDTH, 1, 6, 6) - 100
    x[0, 0, 0, 1] = x[0, 0, 1, 1] = x[1, 0, 2, 2] = np.nan
    inputs = [x, np.ones((1, 1, 1, 1), np.float32), np.zeros(1, np.float32)]
    assert isinstance(built.node.op, Fused)
    for got, want in zip(built.run(inputs), built.node.op.reference(*inputs), strict=True):
        np.testing.assert_array_equal(got, want)


def test_results_do_not_depend_on_the_order_of_chunks() -> None:
    nodes = [_lenet_conv2(), _conv_wgrad(64, 4, 8)]
    for built in build(nodes):
        inputs = _inputs(built.node)
        assert built.kernel.phases[0] > 1
        first, second = built.run(inputs, seed=1), built.run(inputs, seed=2)
        for a, b in zip(first, second, strict=True):
            assert a.tobytes() == b.tobytes()


def test_an_epilogue_may_overwrite_its_residual() -> None:
    def residual(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
        return F.relu(emit(Matmul(), a, b) + c)

    node = traced("residual", residual, [Type((40, 30)), Type((30, 50)), Type((40, 50))])
    (built,) = build([node])
    assert built.kernel.inplace == ((2, 0),)
    _assert_right(built, inplace=True)


def test_a_register_that_is_a_whole_row_is_written_once() -> None:
    """A second write would add the residual, which the first one has overwritten, again."""

    def residual(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
        return emit(Matmul(), a, b) + c

    shapes = [(9, 30), (30, WIDTH), (9, WIDTH)]
    (built,) = build([traced("residual", residual, [Type(s) for s in shapes])])
    assert built.kernel.inplace == ((2, 0),) and "columns[]" not in built.kernel.source
    _assert_right(built, inplace=True)


@pytest.mark.parametrize("name", ["tan", "round", "log2"])
def test_an_epilogue_may_call_any_function(name: str) -> None:
    def called(x: Tensor, w: Tensor) -> Tensor:
        function = getattr(F, name)
        return function(emit(Matmul(), x, w) * 0.01 + 1.2)

    (built,) = build([traced("called", called, [Type((9, 7)), Type((7, WIDTH + 3))])])
    _assert_right(built)


def test_an_operand_is_never_overwritten() -> None:
    def gated(a: Tensor, b: Tensor) -> Tensor:
        return emit(Matmul(), a, b) * a

    node = traced("gated", gated, [Type((40, 40)), Type((40, 40))])
    assert lower_contract(node, cpu_target()).inplace == ()


def test_large_work_is_cut_into_chunks_and_small_work_is_not() -> None:
    small = single(Matmul(), [Type((4, 8)), Type((8, 4))])
    assert lower_contract(small, Target("cpu", 16)).phases == (1,)
    large = single(Matmul(), [Type((512, 512)), Type((512, 512))])
    assert 10 <= lower_contract(large, Target("cpu", 16)).phases[0] <= 400


def test_a_chunk_of_a_plain_loop_has_four_operations_a_cycle() -> None:
    node = single(Matmul(), [Type((512, 512), "i8"), Type((512, 512), "i8")])
    (chunks,) = lower_contract(node, Target("cpu", 16)).phases
    assert chunks > 50
    assert 4 <= 2 * 512**3 / chunks / CHUNK_CYCLES < 4.1


@pytest.mark.parametrize(("rows", "depth"), [(128, 1024), (100, 1024), (160, 768)])
def test_no_chunk_packs_a_panel_that_another_has_begun(rows: int, depth: int) -> None:
    def linear(x: Tensor, weight: Tensor) -> Tensor:
        return emit(Matmul(), x, F.permute_dims(weight, (1, 0)))

    node = traced("linear", linear, [Type((rows, depth)), Type((256, depth))])
    source = lower_contract(node, Target("cpu", 16)).source
    assert "PACKED = true" in source
    tiles, chunks = (int(re.search(rf" {n} = (\d+)", source)[1]) for n in ("TILES", "CHUNKS"))
    panels = tiles // int(re.search(r"ROW_TILES = (\d+)", source)[1])
    assert chunks >= 8 and chunks % panels == 0


def test_weight_gradients_need_partial_sums_only_where_tiles_are_few() -> None:
    def lower(batch: int, channels: int, filters: int) -> tuple[int, int]:
        lanes = Layout(0, 16)
        x = Type((batch, channels, 12, 12), layout=lanes)
        dy = Type((batch, filters, 8, 8), layout=lanes)
        node = single(Conv2dWgrad((1, 1), (0, 0), (1, 1), 1, (5, 5)), [x, dy])
        kernel = lower_contract(node, Target("cpu", 16))
        return len(kernel.phases), kernel.workspace

    assert lower(100, 20, 50) == (1, 0)
    phases, workspace = lower(1000, 1, 16)
    assert phases == 2 and workspace > 0


def test_equal_nodes_give_equal_text(golden: pytest.FixtureRequest) -> None:
    def bias(x: Tensor, weight: Tensor, b: Tensor) -> Tensor:
        return F.relu(emit(Matmul(), x, F.permute_dims(weight, (1, 0))) + b)

    lanes = Layout(0, 16)
    types = [Type((100, 800), layout=lanes), Type((500, 800)), Type((500,))]
    texts = {
        lower_contract(traced("fc1_relu", bias, types, [lanes]), Target("cpu", 16)).source
        for _ in range(2)
    }
    assert len(texts) == 1
    golden("contract_fc1_relu.cpp", texts.pop())  # type: ignore[operator]


def test_the_header_compiles_alone() -> None:
    command = [*find_compiler().command, "-std=c++20", "-fsyntax-only", "-Wall", "-Wno-psabi"]
    file = f"{KERNEL_HEADERS}/cpu/contract/contract.h"
    result = subprocess.run(
        [*command, "-Wno-pragma-once-outside-header", "-x", "c++", f"-I{KERNEL_HEADERS}", file],
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr
