"""Ops that move, join, read and reduce elements, windows and loops, as ONNX's operators."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from onnx import helper

from graphc import ops
from graphc.base.errors import GraphError
from graphc.ir import NARROW, Graph, Node, Value
from graphc.onnx.dtypes import NUMBERS
from graphc.onnx.writers.rules import Writer, in_i32, writer_of, writes
from graphc.ops.attention import Attention
from graphc.ops.loops.scan import Scan


@writes(ops.Constant)
def constant(w: Writer, op: ops.Constant) -> str:
    assert w.node is not None
    return w.constant(op.array, w.node.outputs[0].name)


@writes(ops.Iota)
def iota(w: Writer, op: ops.Iota) -> str:
    return w.constant(op.evaluate()[0], "iota")


def _reduction(operator: str) -> Callable[..., str]:
    def write(w: Writer, op: Any, x: str) -> str:
        if not op.axes:
            return str(w.add("Identity", x))
        return str(w.add(operator, x, w.integers(op.axes), keepdims=int(op.keepdims)))

    return write


writes(ops.Sum)(in_i32(_reduction("ReduceSum")))
writes(ops.Max)(_reduction("ReduceMax"))
writes(ops.Min)(_reduction("ReduceMin"))
writes(ops.Prod)(in_i32(_reduction("ReduceProd")))


def reshaped(w: Writer, x: str, shape: tuple[int, ...]) -> str:
    """x in another shape."""
    return str(w.add("Reshape", x, w.integers(shape), allowzero=int(0 in shape)))


@writes(ops.Reshape)
def reshape(w: Writer, op: ops.Reshape, x: str) -> str:
    return reshaped(w, x, op.shape)


@writes(ops.BroadcastTo)
def broadcast_to(w: Writer, op: ops.BroadcastTo, x: str) -> str:
    return str(w.add("Expand", x, w.integers(op.shape)))


@writes(ops.PermuteDims)
def permute_dims(w: Writer, op: ops.PermuteDims, x: str) -> str:
    return str(w.add("Transpose", x, perm=list(op.axes)) if op.axes else w.add("Identity", x))


@writes(ops.Flip)
def flip(w: Writer, op: ops.Flip, x: str) -> str:
    if not op.axes:
        return str(w.add("Identity", x))
    count = len(op.axes)
    first, last = w.integers([-1] * count), w.integers([-(2**31)] * count)
    return str(w.add("Slice", x, first, last, w.integers(op.axes), w.integers([-1] * count)))


@writes(ops.Slice)
def slice_(w: Writer, op: ops.Slice, x: str) -> str:
    if not op.starts:
        return str(w.add("Identity", x))
    axes = w.integers(range(len(op.starts)))
    return str(
        w.add("Slice", x, w.integers(op.starts), w.integers(op.stops), axes, w.integers(op.steps))
    )


@writes(ops.Concat)
def concat(w: Writer, op: ops.Concat, *arrays: str) -> str:
    return str(w.add("Concat", *arrays, axis=op.axis))


@writes(ops.Pad)
def pad(w: Writer, op: ops.Pad, x: str) -> str:
    """Elements between those of x are a padded last axis of extent 1, cut behind the last."""
    shape = list(w.shape())
    for axis, between in enumerate(op.interior):
        if between and shape[axis]:
            x = reshaped(w, x, (*shape[: axis + 1], 1, *shape[axis + 1 :]))
            apart = [0] * (2 * len(shape) + 2)
            apart[len(shape) + 1 + axis + 1] = between
            x = w.add("Pad", x, w.integers(apart), w.number(op.value, w.dtype()))
            shape[axis] *= between + 1
            x = reshaped(w, x, tuple(shape))
            shape[axis] -= between
            last = w.integers([shape[axis]])
            x = w.add("Slice", x, w.integers([0]), last, w.integers([axis]))
    widths = w.integers([*op.low, *op.high])
    return str(w.add("Pad", x, widths, w.number(op.value, w.dtype())))


def _guarded(w: Writer, indices: str, kind: str, extent: int) -> tuple[str, str]:
    """(places in range, whether they were): graphc reads 0 where ONNX fails, or counts back."""
    zero, end = w.number(0, kind), w.number(extent, kind)
    inside = w.add("And", w.add("GreaterOrEqual", indices, zero), w.add("Less", indices, end))
    return str(w.add("Where", inside, indices, zero)), str(inside)


def _zeros(w: Writer) -> str:
    """Zeros of the type of the node's output."""
    assert w.node is not None
    kind = w.node.outputs[0].type
    return str(w.add("Expand", w.number(0, kind.dtype), w.integers(kind.shape)))


@writes(ops.Take)
def take(w: Writer, op: ops.Take, x: str, indices: str) -> str:
    if not w.shape()[op.axis]:
        return _zeros(w)
    places, inside = _guarded(w, indices, w.dtype(1), w.shape()[op.axis])
    found = w.add("Gather", x, places, axis=op.axis)
    behind = len(w.shape()) - op.axis - 1
    inside = reshaped(w, inside, (*w.shape(1), *[1] * behind))
    return str(w.add("Where", inside, found, w.number(0, w.dtype())))


