"""The graph after each pass, as nodes that stages share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from graphc.ir import Graph, Node, Value, Where
from graphc.ops.fused import KernelNode
from graphc.ops.loops.scan import Scan
from graphc.report.model import Body, NodeData, StageData
from graphc.text import node_text


def phase(where: Where) -> str:
    """Which part of a step a node belongs to. An update rule has no line of the model."""
    if not where.derived:
        return "forward"
    return "update" if where.of_update_rule else "backward"


class Stages:
    """The stages of a program; `nodes` are those of all of them, each once."""

    def __init__(self, stages: Mapping[str, Graph]) -> None:
        self.nodes: list[NodeData] = []
        self._numbers: dict[NodeData, int] = {}
        self._known: dict[int, int] = {}
        """By identity: passes hand on most nodes as they are, and `stages` keeps all alive."""
        self.stages = tuple(self._stage(name, graph) for name, graph in stages.items())

    def number(self, node: Node) -> int:
        """The place of the node in `nodes`."""
        known = self._known.get(id(node))
        if known is None:
            data = self._data(node)
            known = self._numbers.setdefault(data, len(self.nodes))
            if known == len(self.nodes):
                self.nodes.append(data)
            self._known[id(node)] = known
        return known

    def _stage(self, name: str, graph: Graph) -> StageData:
        return StageData(
            name=name,
            inputs=_names(graph.inputs),
            state=_names(graph.state),
            outputs=_names(graph.outputs),
            updates=tuple((old.name, new.name) for old, new in graph.updates),
            nodes=tuple(map(self.number, graph.nodes)),
        )

    def _data(self, node: Node) -> NodeData:
        body = body_of(node)
        return NodeData(
            op=node.op.name,
            kernel=node.op.kernel if isinstance(node, KernelNode) else "",
            text=node_text(node),
            module=node.where.module,
            lines=node.where.lines,
            phase=phase(node.where),
            free=node.is_free,
            inputs=_names(node.inputs),
            outputs=_names(node.outputs),
            note=node.op.note if isinstance(node, KernelNode) else "",
            body=None if body is None else self._body(body),
        )

    def _body(self, body: Graph) -> Body:
        numbers = tuple(map(self.number, body.nodes))
        return Body(_names(body.inputs), numbers, _names(body.outputs))


def _names(values: Iterable[Value]) -> tuple[str, ...]:
    return tuple(v.name for v in values)


def body_of(node: Node) -> Graph | None:
    """The graph that the node holds."""
    if isinstance(node, KernelNode):
        return node.body
    return node.op.body if isinstance(node.op, Scan) else None


def repeated_nodes(graph: Graph, times: int = 1) -> Iterator[tuple[Node, int]]:
    """The nodes with how often each is computed, those of loops for themselves."""
    for node in graph.nodes:
        if isinstance(node.op, Scan):
            yield from repeated_nodes(node.op.body, times * node.op.length)
        else:
            yield node, times


def value_types(graph: Graph) -> dict[str, str]:
    """The type of each value, those of loops and of the insides of kernels too, by its name."""
    types = {v.name: str(v.type) for v in (*graph.inputs, *graph.state)}
    for node in graph.nodes:
        body = body_of(node)
        types = {**(value_types(body) if body else {}), **types}
        types.update((v.name, str(v.type)) for v in node.outputs)
    return types
