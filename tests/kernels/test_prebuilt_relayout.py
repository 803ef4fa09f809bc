"""Prebuilt conversions of layouts: the bytes of the generated ones."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from graphc.ir import DTYPES, Layout, Node, Type, Value
from graphc.ir.state import aligned_empty
from graphc.kernels.lower import lower, prebuilt
from graphc.ops.layout import Relayout
from graphc.runtime.compilers.prebuilt_library import build_library
from graphc.runtime.compilers.shared_objects import cpu_target
from graphc.runtime.compilers.translation_units import build_kernels

SHAPES = [
    ((40, 7, 5), 0),
    ((32, 1), 0),
    ((3, 37, 50), 1),
    ((5,), 0),
    ((2, 48, 3000), 1),
    ((0, 4), 0),
]


def node_of(shape: tuple[int, ...], axis: int, dtype: str, lanes: int, to_lanes: bool) -> Node:
    plain, laned = Type(shape, dtype), Type(shape, dtype, Layout(axis, lanes))
    source, result = (plain, laned) if to_lanes else (laned, plain)
    return Node(Relayout(result.layout), (Value("x", source),), (Value("y", result),))


@pytest.mark.parametrize("isa", ["", "sse2", "avx2"])
def test_prebuilt_conversions_give_the_bytes_of_generated_ones(
    isa: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRAPHC_ISA", isa)
    target, random = cpu_target(), np.random.default_rng(0)
    nodes = {
        f"{dtype} {shape} {to_lanes}": node_of(shape, axis, dtype, target.lanes, to_lanes)
        for shape, axis in SHAPES
        for dtype in DTYPES
        for to_lanes in (False, True)
    }
    kernels = {name: lower(node, target) for name, node in nodes.items()}
    functions = build_kernels(kernels)
    library = build_library()
    for name, node in nodes.items():
        kernel = kernels[name]
        x = random.integers(0, 2, max(1, node.inputs[0].type.nbytes)).astype(np.uint8)
        found = prebuilt(node, kernel, target)
        assert found is not None
        address = library.address(found.symbol)
        assert address is not None
        results = [
            played(a, found.data, kernel.phases, x, node) for a in (functions[name], address)
        ]
        assert results[0] == results[1], name


def played(address: int, data: bytes, phases: tuple[int, ...], x: np.ndarray, node: Node) -> bytes:
    """What a function writes."""
    memory = [
        aligned_empty((max(64, size),), np.uint8)
        for size in (len(data), x.size, node.output.type.nbytes)
    ]
    memory[0][: len(data)] = np.frombuffer(data, np.uint8)
    memory[1][: x.size] = x
    memory[2][...] = 7
    table = (ctypes.c_void_p * 3)(*(m.ctypes.data for m in memory))
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_int)(address)
    for phase, chunks in enumerate(phases):
        for chunk in range(chunks):
            function(ctypes.addressof(table) + ctypes.sizeof(ctypes.c_void_p), phase, chunk)
    return memory[2].tobytes()
