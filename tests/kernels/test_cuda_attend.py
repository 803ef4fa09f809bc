"""Attention as CUDA text for the extents of real models: what it takes of a multiprocessor."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphc.ir import Node, Type, Value
from graphc.kernels.lower import lower
from graphc.ops import Attention, AttentionGrad
from tests.kernels.cuda_harness import TARGET, build_device, single
from tests.tools import first_quick, need_command

STATIC_BYTES = 48 * 1024


def nodes() -> list[Node]:
    """Both kernels for heads of many sizes, with and without dropout, in both widths of float."""
    made = []
    for features, dtype, dropout in (
        (64, "f32", 0.0),
        (64, "f32", 0.1),
        (128, "f32", 0.0),
        (256, "f32", 0.0),
        (64, "f64", 0.0),
        (256, "f64", 0.0),
    ):
        x = Type((8, 8, 512, features), dtype)
        y, logs = Attention(True, 0.1).infer(x, x, x)
        more = [Type((), "i32")] if dropout else []
        name = f"{dtype}_{features}_{len(more)}"
        for op, types in (
            (Attention(True, 0.1, dropout), [x, x, x, *more]),
            (AttentionGrad(True, 0.1, dropout), [x, x, x, y, logs, logs, *more]),
        ):
            values = [Value(f"x{i}", t) for i, t in enumerate(types)]
            made.append(single(op, values, f"{op.name}_{name}"))
    return made


@pytest.mark.parametrize("arch", first_quick(1, ["sm_90a", "sm_80"]))
def test_heads_of_any_size_fit_a_multiprocessor(arch: str, tmp_path: Path) -> None:
    compiler = need_command("nvcc")
    usage = build_device([lower(n, TARGET) for n in nodes()], tmp_path, compiler, arch)
    assert {symbol for symbol, u in usage.items() if u.spilled} == set()
    assert max(u.shared for u in usage.values()) <= STATIC_BYTES
    halves = [u for symbol, u in usage.items() if "f32" in symbol]
    assert all(u.registers <= 128 for u in halves), "two blocks of 256 threads"
