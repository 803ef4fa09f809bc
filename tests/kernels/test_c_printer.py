"""Plain C of nests with any loops, of values with lanes, and of functions that read memory."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphc
from graphc import ops
from graphc.ir import Layout, Node, Type
from graphc.kernels.c.loop_printer import function_text, nest_lines
from graphc.kernels.c.lower import HEADERS, lower_file
from graphc.kernels.cpu.pointwise.pointwise import find_nests
from graphc.kernels.loops.interpret import interpret
from graphc.kernels.loops.language import Alloc, Loop, Memory, Nest
from graphc.kernels.loops.plain import plain_nest
from graphc.kernels.loops.rewrites import bind, hoist, in_runs, loads_ahead, split_last, staged
from graphc.kernels.program.access import AffineAccess, Domain
from graphc.kernels.program.body.statement import Address, Load, Register, Store
from graphc.ops.base import Array
from graphc.runtime.compilers.shared_objects import KERNEL_HEADERS
from tests.kernels.c_harness import FLAGS, WARNINGS, assert_same_bits, build_c
from tests.kernels.harness import Buffer, build, pack, single, traced, unpack
from tests.loops import test_along
from tests.loops.nests import FUNCTIONS, case
from tests.tools import need_command

Memories = dict[str, Array]


def run_all(nests: Sequence[Nest], memories: Sequence[Memories], folder: Path) -> None:
    """Runs each nest, printed as a function of one file, on its memory."""
    texts = [function_text(f"f{i}", [n], inputs_of(n)) for i, n in enumerate(nests)]
    source = folder / "nests.c"
    source.write_text("\n".join([HEADERS, *texts]))
    command = [need_command("gcc", "clang", "cc"), *FLAGS, *WARNINGS, f"-I{KERNEL_HEADERS}"]
    output = source.with_suffix(".so")
    command += ["-fPIC", "-shared", str(source), "-o", str(output), "-lm"]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr[:4000]
    library = ctypes.CDLL(str(output))
    for number, (nest, memory) in enumerate(zip(nests, memories, strict=True)):
        buffers = {m.name: Buffer(memory[m.name]) for m in inputs_of(nest)}
        addresses = (ctypes.c_void_p(b.address) for b in buffers.values())
        getattr(library, f"f{number}")(*addresses)
        for name, buffer in buffers.items():
            buffer.check(name)
            memory[name] = buffer.contents()


def inputs_of(nest: Nest) -> list[Memory]:
    return [m for m in nest.memory if m.elements is None]


SCHEDULES: dict[str, Callable[[Nest], Nest]] = {
    "plain": lambda nest: nest,
    "rows": lambda nest: split_last(hoist(nest)),
    "chunks": lambda nest: split_last(hoist(bind(nest, "chunk"))),
    "threads": lambda nest: hoist(bind(nest, "thread")),
    "loads ahead": lambda nest: loads_ahead(hoist(bind(nest, "thread")), 4),
    "runs": lambda nest: in_runs(hoist(bind(nest, "thread")), 4),
    "runs with a rest": lambda nest: in_runs(hoist(bind(nest, "thread")), 3),
}


def test_schedules_compute_what_the_interpreter_does(tmp_path: Path):
    nests, memories, want = [], [], []
    for name in FUNCTIONS:
        if name == "transpose":
            continue  # it calls a function, in which NumPy differs
        for schedule in SCHEDULES if name != "one element" else ("plain", "chunks"):
            made = case(name, *((8,) if schedule == "chunks" else ()))
            for nest in made.nests:
                memory = {made.pointers[v]: a.ravel().copy() for v, a in made.arrays.items()}
                for v in made.body.outputs:
                    memory[made.pointers[v]] = np.zeros(v.type.size, v.type.numpy_dtype)
                nests.append(SCHEDULES[schedule](nest))
                memories.append({n: a.copy() for n, a in memory.items()})
                interpret(nests[-1], memory)
                want.append(memory)
    run_all(nests, memories, tmp_path)
    for nest, memory, expected in zip(nests, memories, want, strict=True):
        exact = not any("tanh" in line for line in nest_lines(nest))
        names = [m.name for m in inputs_of(nest) if m.written and (exact or "tanh" not in m.name)]
        assert_same_bits([memory[n] for n in names], [expected[n] for n in names])


def test_running_results_and_sorts_have_the_order_that_their_nest_states(tmp_path: Path):
    """Also that of threads, and one loop over all axes."""
    nests, memories, want = [], [], []
    for op, kind in test_along.OPS:
        if op.name == "logcumsumexp":
            continue  # it calls functions, in which NumPy differs
        schedules = test_along.scheduled(op).items()
        # The interpreter joins registers in the pieces of the op, of which these axes have one.
        for make, width in (way for name, way in schedules if name != "pieces"):
            for part in test_along.spaces(op, kind, width):
                nest, x = make(part), test_along.drawn(kind)
                memory = {
                    n: np.zeros(v.type.size, v.type.numpy_dtype) for n, v in part.used.items()
                }
                (given,) = (n for n, v in part.used.items() if v not in part.outputs)
                memory[given] = x.ravel().copy()
                nests.append(nest)
                memories.append({n: a.copy() for n, a in memory.items()})
                interpret(nest, memory)
                want.append(memory)
    run_all(nests, memories, tmp_path)
    for nest, memory, expected in zip(nests, memories, want, strict=True):
        names = [m.name for m in inputs_of(nest) if m.written]
        assert_same_bits([memory[n] for n in names], [expected[n] for n in names], nest)


def test_blocks_wait_by_running_one_loop_after_the_other(tmp_path: Path):
    """Images of 2 channels and 3 x 5 pixels, stored with their channels last."""
    size = 4 * 2 * 3 * 5
    memory = Memory("x", "f32", size), Memory("y", "f32", size, written=True)
    load = Load((Register("x_", "f32"),), (Address("x", AffineAccess(0, (30, 15, 5, 1))),))
    store = Store((), (Address("y", AffineAccess(0, (30, 1, 10, 2))), "x_"))
    image = Nest(Domain((4, 2, 3, 5)), memory, (Loop((0, 1, 2, 3), "serial", (load, store)),))
    shared, place = Alloc("waiting", "f32", 2 * 16), AffineAccess(0, (0, 16, 5, 1))
    made = staged(in_runs(bind(image, "thread"), 4), "y", shared, place, (2, 3, 1))
    x = np.arange(size, dtype=np.float32)
    given = [{"x": x, "y": np.zeros_like(x)} for _ in range(2)]
    run_all([image, made], given, tmp_path)
    want = x.reshape(4, 2, 3, 5).transpose(0, 2, 3, 1).ravel()
    assert_same_bits([given[0]["y"], given[1]["y"]], [want, want])


@pytest.mark.parametrize("axis", [0, 1])
def test_values_with_lanes_end_in_zeros(axis: int, tmp_path: Path):
    layout, shape = Layout(axis, 8), (5, 11, 3)
    kinds = [Type(shape, "f32", layout), Type((1, 1, 3), "f32")]
    body: Any = traced("laned", lambda x, b: graphc.relu(x * b + 1), kinds, [layout]).op
    x, b = (np.random.default_rng(0).normal(size=k.shape).astype(np.float32) for k in kinds)
    (part,) = find_nests(body.body, 8)
    nest = split_last(hoist(bind(plain_nest(part), "chunk")))
    names = [m.name for m in inputs_of(nest)]
    storage = np.full(kinds[0].storage_shape, 7, np.float32)
    given = dict(zip(names, (pack(x, kinds[0]), pack(b, kinds[1]), storage), strict=True))
    run_all([nest], [given], tmp_path)
    got = unpack(given[names[2]], kinds[0])  # asserts the zeros
    assert_same_bits([got], [np.maximum(x * b + np.float32(1), 0)])


def pooling(dtype: str) -> list[Node]:
    """Max and average pooling and their gradients, with and without overlap and padding."""
    image, nodes = Type((2, 3, 9, 10), dtype), []
    for size, stride, padding in (((2, 2), (2, 2), (0, 0)), ((3, 3), (2, 2), (1, 1))):
        window, kinds = (size, stride, padding), [image]
        largest = ops.MaxPool2d(*window)
        for counts in (True, False):
            average = ops.AvgPool2d(*window, counts)
            nodes.append(single(average, kinds, f"avg_{size[0]}_{counts}"))
            slope = ops.AvgPool2dGrad(*window, counts, image.shape[2:])
            nodes.append(single(slope, average.infer(image), f"avg_grad_{size[0]}_{counts}"))
        nodes.append(single(largest, kinds, f"max_{size[0]}"))
        slope = ops.MaxPool2dGrad(*window, image.shape[2:])
        nodes.append(single(slope, largest.infer(image), f"max_grad_{size[0]}"))
    return nodes


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_pooling_is_that_of_the_cpu(dtype: str, tmp_path: Path):
    random, nodes = np.random.default_rng(0), pooling(dtype)
    for node, cpu, plain in zip(nodes, build(nodes), build_c(nodes, tmp_path), strict=True):
        arrays = [random.normal(size=v.type.shape).astype(v.type.numpy_dtype) for v in node.inputs]
        if len(arrays) == 2:
            arrays[1] = random.integers(0, 9, arrays[1].shape).astype(arrays[1].dtype)
        assert_same_bits(plain.run(arrays), cpu.run(arrays), node.op)


def test_draws_and_searches_are_those_of_the_cpu(tmp_path: Path):
    draw = ops.PhiloxUniform(seed=12345678901, number=7, shape=(33, 17), part=2)
    nodes = [single(draw, [Type((), "i32")], "draw")]
    inputs: list[list[Array]] = [[np.array(-3, np.int32)]]
    random = np.random.default_rng(0)
    for right in (False, True):
        for dtype in ("f32", "f64", "i32", "u8"):
            kinds = [Type((3, 10), dtype), Type((3, 21), dtype)]
            numbers = [random.integers(0, 20, k.shape).astype(k.numpy_dtype) for k in kinds]
            if dtype[0] == "f":
                numbers[0][:, -1] = numbers[1][:, 3] = np.nan
            nodes.append(single(ops.Searchsorted(right), kinds, f"search_{dtype}_{right}"))
            inputs.append([np.sort(numbers[0]), numbers[1]])
    built = zip(inputs, build(nodes), build_c(nodes, tmp_path), strict=True)
    for arrays, cpu, plain in built:
        assert_same_bits(plain.run(arrays), cpu.run(arrays), cpu.node.op)


def test_the_text_reads_like_c():
    node: Any = traced(
        "scale", lambda x, b: graphc.exp(x * b - 0.5), [Type((6, 8), "f32"), Type((6, 1), "f32")]
    )
    assert lower_file([node]) == HEADERS + (
        "\n"
        "void scale_kernel(const float* x0_data, const float* x1_data, float* exp_data) {\n"
        "  const float constant_ = 0.5f;\n"
        "  for (int64_t i0 = 0; i0 < 6; i0++) {\n"
        "    const float x1_ = x1_data[i0];\n"
        "    for (int64_t i1 = 0; i1 < 8; i1++) {\n"
        "      const float x0_ = x0_data[8 * i0 + i1];\n"
        "      const float multiply_ = x0_ * x1_;\n"
        "      const float subtract_ = multiply_ - constant_;\n"
        "      const float exp_ = exp(subtract_);\n"
        "      exp_data[8 * i0 + i1] = exp_;\n"
        "    }\n"
        "  }\n"
        "}\n"
    )
