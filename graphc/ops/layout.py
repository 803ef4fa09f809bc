"""The op that moves a value between layouts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from graphc.ir import Layout, Type
from graphc.ir.vocabulary import Gradients, Tensors, Vocabulary
from graphc.ops.axes import Axes
from graphc.ops.base import Array, Op


@dataclass(frozen=True)
class Relayout(Op):
    """y[i] = x[i], lying in memory as `layout` says. A kernel of its own."""

    layout: Layout
    name: ClassVar[str] = "relayout"
    own_template: ClassVar[str] = "relayout"

    def infer(self, *inputs: Type) -> tuple[Type, ...]:
        return (inputs[0].with_layout(self.layout),)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        return (inputs[0],)

    def grad(self, f: Vocabulary, inputs: Tensors, outputs: Tensors, grads: Tensors) -> Gradients:
        return (grads[0],)

    def axis_map(self, *inputs: Type) -> tuple[tuple[Axes, ...], ...]:
        return ((tuple(range(inputs[0].rank)),),)
