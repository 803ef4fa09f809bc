"""Graph <-> text, exact inverses: `parse(graph_text(g)) == g`, source positions included.

    graph loss_fn
      in    %x          : f32[100,1,28,28]
      state %conv1.bias : f32[20]
      %conv1 = conv2d(%x, %conv1.weight) stride=(1,1) ...  : f32[100,20,24,24]  # conv1 lenet.py:14
      update %conv1.bias = %bias.1
      return %loss

One line per node: outputs, op, inputs, attributes, the outputs' types, then `#` and where it comes
from: `d` if derived, the module path, `softmax()` if it is part of that, the user's lines. A graph
that an op holds (the body of a fused node) follows its line, indented; `in` and `return` lines are
left out where they name the same values as the node's inputs and outputs, and a `body NAME` line
where the name is the kernel's.

Spaces and punctuation inside names are written `%XX;` with the character's code in hexadecimal.
Attribute values are Python literals without spaces, `inf`, `nan` and `Layout(0,16)`. A constant of
at most `INLINE` elements prints its elements in the fewest digits that give the same bits back; a
larger one prints a digest, which `parse` looks up in `constants`. parser.py has the way back.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from graphc.base.dtypes import shown
from graphc.ir import Graph, Layout, Node, Value, Where
from graphc.ops.base import Array, Op
from graphc.ops.constant import Constant, Elements
from graphc.ops.fused import KernelNode

INLINE = 16
"""Elements: constants up to here are written out."""

_NAME_COLUMNS = 24
_CALL_COLUMNS = 56


def graph_text(graph: Graph) -> str:
    """Return the text of a graph, one line per input, state, node, update and result.

    Args:
        graph: The graph.

    Returns:
        The text, without a final newline.

    Example:
        >>> print(graphc.text.graph_text(graphc.trace(lambda x: x + 1, graphc.spec(2))))
        graph function
        ...
    """
    return "\n".join((f"graph {_escape(graph.name)}", *_body_lines(graph, "  ")))


def node_text(node: Node) -> str:
    """Return the line of one node, without its body and source position.

    Example:
        >>> node = graphc.trace(graphc.relu, graphc.spec(2)).nodes[0]
        >>> print(graphc.text.node_text(node))
        %relu = relu(%x) : f32[2]
    """
    types = ", ".join(str(v.type) for v in node.outputs)
    return f"{_values(node.outputs)} = {_call(node)} : {types}"


def large_constants(graph: Graph) -> dict[str, Array]:
    """Return the arrays that `graph_text` does not write out, by their digests.

    Example:
        >>> graphc.text.large_constants(graphc.trace(lambda x: x + 1, graphc.spec(2)))
        {}
    """
    found: dict[str, Array] = {}
    for node in graph.nodes:
        if isinstance(node.op, Constant) and not _is_inline(node.op.value):
            found[node.op.value.digest] = node.op.array
        for _, body in _bodies(node.op):
            found.update(large_constants(body))
    return found


def _body_lines(graph: Graph, indent: str, node: Node | None = None) -> Iterator[str]:
    if node is None or graph.inputs != node.inputs:
        yield from _declarations(indent, "in", graph.inputs, always=node is not None)
    yield from _declarations(indent, "state", graph.state)
    names = [_values(n.outputs) for n in graph.nodes]
    calls = [_call(n) for n in graph.nodes]
    name_width = max((len(s) for s in names if len(s) <= _NAME_COLUMNS), default=0)
    call_width = max((len(s) for s in calls if len(s) <= _CALL_COLUMNS), default=0)
    for inner, name, call in zip(graph.nodes, names, calls, strict=True):
        types = ", ".join(str(v.type) for v in inner.outputs)
        where = _where_text(inner.where)
        yield f"{indent}{name:{name_width}} = {call:{call_width}} : {types}{where}"
        for _, body in _bodies(inner.op):
            if not (isinstance(inner, KernelNode) and inner.op.kernel == body.name):
                yield f"{indent}    body {_escape(body.name)}"
            yield from _body_lines(body, indent + "    ", inner)
    for old, new in graph.updates:
        yield f"{indent}update {_value(old)} = {_value(new)}"
    if node is None or graph.outputs != node.outputs:
        yield f"{indent}return {_values(graph.outputs)}".rstrip()


def _declarations(
    indent: str, word: str, values: tuple[Value, ...], always: bool = False
) -> Iterator[str]:
    width = max((len(_value(v)) for v in values if len(_value(v)) <= _NAME_COLUMNS), default=0)
    for value in values:
        yield f"{indent}{word:5} {_value(value):{width}} : {value.type}"
    if always and not values:
        yield f"{indent}{word}"


def _call(node: Node) -> str:
    name = node.op.name
    if isinstance(node, KernelNode):
        name = f"{name} {_escape(node.op.kernel)}"
    inputs = f"{name}({_values(node.inputs)})"
    return " ".join((inputs, *(f"{k}={v}" for k, v in _attributes(node))))


def _attributes(node: Node) -> Iterator[tuple[str, str]]:
    if isinstance(node.op, Constant):
        elements = node.op.value
        if not _is_inline(elements):
            yield "digest", elements.digest
        else:
            flat = tuple(map(_element, shown(node.op.array).ravel()))
            yield "value", _literal(flat if elements.shape else flat[0])
        return
    for name, value in node.op.attributes.items():
        silent = isinstance(node, KernelNode) and (name == "kernel" or value == "")
        silent = silent or (name == "order" and value == "")
        silent = silent or (name in ("guarded", "part") and not value)
        if not isinstance(value, Graph) and not silent:
            yield name, _literal(value)


def _literal(value: Any) -> str:
    """`value` as Python writes it, without spaces."""
    if isinstance(value, (tuple, list)):
        items = [_literal(v) for v in value]
        return f"({items[0]},)" if len(items) == 1 else f"({','.join(items)})"
    if isinstance(value, Layout):
        return f"Layout({value.axis},{value.width})"
    if isinstance(value, np.generic):
        value = value.item()
    return str(value) if isinstance(value, _Literal) else repr(value).replace(" ", "\\x20")


def _is_inline(elements: Elements) -> bool:
    return elements.array is not None and elements.array.size <= INLINE


class _Literal(str):
    """Text that is a literal already."""


def _element(element: np.generic) -> Any:
    """What `_literal` writes for an element of a constant; `np.dtype.type(it)` has its bits."""
    if not isinstance(element, np.floating):
        return element.item()
    if np.isnan(element):
        usual = element.tobytes() == type(element)(np.nan).tobytes()
        return _Literal("nan" if usual else f"nan0x{element.tobytes()[::-1].hex()}")
    short = str(element)
    exact = type(element)(float(short)).tobytes() == element.tobytes()
    return _Literal(short) if exact else float(element)


def _where_text(where: Where) -> str:
    assert all(":" in line for line in where.lines), f"a line without its number: {where.lines}"
    parts = [f"@{where.turn}.{where.batch}"] if where.turn else []
    parts += ["d"] if where.derived else []
    if where.module:
        module = _escape(where.module)
        parts.append("%64;" if module == "d" else module)
    if where.function:
        parts.append(f"{_escape(where.function)}()")
    parts += [re.sub(r"[\s%]", _code, line) for line in where.lines]
    return f"  # {' '.join(parts)}" if parts else ""


def _value(value: Value) -> str:
    return f"%{_escape(value.name)}"


def _values(values: Iterable[Value]) -> str:
    return ", ".join(map(_value, values))


def _code(match: re.Match[str]) -> str:
    return f"%{ord(match[0]):x};"


@functools.lru_cache(maxsize=4096)
def _escape(name: str) -> str:
    return re.sub(r"[\s%,()=:#{};]", _code, name)


def _bodies(op: Op) -> Iterator[tuple[str, Graph]]:
    """The graphs that an op holds, with the names of their fields."""
    for name, value in op.attributes.items():
        if isinstance(value, Graph):
            yield name, value
