"""The names of kernels: module attribute, then what the kernel does, in the user's words."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from graphc.ir import Graph, Names, Node, Value
from graphc.ops.base import Contraction, Reduction, View
from graphc.ops.fused import Fused
from graphc.ops.logic import Cast
from graphc.ops.widen import Widen

LONGEST = 60
"""Characters; a longer name is cut."""
_SILENT = {"cast", "widen", "constant", "multiply", "subtract", "divide", "where", "negative"}


class KernelNames:
    """Hands out C identifiers that are unique in a graph."""

    def __init__(self, graph: Graph) -> None:
        self._state = set(graph.state)
        self._names = Names((n.op.kernel for n in graph.nodes if isinstance(n.op, Fused)), "_", 2)

    def name(self, group: Sequence[Node], producers: Mapping[Value, Node]) -> str:
        """`conv1_bias_relu`, `conv2_dgrad_relu_grad`, `fc1_wgrad`, `d_softmax_sum`, ..."""
        main = next((n for n in group if isinstance(n.op, Contraction)), None)
        main = main or next((n for n in group if isinstance(n.op, Reduction)), group[0])
        module = main.where.module or next((n.where.module for n in group if n.where.module), "")
        parts = [module.replace(".", "_")] if module else []
        if not isinstance(main.op, Contraction) and main.where.derived:
            parts.append("d")
        words = [w for n in group if (w := self._word(n, producers))]
        if not words:
            words = [group[-1].op.name]
        if words[0] in ("conv2d", "matmul") and len(words) > 1 and module:
            words = words[1:]
        name = "_".join([*parts, *dict.fromkeys(words)])
        name = re.sub(r"\W", "_", name)[:LONGEST].rstrip("_")
        return self._names.fresh(name if name[0].isalpha() else f"m{name}")

    def _word(self, node: Node, producers: Mapping[Value, Node]) -> str:
        op = node.op.name
        if op == "matmul" and node.where.derived:
            reads_state = any(self._root(v, producers) in self._state for v in node.inputs)
            return "dgrad" if reads_state else "wgrad"
        if op in ("conv2d_dgrad", "conv2d_wgrad"):
            return op.removeprefix("conv2d_")
        if op == "add" and any(self._root(v, producers) in self._state for v in node.inputs):
            return "bias"
        return "" if op in _SILENT else op

    @staticmethod
    def _root(value: Value, producers: Mapping[Value, Node]) -> Value:
        while value in producers and isinstance(producers[value].op, View | Widen | Cast):
            value = producers[value].inputs[0]
        return value
