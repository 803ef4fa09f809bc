"""The strip interpreter gives the bytes of generated kernels, for bodies of any shape."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from graphc import functions as f
from graphc.ir import ROW_MAJOR, Layout, Node, Type
from graphc.kernels.lower import lower, prebuilt
from graphc.kernels.prebuilt import operations
from graphc.ops import MaxPool2dGrad
from graphc.ops.base import Contraction
from graphc.ops.fused import KernelNode
from graphc.runtime.compilers.shared_objects import KERNEL_HEADERS, cpu_target
from graphc.trace import Tensor, emit
from tests.kernels.harness import build, single, traced
from tests.kernels.prebuilt_twins import assert_same_bytes, twin, with_specials
from tests.kernels.test_pointwise import with_lanes
from tests.kernels.test_random_programs import program
from tests.ops.samples import CORE

STRIPS = ("index", "pointwise", "reduce", "scatter")
WAITING = {"polygamma"}
"""Ops whose expression has a number in it, of which there is no end."""


def chain(x: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    return f.sigmoid(x * scale + shift) * f.tanh(x) + f.relu(x + shift) * (x * x)


def pooled(x: Tensor) -> tuple[Tensor, ...]:
    return f.max_pool2d(x, 2), f.avg_pool2d(x, 3, stride=2, padding=1)


def normalized(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    wide = f.layer_norm(x, (x.shape[-1],))
    return wide * y, f.sum(wide, axis=-1), f.softmax(x, axis=-1)


def mixed(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    low = f.astype(x, "bfloat16") * 2.0
    return f.pad(x, ((1, 2), (0, 3))), f.astype(low, "float32"), f.where(x > y, x, y[::-1])


def backward(x: Tensor, dy: Tensor, scale: Tensor) -> tuple[Tensor, ...]:
    """Sums of rows and of columns of what lies in memory and of what is computed."""
    mean = f.mean(x, axis=-1, keepdims=True)
    wide = (x - mean) * scale
    share = f.sum(dy * wide, axis=-1, keepdims=True) + f.sum(dy, axis=-1, keepdims=True)
    return dy * scale - share * wide, f.sum(dy, axis=0), f.sum(dy * wide, axis=0)


def pool_gradients(dy: Tensor, index: Tensor) -> tuple[Tensor, ...]:
    settings = (2, 2), (2, 2), (0, 0), (2 * dy.shape[2] + 1, 2 * dy.shape[3])
    dx = emit(MaxPool2dGrad(*settings), dy, index)
    return dx, f.sum(dx, axis=(0, 2, 3))


def bodies(lanes: int) -> list[Node]:
    """Bodies with and without the batch in lanes, whose extents fill no register."""
    found = []
    for layout in (ROW_MAJOR, Layout(0, lanes)):
        images = Type((19, 3, 7, 10), "f32", layout)
        found.append(traced("pooled", pooled, [images]))
        wide, pixels = Type((37, 130), "f32", layout), Type((19, 2, 5, 6), "f32", layout)
        indices = Type(pixels.shape, "u8", layout)
        found.append(traced("gradients", pool_gradients, [pixels, indices], [layout, ROW_MAJOR]))
        found.append(traced("chain", chain, [wide, Type((130,)), Type((130,))], [layout]))
    for shape in ((33, 10), (5, 700), (3, 5000), (1, 64)):
        found.append(traced("normalized", normalized, [Type(shape), Type(shape)]))
        found.append(traced("mixed", mixed, [Type(shape), Type(shape)]))
    for shape in ((70, 48), (100, 256), (33, 1040), (7, 64)):  # rows of whole registers
        types = [Type(shape), Type(shape), Type(shape[1:])]
        found += [traced("backward", backward, types), traced("normalized", normalized, types[:2])]
    found.append(traced("narrow", backward, [Type((40, 35)), Type((40, 35)), Type((35,))]))
    sums = lambda x: (f.sum(x, axis=0), f.max(x, axis=0))  # noqa: E731
    found += [traced("sums", sums, [Type(shape)]) for shape in ((300, 7), (40, 200), (9000, 16))]
    found.append(traced("whole", lambda x: f.sum(x * x), [Type((70, 1000))]))
    return found


@pytest.mark.parametrize("isa", ["", "avx2", "sse2"])
def test_bodies_give_the_bytes_of_generated_kernels(
    isa: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRAPHC_ISA", isa)
    target = cpu_target()
    played = 0
    for built in build(bodies(target.lanes), target):
        other = twin(built, target)
        if other is None:
            continue
        random = np.random.default_rng(7)
        inputs = [
            random.normal(size=v.type.shape).astype(v.type.numpy_dtype) for v in built.node.inputs
        ]
        assert_same_bytes(built, other, inputs)
        assert_same_bytes(built, other, with_specials(inputs))
        played += 1
    assert played >= 12


@pytest.mark.parametrize("seed", range(0, 30, 5))
def test_kernels_of_random_programs_give_the_bytes_of_generated_ones(seed: int) -> None:
    target = cpu_target()
    nodes = [n for n in program(seed).nodes if isinstance(n, KernelNode)]
    for built in build([n for n in nodes if n.op.template in STRIPS], target):
        other = twin(built, target)
        random = np.random.default_rng(seed)
        inputs = [
            random.normal(size=v.type.shape).astype(v.type.numpy_dtype) for v in built.node.inputs
        ]
        if other is not None:
            assert_same_bytes(built, other, inputs)


def test_every_op_has_a_prebuilt_kernel() -> None:
    target, missing = cpu_target(), set()
    for sample in CORE:
        template = sample.op.own_template
        if isinstance(sample.op, Contraction) or template not in ("", "index", "scatter"):
            continue
        for node in (single(sample.op, sample.inputs, sample.op.name), with_lanes(sample)):
            if node is None or not any(v.type.size for v in node.outputs):
                continue
            if prebuilt(node, lower(node, target), target) is None:
                missing.add(sample.op.name)
    assert missing <= WAITING, missing - WAITING


def test_the_header_lists_the_operations() -> None:
    written = Path(KERNEL_HEADERS, "prebuilt", "operations.h").read_text()
    assert written == operations.header_text(), "run python tools/write_operations.py"
