"""The names of kernels: module attribute, then what the kernel does, in the user's words."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from graphc.ir import Graph, Names, Node, Value
from graphc.ops.fused import KernelNode

LONGEST = 60
"""Characters; a longer name is cut."""


class KernelNames:
    """Hands out C identifiers that are unique in a graph."""

    def __init__(self, graph: Graph) -> None:
        self._state = set(graph.state)
        self._names = Names((n.op.kernel for n in graph.nodes if isinstance(n, KernelNode)), "_", 2)

    def name(self, group: Sequence[Node], producers: Mapping[Value, Node]) -> str:
        """`conv1_bias_relu`, `conv2_dgrad_relu_grad`, `fc1_wgrad`, `d_softmax_sum`, ..."""
        main = next((n for n in group if n.op.contracts), None)
        main = main or next((n for n in group if n.op.reduced_axes is not None), group[0])
        module = main.where.module or next((n.where.module for n in group if n.where.module), "")
        parts = [module.replace(".", "_")] if module else []
        if not main.op.contracts and main.where.derived:
            parts.append("d")
        said = [(w, n.op) for n in group if (w := self._word(n, producers))]
        if len(said) > 1 and module and said[0][1].names_module and said[0][0] == said[0][1].name:
            said = said[1:]
        words = [w for w, _ in said] or [group[-1].op.name]
        name = "_".join([*parts, *dict.fromkeys(words)])
        name = re.sub(r"\W", "_", name)[:LONGEST].rstrip("_")
        return self._names.fresh(name if name[0].isalpha() else f"m{name}")

    def _word(self, node: Node, producers: Mapping[Value, Node]) -> str:
        of_state = any(self._root(v, producers) in self._state for v in node.inputs)
        return node.op.word(node.where.derived, of_state)

    @staticmethod
    def _root(value: Value, producers: Mapping[Value, Node]) -> Value:
        while value in producers and producers[value].op.keeps_value:
            value = producers[value].inputs[0]
        return value
