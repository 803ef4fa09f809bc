"""Choose the nodes of a PyTorch graph that graphc takes.

A node is supported if its rule can be traced with its arguments. Nodes that graphc refuses stay in
PyTorch, with graphc's message as the reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
from torch.fx.passes.operator_support import OperatorSupportBase

from graphc.base.errors import GraphError
from graphc.ir import Type
from graphc.torch.aten.fourier import Complex
from graphc.torch.aten.rules import dtype_of
from graphc.torch.aten.strides import order_of, reads_strides
from graphc.torch.interpret import apply
from graphc.trace import Builder

DEVICES = ("cpu", "cuda")
"""Where tensors may lie."""


class Offered(OperatorSupportBase):
    """Decides which nodes graphc takes, with reasons; `draws` allows random numbers."""

    def __init__(self, draws: bool = False) -> None:
        self._draws = draws
        self._reasons: dict[Node, str] = {}
        self._known: dict[str, str] = {}

    @property
    def taken(self) -> list[Node]:
        return [node for node, reason in self._reasons.items() if not reason]

    @property
    def refused(self) -> dict[Node, str]:
        return {node: reason for node, reason in self._reasons.items() if reason}

    def is_node_supported(self, submodules: Mapping[str, torch.nn.Module], node: Node) -> bool:
        if node.op != "call_function":
            return False
        if node not in self._reasons:  # the partitioner asks more than once
            self._reasons[node] = self.reason(node)
        return not self._reasons[node]

    def reason(self, node: Node) -> str:
        """Why the node is left to PyTorch; "" if it is not."""
        if not isinstance(node.target, torch._ops.OpOverload):
            return "" if _plain(node) else f"{node.target} is not an operator"
        if _read_by_strides(node):
            return f"what {node.target} gives is read by strides"
        if node.target._schema.is_mutable:
            return f"{node.target} writes into its argument"
        lies = order_of(node.all_input_nodes[0].meta["val"]) if reads_strides(node) else ()
        key = repr((str(node.target), map_arg((node.args, node.kwargs), _description), lies))
        if key not in self._known:
            self._known[key] = _try(node, self._draws)
        return self._known[key]


def partitioned(module: GraphModule) -> tuple[GraphModule, Offered]:
    """The graph with what graphc takes in submodules of their own, as few as may be."""
    offered = Offered()
    partitioner = CapabilityBasedPartitioner(module, offered, allows_single_node_partition=True)
    return partitioner.partition_and_fuse(), offered


def _plain(node: Node) -> bool:
    """Whether the node takes one of several results, or computes with sizes."""
    return node.target.__module__ == "_operator"


def _read_by_strides(node: Node) -> bool:
    """Return whether elements of the result are read by strides that only PyTorch's tensor has.

    Views of the result count too.
    """
    users = [user for user in node.users if user.all_input_nodes[0] is node]
    if not any(reads_strides(u) or (_is_view(u) and _read_by_strides(u)) for u in users):
        return False
    example = node.meta.get("val")
    return isinstance(example, torch.Tensor) and order_of(example) is None


def _is_view(node: Node) -> bool:
    target = node.target
    returns = target._schema.returns if isinstance(target, torch._ops.OpOverload) else ()
    return any(r.alias_info is not None for r in returns)


def _try(node: Node, draws: bool) -> str:
    builder = Builder("offered")
    try:
        with builder.building():
            if not draws:
                _mapped(node.meta.get("val"), type_of)  # complex numbers cannot leave a program
            args, kwargs = map_arg((node.args, node.kwargs), lambda n: _symbol(builder, n, draws))
            apply(node, args, kwargs, draws)
    except GraphError as error:
        return str(error).splitlines()[0]
    return ""


def _symbol(builder: Builder, node: Node, whole: bool) -> Any:
    """Inputs like a node's results; in a `whole` graph these may be complex."""

    def of_tensor(tensor: torch.Tensor) -> Any:
        if whole and tensor.is_complex():
            parts = (builder.input("x", type_of(tensor.real)) for _ in range(2))
            return Complex(*parts)
        return builder.input("x", type_of(tensor))

    return _mapped(node.meta["val"], of_tensor)


def _description(node: Node) -> Any:
    return _mapped(node.meta.get("val"), lambda t: (tuple(map(_hint, t.shape)), t.dtype, t.device))


def _mapped(value: Any, of_tensor: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return of_tensor(value)
    if isinstance(value, tuple | list):
        return tuple(_mapped(v, of_tensor) for v in value)
    return _hint(value) if isinstance(value, torch.SymInt) else value


def _hint(size: int | torch.SymInt) -> int:
    """A size, of a symbolic one that of the example: to ask for its value would fix it."""
    return size.node.hint if isinstance(size, torch.SymInt) else size


def type_of(tensor: torch.Tensor) -> Type:
    """Return graphc's type of a tensor, with symbolic sizes as in the example.

    It raises GraphError if there is none.
    """
    if tensor.device.type not in DEVICES or tensor.layout != torch.strided:
        raise GraphError(f"tensors on {tensor.device} of layout {tensor.layout} are not offered")
    return Type(tuple(map(_hint, tensor.shape)), dtype_of(tensor.dtype))
