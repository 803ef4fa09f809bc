"""Every pointwise op has the same bits in plain C as in the CPU's registers: for all exponents,
random fractions and special numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphc
from graphc.base.dtypes import BFLOAT16
from graphc.ir import REGISTRY, Node, Type
from graphc.ops.base import Array, Op, Pointwise
from tests.kernels.c_harness import assert_same_bits, build_c
from tests.kernels.harness import build, single, traced

EXACT_ATTRIBUTES: dict[str, list[dict[str, Any]]] = {"polygamma": [{"order": 1}, {"order": 3}]}
INTEGERS = ("u8", "i8", "i32", "i64")
FRACTIONS = {"f32": 24, "f64": 4}
"""Random numbers of each sign and exponent."""


def ops(dtype: str) -> list[Op]:
    """The pointwise ops of one or several numbers of `dtype`."""
    known = [c for c in REGISTRY.values() if issubclass(c, Pointwise) and dtype in c.accepts]
    plain = [c for c in known if c.name not in ("cast", "widen", "where", "read_bf16")]
    return [c(**a) for c in plain for a in EXACT_ATTRIBUTES.get(c.name, [{}])]


def arity(op: Op) -> int:
    """The number of operands that the op's expression names."""
    return next(n for n in range(3, 0, -1) if f"{{{'abc'[n - 1]}}}" in op.expression)


def floats(dtype: str) -> Array:
    """Numbers of all exponents and both signs, some of ordinary size, and special ones."""
    kind, random = np.dtype(Type((), dtype).numpy_dtype), np.random.default_rng(0)
    fraction = np.finfo(kind).nmant
    word = np.dtype(f"u{kind.itemsize}")
    exponents = np.arange(2 ** (8 * kind.itemsize - fraction), dtype=word) << word.type(fraction)
    drawn = random.integers(0, 2**fraction, (FRACTIONS[dtype], exponents.size), word)
    special = [0, 1, -1, 0.5, -0.5, 2, -2, 3, np.inf, -np.inf, np.nan, -0.0, np.pi, 8388608, 1e9]
    ordinary = random.normal(scale=4, size=2000)
    edges = np.concatenate([np.nextafter(np.array(special, kind), kind.type(s)) for s in (-9, 9)])
    parts = ((drawn | exponents).ravel().view(kind), ordinary, special, edges)
    return np.concatenate([np.asarray(p, kind) for p in parts])


def integers(dtype: str) -> Array:
    """Small integers of `dtype`, those at its ends, and any."""
    kind, random = np.dtype(Type((), dtype).numpy_dtype), np.random.default_rng(0)
    low, high = np.iinfo(kind).min, np.iinfo(kind).max
    small = random.integers(max(low, -9), 10, 2000)
    parts = (small, random.integers(low, high, 2000, kind), [low, high, high - 1, low + 1] * 50)
    return np.concatenate([np.asarray(p, kind) for p in parts])


def operands(dtype: str, count: int) -> list[Array]:
    """The numbers, with others of them beside each."""
    first = (integers if dtype in INTEGERS else floats)(dtype)
    orders = [np.arange(first.size), *map(np.random.default_rng, range(1, count))]
    return [first[o if isinstance(o, np.ndarray) else o.permutation(first.size)] for o in orders]


def compare(nodes: list[Node], inputs: list[list[Array]], folder: Path) -> None:
    pairs = zip(nodes, inputs, build(nodes), build_c(nodes, folder), strict=True)
    for node, arrays, cpu, plain in pairs:
        assert_same_bits(plain.run(arrays), cpu.run(arrays), node.op)


@pytest.mark.parametrize("dtype", ["f32", "f64", *INTEGERS])
def test_ops_give_the_same_bits(dtype: str, tmp_path: Path):
    known = ops(dtype)
    inputs = [operands(dtype, arity(op)) for op in known]
    nodes = [
        single(op, [Type(a.shape, dtype) for a in arrays], f"{op.name}_{i}")
        for i, (op, arrays) in enumerate(zip(known, inputs, strict=True))
    ]
    compare(nodes, inputs, tmp_path)


def test_bytes_and_halves_convert_alike(tmp_path: Path):
    """All numbers of two bytes to others, and numbers of all exponents to two bytes."""
    words, wide = np.arange(65536).astype(np.uint16), floats("f32")
    sources = {"f16": words.view(np.float16), "bf16": words.view(BFLOAT16), "f32": wide}
    with np.errstate(invalid="ignore"):
        sources["f64"] = np.concatenate([wide.astype(np.float64), wide.astype(np.float64) / 3])
    sources |= {d: integers(d) for d in INTEGERS}
    nodes, inputs = [], []
    for source, array in sources.items():
        for target in (t for t in ("f16", "bf16", "f32", "f64", "bool") if t != source):
            nodes.append(
                traced(
                    f"{source}_{target}",
                    lambda x, t=target: graphc.astype(x, t),
                    [Type(array.shape, source)],
                )
            )
            inputs.append([array])
    small = np.arange(-120, 120, 0.25)
    for target in INTEGERS:
        kind = Type(small.shape, "f32")
        nodes.append(traced(f"to_{target}", lambda x, t=target: graphc.astype(x, t), [kind]))
        inputs.append([small.astype(np.float32)])
    compare(nodes, inputs, tmp_path)
