"""Two graphs tried on the same numbers, where no proof was found that they are equal.

Both are run in NumPy, in float64 where they say float32: from values that were proved equal in both
and get numbers of their own, or, where results then differ or are no numbers, from the inputs and
the state. Four sets of numbers separate them: random ones, ramps, no two of which are alike, large
ones, of which exponentials overflow where nothing is subtracted first, and positive ones, which
have roots and logarithms.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from graphc.base.dtypes import convert, widened
from graphc.ir import NARROW, Array, Graph, Type, Value
from graphc.ir.interpret import evaluate
from graphc.ops.constant import PLACED

KINDS = {"random": 1.0, "ramps": 1.0, "large": 100.0, "positive": 1.0}
"""The numbers, and what they are multiplied by."""
TOPS = {"random": (2, 2), "ramps": (4, 1000), "large": (4, 4), "positive": (3, 3)}
SEPARATE = 2
"""Of the kinds of numbers, those that must give numbers again where a graph is cut."""
"""Below which whole numbers lie, of arrays and of single ones: near each other and far apart."""
UNITS = {"bf16": 2.0**-8, "f16": 2.0**-11, "f32": 2.0**-24, "f64": 2.0**-53}
SLACK = 256.0
"""Roundings of the largest element by which results may differ: sums are added in other orders."""


@dataclass(frozen=True)
class Difference:
    """Where two results differ the most."""

    place: tuple[int, ...]
    expected: float
    got: float

    def __str__(self) -> str:
        return f"at {list(self.place)} expected {self.expected:g}, got {self.got:g}"


def difference(
    before: Graph,
    after: Graph,
    pair: tuple[Value, Value],
    known: Iterable[str],
    arrays: Mapping[str, Array],
) -> Difference | None:
    """Return how the values `pair` of two graphs differ, or None.

    `known` are the names of values that are equal in both.
    """
    cut = {name for name in known if name not in (pair[0].name, pair[1].name)}
    found, separated = _difference(before, after, pair, cut, arrays)
    if cut and (found is not None or separated < SEPARATE):
        found, _ = _difference(before, after, pair, set(), arrays)
    return found


def _difference(
    before: Graph,
    after: Graph,
    pair: tuple[Value, Value],
    cut: set[str],
    arrays: Mapping[str, Array],
) -> tuple[Difference | None, int]:
    """How they differ, and how many kinds of numbers gave numbers again."""
    separated = 0
    graphs = [_from(g, v, cut) for g, v in zip((before, after), pair, strict=True)]
    values = [v for g in graphs for v in (*g.inputs, *(o for n in g.nodes for o in n.outputs))]
    for kind in KINDS:
        results = []
        for graph in graphs:
            inputs = [_numbers(v, kind, arrays) for v in graph.inputs]
            ((result,), _) = evaluate(graph, inputs)
            results.append(np.asarray(result))
        found = _furthest(results[0], results[1], _unit(v.type for v in values))
        if found is not None:
            return found, separated
        finite = np.isfinite(np.asarray(widened(results[0]), np.float64))
        separated += bool(2 * finite.sum() >= finite.size)
    return None, separated


def _from(graph: Graph, result: Value, cut: set[str]) -> Graph:
    """What makes `result` from inputs, state and the values named in `cut`, which are inputs."""
    nodes, inputs = [], dict[Value, None]()
    needed = {result}
    for node in reversed(graph.nodes):
        mine = [v for v in node.outputs if v in needed and (v.name not in cut)]
        if mine:
            nodes.append(node)
            needed.update(node.inputs)
    made = {v for n in nodes for v in n.outputs if v.name not in cut}
    inputs.update((v, None) for n in nodes for v in n.inputs if v not in made)
    if result not in made:
        inputs[result] = None
    return replace(
        graph, inputs=tuple(inputs), state=(), nodes=tuple(reversed(nodes)), outputs=(result,),
        updates=(),
    )  # fmt: skip


def _numbers(value: Value, kind: str, arrays: Mapping[str, Array]) -> Array:
    """The numbers that a value of this name gets in each graph."""
    digest = value.name.removeprefix(PLACED)
    if digest != value.name and digest in arrays:
        return arrays[digest]
    type, seed = value.type, zlib.crc32(f"{kind} {value.name}".encode())
    generator = np.random.default_rng(seed)
    if not type.dtype.startswith(("f", "bf")):
        few, many = TOPS[kind]
        top = 2 if type.dtype == "bool" else few if type.rank else many
        return generator.integers(0, top, type.shape).astype(type.numpy_dtype)
    if kind != "ramps":
        numbers = KINDS[kind] * generator.standard_normal(type.shape)
        numbers = np.abs(numbers) + 0.1 if kind == "positive" else numbers
    else:
        ramp = np.arange(math.prod(type.shape), dtype=np.float64).reshape(type.shape)
        numbers = np.sin(ramp + seed % 97) + 0.25
    return _stored(numbers, type)


def _stored(numbers: Array, type: Type) -> Array:
    return convert(numbers, type.numpy_dtype) if type.dtype in NARROW else numbers


def _unit(types: Iterable[Type]) -> float:
    return max((UNITS[t.dtype] for t in types if t.dtype in UNITS), default=0.0)


def _furthest(expected: Array, got: Array, unit: float) -> Difference | None:
    a, b = (np.asarray(widened(x), np.float64) for x in (expected, got))
    if a.shape != b.shape:
        return Difference((), float(a.size), float(b.size))
    if not a.size:
        return None
    with np.errstate(all="ignore"):
        finite = np.abs(a[np.isfinite(a)])
        allowed = SLACK * unit * (finite.max() if finite.size else 0.0)
        off = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, np.abs(a - b))
        off = np.where(np.isnan(off), np.inf, off)
    place = np.unravel_index(int(np.argmax(off)), off.shape)
    if not off[place] > allowed:
        return None
    return Difference(tuple(map(int, place)), float(a[place]), float(b[place]))
