"""Move reshapes so that they do not separate kernels.

Pointwise ops move before them, into the epilogue of a contraction or next to their operands; slices
move after them, where a kernel reads through slices in place.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from graphc.ir import Node, Value
from graphc.ops.join import Concat
from graphc.ops.view import Reshape, Slice
from graphc.passes.simplify.sweep import Sweep

Shape = tuple[int, ...]


def before_reshape(node: Node, sweep: Sweep) -> Value | None:
    """Rewrite op(reshape(a), b) = reshape(op(a, reshape(b))), for the epilogue that makes a.

    Where b broadcasts or must be reshaped, a must have no other reader: its own values would be
    stored besides the result, where another kernel may read both. Nothing is gained if a reshape of
    another contraction's product stays before the op.
    """
    if not sweep.weights.any_reshaped(node.inputs):
        return None
    shape = node.output.type.shape
    for value in node.inputs:
        inner = sweep.producer(value)
        if inner is None or not isinstance(inner.op, Reshape) or value.type.shape != shape:
            continue
        (source,) = inner.inputs
        if not sweep.weights.is_product(source):
            continue
        others = [v for v in dict.fromkeys(node.inputs) if v != value and v.type.shape != ()]
        flat = {v: _flattened(v.type.shape, shape, source.type.shape) for v in others}
        wide = any(v.type.shape != shape for v in others)
        if None in flat.values() or (wide and value in sweep.shared):
            continue
        known = {v: _unreshaped(v, s, sweep) for v, s in flat.items() if s is not None}
        if any(_stays_after(v, source, known[v], sweep) for v in others):
            continue
        if None in known.values() and value in sweep.shared:
            continue
        moved = {
            v: known[v] or _reshaped(v, s, node, sweep) for v, s in flat.items() if s is not None
        }
        inputs = tuple(source if v == value else moved.get(v, v) for v in node.inputs)
        return sweep.emit(inner.op, (sweep.emit(node.op, inputs, node),), node)
    return None


def of_reshapes(node: Node, sweep: Sweep) -> Value | None:
    """Rewrite op(reshape(a), reshape(b)) = reshape(op(a, b)), for reshapes that are alike.

    So the kernel that makes one of them can compute the op too, as for the residual of a layer
    norm's gradient.
    """
    if not sweep.weights.any_reshaped(node.inputs):
        return None
    shape, root = node.output.type.shape, sweep.weights.root
    whole = [v for v in dict.fromkeys(node.inputs) if v.type.shape != ()]
    shapes = {root(v).type.shape for v in whole}
    if len(whole) < 2 or len(shapes) > 1 or shape in shapes:
        return None
    if any(v.type.shape != shape for v in whole):
        return None
    inputs = tuple(root(v) if v in whole else v for v in node.inputs)
    return sweep.emit(Reshape(shape), (sweep.emit(node.op, inputs, node),), node)


def reshape_of_slice(node: Node, inner: Node, sweep: Sweep) -> Value | None:
    """Rewrite reshape(slice(x)) = slice(reshape(x)), so that the slice is a view of x in place.

    The reshape must only split axes, and the slice must take whole runs of them.
    """
    (x,) = inner.inputs
    memory = sweep.producer(x)
    moves = memory is not None and memory.op.moves and not memory.op.is_planned
    parts = _split(inner.output.type.shape, node.output.type.shape)
    reads = inner.op.index(x.type) or ()
    if moves or parts is None or any(read.coefficients[d] != 1 for d, read in enumerate(reads)):
        return None
    shape: list[int] = []
    starts: list[int] = []
    for axis, part in enumerate(parts):
        run = math.prod(part[1:])
        extent, start = x.type.shape[axis], reads[axis].offset
        if extent % run or start % run:
            return None
        shape += [extent // run, *part[1:]]
        starts += [start // run, *(0 for _ in part[1:])]
    stops = tuple(s + n for s, n in zip(starts, node.output.type.shape, strict=True))
    whole = sweep.emit(Reshape(tuple(shape)), (x,), node)
    return sweep.emit(Slice(tuple(starts), stops, (1,) * len(shape)), (whole,), node)


def slice_of_split(node: Node, inner: Node, split: Node, sweep: Sweep) -> Value | None:
    """Rewrite reshape(slice(reshape(x))) = slice(x), as for gates cut from z.reshape(n, 4, width).

    The first reshape must only split axes. The slice takes some of the first part or one of the
    last, and the second reshape leaves as many axes as x has.
    """
    (x,), cut = split.inputs, inner.op.attributes
    parts = _split(x.type.shape, split.output.type.shape)
    if parts is None or node.output.type.rank != x.type.rank:
        return None
    ranges, axis = [], 0
    for part in parts:
        axes = range(axis, axis := axis + len(part))
        taken = [(cut["starts"][d], cut["stops"][d], cut["steps"][d]) for d in axes]
        found = _range(part, taken)
        if found is None:
            return None
        ranges.append(found)
    result = Slice(*map(tuple, zip(*ranges, strict=True)))
    if result.infer(x.type) != (node.output.type,):
        return None
    return sweep.emit(result, (x,), node)


def concat_of_reshapes(node: Node, sweep: Sweep) -> Value | None:
    """Rewrite concat(reshape(a), reshape(b)) = reshape(concat(a, b)), written in place.

    The reshapes must merge the axis of the concat with equal axes after it.
    """
    axis = node.op.attributes["axis"]
    found = [sweep.producer(v) for v in node.inputs]
    sources = [n.inputs[0] for n in found if n is not None and isinstance(n.op, Reshape)]
    if len(sources) != len(node.inputs) or len(sources) < 2:
        return None
    first = sources[0].type.shape
    merged = len(first) - node.output.type.rank
    tail = first[axis + 1 :]
    for value, source in zip(node.inputs, sources, strict=True):
        shape, inner = value.type.shape, source.type.shape
        run = math.prod(tail[:merged])
        expected = (*shape[:axis], shape[axis] // max(run, 1), *tail)
        if merged < 1 or inner != expected or shape[axis + 1 :] != tail[merged:]:
            return None
    joined = sweep.emit(Concat(axis), tuple(sources), node)
    return sweep.emit(Reshape(node.output.type.shape), (joined,), node)


def _stays_after(value: Value, source: Value, known: Value | None, sweep: Sweep) -> bool:
    """Return whether an operand is, or would become, a reshape of a contraction's product.

    The product has the shape of `source`.
    """
    if known is not None:
        return known.type.shape == source.type.shape and sweep.weights.is_barrier(known)
    return sweep.weights.is_product(sweep.weights.root(value))


def _flattened(shape: Shape, wide: Shape, flat: Shape) -> Shape | None:
    """Return an operand of `shape` in a broadcast to `wide` when that is reshaped to `flat`.

    It is None if it does not stay a broadcast.
    """
    if shape == wide:
        return flat
    common = 0
    while common < min(len(wide), len(flat)) and wide[-1 - common] == flat[-1 - common]:
        common += 1
    padded = (1,) * (len(wide) - len(shape)) + shape
    if any(n != 1 for n in padded[: len(wide) - common]):
        return None
    return (1,) * (len(flat) - common) + padded[len(wide) - common :]


def _unreshaped(value: Value, shape: Shape, sweep: Sweep) -> Value | None:
    """What is `value` as an operand of `shape` without a new reshape, if anything is."""
    root = sweep.weights.root(value)
    if root.type.shape == shape:
        return root
    # NumPy's broadcasting adds the leading axes.
    return value if value.type.shape == shape[len(shape) - value.type.rank :] else None


def _reshaped(value: Value, shape: Shape, like: Node, sweep: Sweep) -> Value:
    return sweep.emit(Reshape(shape), (value,), like)


def _range(part: Shape, taken: Sequence[tuple[int, int, int]]) -> tuple[int, int, int] | None:
    """Return the start, stop and step of what is taken of an axis that is split into several.

    `taken` has start, stop and step for each of them. The result is None if it is no such range.
    """
    size = math.prod(part)
    whole = [one == (0, n, 1) for one, n in zip(taken, part, strict=True)]
    (start, stop, step), (last, end, _) = taken[0], taken[-1]
    if all(whole[1:]) and step == 1:
        run = size // part[0]
        return start * run, stop * run, 1
    if all(whole[:-1]) and end == last + 1:
        return last, size, part[-1]
    return None


def _split(source: Shape, target: Shape) -> Sequence[Shape] | None:
    """Return the axes of `target` that each axis of `source` is split into.

    It is None if any are merged, or all stay whole.
    """
    parts: list[Shape] = []
    axis = 0
    for extent in source:
        part: Shape = ()
        while axis < len(target) and (not part or math.prod(part) < extent):
            part = (*part, target[axis])
            axis += 1
        if math.prod(part) != extent or not part or extent == 0:
            return None
        parts.append(part)
    return parts if axis == len(target) and len(target) > len(source) else None
