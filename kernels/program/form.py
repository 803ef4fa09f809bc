"""Kernels that are equal up to names: the form of a node, and texts with holes for names.

A kernel is lowered from its node's form: the node with numbers for the names of its values and
kernels, and without places in the user's program. Such a number is printed as a hole, so the text
is that of each node of the form; a node's names fill the holes where somebody reads it. Nodes are
of one form if they have the same structure: the same ops of the same inputs, of the same types.
Nodes of different forms may still have one text, for instance where one of them reshapes. So holes
are numbered once more for `canonical_text`, in the order of the text.
"""

from __future__ import annotations

import functools
import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from graphc.ir import Node, Value
from graphc.ir.names import Names
from graphc.kernels.program.body.names import CLOSE, OPEN, identifier
from graphc.ops.fused import Fused, KernelNode

WIDTH = 120
"""Columns of a line with names in its holes, where a comma allows it."""
_TOKEN = re.compile(rf"{OPEN}(\d+){CLOSE}([0-9A-Za-z_]*)")
_WORD = re.compile(r"[0-9A-Za-z_]+")
_UNMARKED = str.maketrans(OPEN + CLOSE, "__")


@dataclass(frozen=True)
class Form:
    """What a node computes, by any names. Forms compare by `structure`."""

    structure: tuple[object, ...]
    """The ops of the node's body, what they read, and the types of what they make."""
    numbered: Node = field(compare=False)
    """The node with numbers for names."""
    names: tuple[str, ...] = field(compare=False)
    """The identifiers of the names, by number."""
    is_own: bool = field(compare=False)
    """Whether it has an op of the user's, which may compute another thing the next time."""


def node_form(node: Node, name: str = "") -> Form:
    """The form of a fused node, or of a node that is a kernel by itself. The kernel of a fused node
    gets another `name` than the node has for it, if one is given."""
    numbering = _Numbering()
    structure, numbered = numbering.node(node, numbering.values(node.inputs))
    names = [identifier(x.translate(_UNMARKED)) for x in numbering.names]
    if name and isinstance(node, KernelNode):
        names[len({*node.inputs})] = name
    return Form(structure, numbered, tuple(names), numbering.is_own)


def hole(number: int) -> str:
    """The name with this number."""
    return f"{OPEN}{number}{CLOSE}"


def filled(text: str, names: Sequence[str]) -> str:
    """`text` with names in its holes; no two registers or pointers get one name."""
    if OPEN not in text:
        return text
    known, own = dict[tuple[str, str], str](), Names(_WORD.findall(text), mark="")

    def name(token: re.Match[str]) -> str:
        number, suffix = token[1], token[2]
        if not suffix.endswith(("_", "_data")):
            return names[int(number)] + suffix
        found = known.get((number, suffix))
        if found is None:
            end = "_data" if suffix.endswith("_data") else "_"
            base = names[int(number)] + suffix.removesuffix(end)
            found = known[number, suffix] = own.fresh(base, end)
        return found

    return _TOKEN.sub(name, text)


def wrapped(text: str) -> str:
    """A program's text in lines of at most `WIDTH` columns, if commas allow that."""
    return "\n".join(part for line in text.split("\n") for part in _broken(line))


def _broken(line: str) -> list[str]:
    """A line as several where it is longer than `WIDTH`, broken behind commas."""
    if len(line) <= WIDTH or line.startswith("#"):
        return [line]
    if line.startswith("//"):
        return textwrap.wrap(line, WIDTH, subsequent_indent="//   ")
    indent = " " * (len(line) - len(line.lstrip()) + 4)
    lines, start = list[str](), ""
    for part in line.split(", "):
        if start and len(start) + 2 + len(part) > WIDTH:
            lines.append(f"{start},")
            start = indent + part
        else:
            start = f"{start}, {part}" if start else part
    return [*lines, start]


@functools.lru_cache(maxsize=256)
def canonical_text(text: str) -> str:
    """`text` with the holes numbered in the order in which they appear. Texts that differ only in
    names have one."""
    first, *rest = text.split(OPEN)
    numbers: dict[str, str] = {}
    found = [first]
    for part in rest:
        number, _, behind = part.partition(CLOSE)
        found += [numbers.setdefault(number, hole(len(numbers))), behind]
    return "".join(found)


class _Numbering:
    """Numbers the names of a node, from the outside in and in the order of its body."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.is_own = False

    def values(self, values: Sequence[Value]) -> dict[Value, Value]:
        """New values for `values`, each with a number for its name."""
        return {v: Value(self._number(v.name), v.type) for v in dict.fromkeys(values)}

    def _number(self, name: str) -> str:
        self.names.append(name)
        return hole(len(self.names) - 1)

    def node(self, node: Node, known: dict[Value, Value]) -> tuple[tuple[object, ...], Node]:
        """The structure of a node and the node by numbers. `known` are the new values of its
        inputs, to which those of its outputs are added."""
        what: tuple[object, ...] = type(node.op), repr(node.op)
        op = None
        if isinstance(node, KernelNode):
            what, op = self._fused(node.op)
        self.is_own |= node.op.is_own()
        known |= self.values(node.outputs)
        inputs, outputs = (tuple(known[v] for v in vs) for vs in (node.inputs, node.outputs))
        made = KernelNode(op, inputs, outputs) if op else Node(node.op, inputs, outputs)
        return (what, inputs, outputs), made

    def _fused(self, fused: Fused) -> tuple[tuple[object, ...], Fused]:
        """The structure of a kernel and its op by numbers."""
        body, name = fused.body, self._number(fused.kernel)
        known = self.values(body.inputs)
        found = [self.node(node, known) for node in body.nodes]
        outputs = tuple(known[v] for v in body.outputs)
        inputs = tuple(known[v] for v in body.inputs)
        nodes = tuple(n for _, n in found)
        graph = replace(body, name=name, inputs=inputs, nodes=nodes, outputs=outputs)
        return (inputs, *(s for s, _ in found), outputs), Fused(name, graph)