@writes(ops.TakeAlongAxis)
def take_along_axis(w: Writer, op: ops.TakeAlongAxis, x: str, indices: str) -> str:
    if not w.shape()[op.axis]:
        return _zeros(w)
    places, inside = _guarded(w, indices, w.dtype(1), w.shape()[op.axis])
    found = w.add("GatherElements", x, places, axis=op.axis)
    return str(w.add("Where", inside, found, w.number(0, w.dtype())))


@writes(ops.Scatter)
def scatter(w: Writer, op: ops.Scatter, x: str, indices: str, updates: str) -> str:
    """Write to one index beyond the end for indices out of range, and cut it off.

    f16 and bf16 are combined as f32.
    """
    kind = "f32" if w.dtype() in NARROW else w.dtype()
    x, updates = (w.add("Cast", t, to=NUMBERS[kind]) for t in (x, updates))
    extent, rank = w.shape()[op.axis], len(w.shape())
    zero, end = w.number(0, w.dtype(1)), w.number(extent, w.dtype(1))
    inside = w.add("And", w.add("GreaterOrEqual", indices, zero), w.add("Less", indices, end))
    places = w.add("Where", inside, indices, end)
    widths = [0] * (2 * rank)
    widths[rank + op.axis] = 1
    longer = w.add("Pad", x, w.integers(widths), w.number(0, kind))
    names = {"replace": "none", "sum": "add", "prod": "mul"}
    how = names.get(op.combine, op.combine)
    y = w.add("ScatterElements", longer, places, updates, axis=op.axis, reduction=how)
    y = w.add("Slice", y, w.integers([0]), w.integers([extent]), w.integers([op.axis]))
    return str(w.add("Cast", y, to=NUMBERS[w.dtype()]))


@writes(ops.Cumsum)
@in_i32
def cumsum(w: Writer, op: ops.Cumsum, x: str) -> str:
    return str(w.add("CumSum", x, w.number(op.axis, "i64"), reverse=int(op.reverse)))


@writes(ops.Sort)
def sort(w: Writer, op: ops.Sort, x: str) -> Any:
    """Booleans as integers, which ONNX orders."""
    count, is_bool = w.integers([op.count]), w.dtype() == "bool"
    x = w.add("Cast", x, to=NUMBERS["i32"]) if is_bool else x
    y, places = w.add("TopK", x, count, outputs=2, axis=op.axis, largest=int(op.descending))
    return (w.add("Cast", y, to=NUMBERS["bool"]) if is_bool else y), places


@writes(ops.Conv2d)
def conv2d(w: Writer, op: ops.Conv2d, x: str, weight: str) -> str:
    return str(
        w.add(
            "Conv",
            x,
            weight,
            strides=op.stride,
            pads=[*op.padding, *op.padding],
            dilations=op.dilation,
            group=op.groups,
        )
    )


@writes(ops.Conv2dDgrad)
def conv2d_dgrad(w: Writer, op: ops.Conv2dDgrad, dy: str, weight: str) -> str:
    """A transposed convolution."""
    extra = [
        size - ((n - 1) * s - 2 * p + d * (k - 1) + 1)
        for size, n, s, p, d, k in zip(
            op.size, w.shape()[2:], op.stride, op.padding, op.dilation, w.shape(1)[2:], strict=True
        )
    ]
    return str(
        w.add(
            "ConvTranspose",
            dy,
            weight,
            strides=op.stride,
            pads=[*op.padding, *op.padding],
            dilations=op.dilation,
            group=op.groups,
            output_padding=extra,
        )
    )


@writes(ops.MaxPool2d)
def max_pool2d(w: Writer, op: ops.MaxPool2d, x: str) -> Any:
    """Places in windows are for gradients alone."""
    assert w.node is not None
    if w.node.outputs[1].name in w.used:
        raise GraphError("onnx.save: places in windows of max_pool2d are not offered")
    padding = [*op.padding, *op.padding]
    y = w.add("MaxPool", x, kernel_shape=op.kernel_size, strides=op.stride, pads=padding)
    return y, ""


@writes(ops.AvgPool2d)
def avg_pool2d(w: Writer, op: ops.AvgPool2d, x: str) -> str:
    return str(
        w.add(
            "AveragePool",
            x,
            kernel_shape=op.kernel_size,
            strides=op.stride,
            pads=[*op.padding, *op.padding],
            count_include_pad=int(op.count_include_pad),
        )
    )


