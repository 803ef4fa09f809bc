"""Parse the text of a graph, line by line; writer.py describes the format."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np

from graphc.base.dtypes import convert
from graphc.base.errors import GraphError
from graphc.ir import DTYPES, ROW_MAJOR, Graph, Layout, Node, Type, Value, Where
from graphc.ops.base import REGISTRY, Array, Op
from graphc.ops.constant import Constant, Elements
from graphc.ops.fused import Fused, KernelNode
from graphc.text.literal import element_of, fits, literal_of

MOST_LETTERS = 200
"""Of a type; and of what a message shows of a literal."""

_NODE = re.compile(
    r"(?P<outputs>%[^=]*?) *= (?P<op>[\w.]+)(?: (?P<kernel>\S*?))?\((?P<inputs>.*?)\)"
)
_TYPE = re.compile(r"(\w+)\[([0-9,]*)\](?:\{lanes=([0-9]{1,3})x([0-9]{1,3})\})?")
_TYPES = re.compile(r"\w+\[[^\]]*\](?:\{[^}]*\})?")


def parse(text: str, constants: Mapping[str, Array] | None = None) -> Graph:
    """Return the graph that prints as `text`.

    Args:
        text: The text of a graph.
        constants: Arrays of large constants by digest. Without its array a constant stays
            unresolved: it equals the original and can be printed, but not run.

    Returns:
        The graph.

    Raises:
        GraphError: A line is not understood; the message has its number.

    Example:
        >>> graph = graphc.trace(lambda x: x + 1, graphc.spec(2))
        >>> graphc.text.parse(graphc.text.graph_text(graph)) == graph
        True
    """
    parser = _Parser(text, constants or {})
    try:
        return parser.parse()
    except RecursionError:
        raise parser.error("fewer graphs within graphs", f"{parser.place} lines") from None


class _Scope:
    """A graph so far: what its lines have said."""

    def __init__(self, around: Node | None) -> None:
        self.around = around
        """The node that holds this graph: its inputs and outputs are those of the body, unless
        the body says otherwise."""
        self.declared: dict[str, list[Value]] = {"state": []}
        self.values: dict[str, Value] = {}
        self.nodes: list[Node] = []
        self.updates: list[tuple[Value, Value]] = []
        self.outputs: tuple[Value, ...] | None = None

    def define(self, values: Sequence[Value]) -> None:
        self.values.update((v.name, v) for v in values)


class _Parser:
    """A place in the lines that are not blank."""

    def __init__(self, text: str, constants: Mapping[str, Array]) -> None:
        numbered = enumerate(text.split("\n"), 1)
        self.lines = [(i, len(s) - len(s.lstrip(" ")), s.strip(" ")) for i, s in numbered]
        self.lines = [line for line in self.lines if line[2]]
        self.constants = constants
        self.place = 0

    def parse(self) -> Graph:
        if not self.lines:
            raise GraphError("graph text: expected graph NAME, got no text")
        line = self.next()
        if not line.startswith("graph "):
            raise self.error("graph NAME", line)
        graph = self.graph(self.name(line[len("graph ") :]), 0, None)
        if self.place < len(self.lines):
            raise self.error("the end of the text", self.next())
        return graph

    def next(self) -> str:
        self.place += 1
        return self.lines[self.place - 1][2]

    def indent(self) -> int:
        """Of the next line; -1 at the end."""
        return self.lines[self.place][1] if self.place < len(self.lines) else -1

    def error(self, expected: str, got: str) -> GraphError:
        """About the line that `next` gave last."""
        number = self.lines[self.place - 1][0]
        return GraphError(f"graph text, line {number}: expected {expected}, got {_short(got)!r}")

    def graph(self, name: str, outer: int, around: Node | None) -> Graph:
        """From the lines that are indented by more than `outer`."""
        scope, indent = _Scope(around), self.indent()
        while self.indent() == indent > outer and scope.outputs is None:
            if self.lines[self.place][2].startswith("body "):
                break  # the next graph of the same op
            self.statement(scope, self.next(), indent)
        inputs = scope.declared.get("in")
        if inputs is None:
            inputs = list(around.inputs) if around else []
        if scope.outputs is None:
            if around is None:
                raise self.error("return after the last node", self.lines[self.place - 1][2])
            scope.outputs = tuple(self.named(scope, v.name) for v in around.outputs)
        state, nodes = tuple(scope.declared["state"]), tuple(scope.nodes)
        return Graph(name, tuple(inputs), state, nodes, scope.outputs, tuple(scope.updates))

    def statement(self, scope: _Scope, line: str, indent: int) -> None:
        word, _, rest = line.partition(" ")
        if word in ("in", "state"):
            self.declare(scope, word, self.declaration(rest.strip()), line)
            return
        if scope.around and not scope.nodes and "in" not in scope.declared:
            scope.define(scope.around.inputs)
        if word == "return":
            scope.outputs = self.uses(scope, rest)
        elif word == "update":
            pair = self.uses(scope, rest.replace("=", ","))
            if len(pair) != 2:
                raise self.error("update %STATE = %VALUE", line)
            scope.updates.append((pair[0], pair[1]))
        else:
            if scope.updates:
                raise self.error("an update or return", line)
            scope.nodes.append(self.node(scope, line, indent))
            scope.define(scope.nodes[-1].outputs)

    def declare(self, scope: _Scope, word: str, found: Sequence[Value], line: str) -> None:
        if scope.nodes or scope.updates:
            raise self.error("inputs and state before nodes", line)
        known = {v.name for values in scope.declared.values() for v in values}
        for value in found:
            if value.name in known:
                raise self.error("a name that is new", str(value))
        scope.declared.setdefault(word, []).extend(found)
        scope.define(found)

    def declaration(self, text: str) -> list[Value]:
        if not text:
            return []
        name, _, kind = text.partition(" : ")
        if not name.startswith("%"):
            raise self.error("%NAME : TYPE", text)
        return [Value(self.name(name[1:].rstrip(" ")), self.type_of(kind))]

    def type_of(self, text: str) -> Type:
        match = _TYPE.fullmatch(text.strip())
        if match is not None and match[1] in DTYPES and len(text) < MOST_LETTERS:
            shape = tuple(int(n) for n in match[2].split(",") if n)
            layout = Layout(int(match[3]), int(match[4])) if match[3] else ROW_MAJOR
            possible = layout.axis is None or (layout.axis < len(shape) and layout.width > 0)
            if possible and all(n < 2**63 for n in shape):
                return Type(shape, match[1], layout)
        raise self.error("a type such as f32[2,3]", text.strip())

    def node(self, scope: _Scope, line: str, indent: int) -> Node:
        match = _NODE.match(line)
        if match is None:
            raise self.error("%OUTPUT = op(%INPUT, ...) ... : TYPE", line)
        attribute_text, _, rest = line[match.end() :].partition(" : ")
        type_text, _, where_text = rest.partition(" # ")
        types = [self.type_of(t) for t in _TYPES.findall(type_text)]
        names = [self.name(t.strip()[1:]) for t in match["outputs"].split(",")]
        if len(types) != len(names) or _TYPES.sub("", type_text).strip(", "):
            raise self.error(f"{len(names)} types", type_text.strip())
        outputs = tuple(map(Value, names, types))
        inputs = self.uses(scope, match["inputs"])
        op_class = REGISTRY.get(match["op"])
        if op_class is None:
            raise self.error("the name of an op", match["op"])
        attributes = self.attributes(attribute_text)
        if match["kernel"] is not None:
            attributes["kernel"] = self.name(match["kernel"])
        node = Node(Op(), inputs, outputs, self.where(where_text))
        op = self.op(op_class, attributes, node, indent)
        if isinstance(op, Fused):
            return KernelNode(op, inputs, outputs, node.where)
        return replace(node, op=op)

    def op(self, op_class: type[Op], attributes: dict[str, Any], node: Node, indent: int) -> Op:
        if op_class is Constant:
            return self.constant(attributes, node.output.type)
        for field in fields(op_class):  # type: ignore[arg-type]
            kind = str(getattr(field.type, "__name__", field.type))
            if kind == "Graph":
                attributes[field.name] = self.held(attributes.get("kernel"), node, indent)
            elif field.name in attributes and not fits(attributes[field.name], kind):
                expected = f"{field.name} of {op_class.name} as {kind}"
                raise self.error(expected, str(attributes[field.name]))
        try:
            return op_class(**attributes)
        except TypeError:
            got = ", ".join(attributes) or "none"
            raise self.error(f"the attributes of {op_class.name}", got) from None

    def held(self, kernel: str | None, node: Node, indent: int) -> Graph:
        """The graph that the op of `node` holds, on the lines behind it."""
        if self.indent() <= indent:
            raise self.error("the graph of the op, indented", "none")
        if self.lines[self.place][2].startswith("body "):
            kernel = self.name(self.next()[len("body ") :])
        if kernel is None:
            raise self.error("body NAME behind the op", self.lines[self.place][2])
        return self.graph(kernel, indent, node)

    def attributes(self, text: str) -> dict[str, Any]:
        attributes: dict[str, Any] = {}
        for token in text.split():
            name, _, literal = token.partition("=")
            try:
                attributes[name] = literal if name == "digest" else literal_of(literal)
            except (SyntaxError, ValueError, MemoryError, RecursionError):
                raise self.error("attribute=value", token) from None
        return attributes

    def constant(self, attributes: dict[str, Any], kind: Type) -> Constant:
        if "digest" in attributes:
            known = Elements(kind.dtype, kind.shape, attributes["digest"])
            array = self.constants.get(known.digest)
            found = known if array is None else Elements.of(array)
            if found != known:
                got = f"{Type(found.shape, found.dtype)} {found.digest}"
                raise self.error(f"constants to hold {kind} {known.digest}", got)
            return Constant(found)
        value = attributes.get("value", ())
        elements = value if isinstance(value, tuple) else (value,)
        if len(elements) != kind.size:
            raise self.error(f"{kind.size} elements of {kind}", f"{len(elements)}")
        wide = np.float32 if kind.dtype == "bf16" else kind.numpy_dtype
        array = np.empty(kind.size, wide)
        try:
            with np.errstate(all="ignore"):
                for i, element in enumerate(elements):
                    array[i] = element_of(element, kind.dtype)
            return Constant.of(convert(array, kind.numpy_dtype).reshape(kind.shape))
        except (ValueError, OverflowError):
            raise self.error(f"elements of {kind}", str(value)) from None

    def named(self, scope: _Scope, name: str) -> Value:
        if name not in scope.values:
            raise self.error("a value that is defined before", f"%{name}")
        return scope.values[name]

    def uses(self, scope: _Scope, text: str) -> tuple[Value, ...]:
        parts = [part.strip() for part in text.split(",")]
        for part in parts:
            if part and not part.startswith("%"):
                raise self.error("%NAME", part)
        return tuple(self.named(scope, self.name(part[1:])) for part in parts if part)

    def name(self, text: str) -> str:
        try:
            return unescape(text)
        except (ValueError, OverflowError):
            raise self.error("the codes of characters in a name", text) from None

    def where(self, text: str) -> Where:
        tokens = text.split()
        turn = batch = 0
        if tokens and re.fullmatch(r"@[1-9]\d{0,8}\.\d{1,9}", tokens[0]):
            turn, batch = map(int, tokens.pop(0)[1:].split("."))
        derived = bool(tokens) and tokens[0] == "d"
        tokens = tokens[derived:]
        given = tokens and ":" not in tokens[0] and not tokens[0].endswith("()")
        module = self.name(tokens.pop(0)) if given else ""
        function = tokens.pop(0)[:-2] if tokens and tokens[0].endswith("()") else ""
        lines = tuple(map(self.name, tokens))
        for line in lines:
            if ":" not in line:
                raise self.error("a line such as file.py:3", line)
        return Where(module, lines, derived, self.name(function), turn, batch)


def unescape(text: str) -> str:
    """Return the name that was written with `%XX;` for some characters."""
    return re.sub(r"%([0-9a-f]+);", lambda match: chr(int(match[1], 16)), text)


def _short(text: str) -> str:
    return text if len(text) <= MOST_LETTERS else f"{text[:MOST_LETTERS]}..."
