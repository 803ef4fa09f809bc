"""Name kernels: the module attribute, then what the kernel does, in the user's words."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from graphc.ir import Graph, Names, Node, Value
from graphc.ops.fused import KernelNode

LONGEST = 60
"""Characters; a longer name is cut."""
MOST_WORDS = 4
"""A kernel of more is called by the first of them and the number of the others. Its text has all
that it computes."""


class KernelNames:
    """Hands out C identifiers that are unique in a graph."""

    def __init__(self, graph: Graph) -> None:
        self._state = set(graph.state)
        self._names = Names((n.op.kernel for n in graph.nodes if isinstance(n, KernelNode)), "_", 2)

    def name(self, group: Sequence[Node], producers: Mapping[Value, Node]) -> str:
        """`conv1_bias_relu`, `conv2_dgrad_relu_grad`, `fc1_wgrad`, `cross_entropy`, ..."""
        main = principal(group)
        module = main.where.module or next((n.where.module for n in group if n.where.module), "")
        said = [(w, n) for n in group if (w := self._kernel_word(n, producers))]
        if len(said) > 1 and module and said[0][1].op.names_module:
            said = said[said[0][0] == said[0][1].op.name :]
        words = list(dict.fromkeys(w for w, _ in said)) or [group[-1].op.name]
        if len(words) > MOST_WORDS:
            words = [*words[: MOST_WORDS - 1], f"{len(words) - MOST_WORDS + 1}_more"]
        backward = any(word.endswith("_backward") for word in words)
        if main.where.derived and not (main.op.contracts or main.where.function or backward):
            words.insert(0, "d")
        name = "_".join([module.replace(".", "_"), *words] if module else words)
        return self.fresh(name)

    def fresh(self, name: str) -> str:
        """`name` as an identifier of its own."""
        name = re.sub(r"\W", "_", name)[:LONGEST].rstrip("_")
        return self._names.fresh(name if name[0].isalpha() else f"m{name}")

    def _kernel_word(self, node: Node, producers: Mapping[Value, Node]) -> str:
        of_state = any(self._root(v, producers) in self._state for v in node.inputs)
        word = node.op.word(node.where.derived, of_state)
        if not word or node.op.contracts or not node.where.function:
            return word
        backward = node.where.derived and not node.where.of_update_rule
        return f"{node.where.function}_backward" if backward else node.where.function

    @staticmethod
    def _root(value: Value, producers: Mapping[Value, Node]) -> Value:
        while value in producers and producers[value].op.keeps_value:
            value = producers[value].inputs[0]
        return value


def principal(group: Sequence[Node]) -> Node:
    """Return the node that names a kernel: its contraction, else its first reduction or node.

    Its source line comes first too.
    """
    contraction = next((n for n in group if n.op.contracts), None)
    return contraction or next((n for n in group if n.op.reduced_axes is not None), group[0])