@writes(Attention)
def attention(w: Writer, op: Attention, q: str, k: str, v: str, *mask: str) -> Any:
    """Products around a softmax; keys and values stand for several heads of queries each."""
    assert not op.dropout, "its counter is state that is updated"
    (n, h, t, _), (_, g, u, e) = w.shape(), w.shape(1)
    kind = w.dtype()

    def repeated(x: str, last: int) -> str:
        if g == h:
            return x
        wide = reshaped(w, x, (n, g, 1, u, last))
        wide = w.add("Expand", wide, w.integers((n, g, h // g, u, last)))
        return reshaped(w, wide, (n, h, u, last))

    keys = w.add("Transpose", repeated(k, e), perm=[0, 1, 3, 2])
    scores = w.add("Mul", w.add("MatMul", q, keys), w.number(op.scale, kind))
    least = w.number(-math.inf, kind)
    if mask and w.dtype(3) == "bool":
        scores = w.add("Where", mask[0], scores, least)
    elif mask:
        scores = w.add("Add", scores, mask[0])
    if op.causal:
        allowed = w.constant(np.tril(np.ones((t, u), np.bool_)), "causal")
        scores = w.add("Where", allowed, scores, least)
    weights = w.add("Softmax", scores, axis=-1)
    if op.rounded:
        weights = w.add("Cast", w.add("Cast", weights, to=NUMBERS[op.rounded]), to=NUMBERS[kind])
    y = w.add("MatMul", weights, repeated(v, w.shape(2)[3]))
    y = w.add("Transpose", y, perm=[0, 2, 1, 3])
    return y, w.add("ReduceLogSumExp", scores, w.integers([-1]), keepdims=0)


@writes(Scan)
def scan(w: Writer, op: Scan, *inputs: str) -> Any:
    """A Scan whose body reads what does not change from around it."""
    assert w.node is not None
    constants, carries, elements = op.split_inputs(list(inputs))
    if not op.length:
        return (*carries, *(empty(w, v) for v in w.node.outputs[len(carries) :]))
    inner = Writer(w.names, w.used)
    fixed, old, parts = op.split_inputs(list(op.body.inputs))
    names = dict(zip(fixed, constants, strict=True))
    names |= {value: w.names.fresh(value.name) for value in (*old, *parts)}
    declared = [value_info(names[v], v) for v in (*old, *parts)]
    if not elements:
        elements = [w.constant(np.zeros(op.length, np.float32), "steps")]
        step = w.names.fresh("step")
        declared.append(helper.make_tensor_value_info(step, NUMBERS["f32"], ()))
    results = write_graph(inner, op.body, names)
    ends = [value_info(n, v) for n, v in zip(results, op.body.outputs, strict=True)]
    stacks = len(results) - len(carries)
    made = w.add(
        "Scan",
        *carries,
        *elements,
        outputs=len(results),
        body=helper.make_graph(inner.nodes, op.body.name, declared, ends),
        num_scan_inputs=len(elements),
        scan_input_directions=[int(op.reverse)] * len(elements),
        **({"scan_output_directions": [int(op.reverse)] * stacks} if stacks else {}),
    )
    return made if isinstance(made, tuple) else (made,)


def empty(w: Writer, value: Value) -> str:
    """A constant without elements, of the type of `value`."""
    return w.constant(np.zeros(value.type.shape, value.type.numpy_dtype), value.name)


def value_info(name: str, value: Value) -> Any:
    """What ONNX calls a value with a type."""
    return helper.make_tensor_value_info(name, NUMBERS[value.type.dtype], value.type.shape)


def write_graph(w: Writer, graph: Graph, names: dict[Value, str]) -> list[str]:
    """Write the nodes and return the names of the outputs, each of a node of its own.

    `names` holds those of the inputs, and gets the others.
    """
    for node in graph.nodes:
        write_node(w, node, names)
    taken = {name for node in w.nodes for name in node.output}
    results: list[str] = []
    for value in graph.outputs:
        name = names[value]
        if name not in taken or name in results:
            w.node = Node(ops.StopGradient(), (value,), (value,))
            name = w.add("Identity", name)
        results.append(name)
    return results


def write_node(w: Writer, node: Node, names: dict[Value, str]) -> None:
    """Write one node, whose op has a writer. What has no elements is a constant."""
    w.node = node
    write = writer_of(node.op)
    assert write is not None, node
    if all(v.type.size == 0 for v in node.outputs):
        made = tuple(empty(w, v) for v in node.outputs)
    else:
        made = write(w, node.op, *(names[value] for value in node.inputs))
    names.update(zip(node.outputs, made if isinstance(made, tuple) else (made,), strict=True))


def not_offered(graph: Graph) -> list[tuple[str, str]]:
    """(op, where it stands) of each node without a writer, bodies included."""
    found = []
    for node in graph.nodes:
        if writer_of(node.op) is None:
            found.append((node.op.name, str(node.where)))
        if isinstance(node.op, Scan):
            found += not_offered(node.op.body)
    return found


def names_read(graph: Graph) -> set[str]:
    """The names of all values that a node or the caller reads, bodies included."""
    found = {value.name for value in graph.outputs}
    for node in graph.nodes:
        found |= {value.name for value in node.inputs}
        if isinstance(node.op, Scan):
            found |= names_read(node.op.body)
    return found
