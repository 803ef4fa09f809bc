"""Lower a fused node to the kernel of a target.

The runtime asks for kernels here and imports no printer of a device. A printer is imported when a
kernel is first lowered for its device.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TypeVar

from graphc.base.errors import CompileError, PlanError
from graphc.base.target import Target
from graphc.ir import FLOATS, Node, Value
from graphc.kernels.prebuilt.description import Prebuilt
from graphc.kernels.program.calls import Call
from graphc.kernels.program.form import Form, node_form
from graphc.kernels.program.joined import JoinedStep
from graphc.kernels.program.kernel import GridLaunch, Kernel
from graphc.kernels.program.message_kernel import message_kernel
from graphc.ops.base import Contraction, Op
from graphc.ops.fused import KernelNode, kernels_in
from graphc.ops.pointwise.logic import Select

Found = TypeVar("Found")

CALLS_PER_NODE = 8
"""Python calls that a walk through a body makes per node; more than expression.py nests."""


Alike = MutableMapping[object, Kernel]
"""Kernels by what they were lowered from: the form of the node, and how."""


def lower(
    node: Node,
    target: Target,
    in_loop: bool = False,
    aligned_with: GridLaunch | None = None,
    alike: Alike | None = None,
) -> Kernel:
    """The kernel that computes a fused node or a relayout on `target.device`; cuda and sim share
    their text.

    `in_loop` says that the node belongs to a loop's body. There `aligned_with` is a launch whose
    blocks own rows or patches, if the loop has one: a pointwise kernel divides its work among
    blocks in the same way. Nodes of one form are lowered once if they are given one `alike`, which
    remembers the kernels for this target.
    """
    if node.op.communicates:
        return message_kernel(node, cpu_name(node))
    with _deep_enough(node):
        if target.device == "cpu":
            from graphc.kernels.cpu.lower import lower_cpu

            form = node_form(node, cpu_name(node))
            kernel = _of_form(node, form, lambda n: lower_cpu(n, target), alike)
            return _with_choices(_with_sums(kernel, node, target), node)
        from graphc.kernels.cuda.lower import lower_cuda

        along = aligned_with and replace(aligned_with, symbol="")

        def lowered(node: Node) -> Kernel:
            return lower_cuda(node, target, in_loop=in_loop, aligned_with=along)

        kernel = _of_form(node, node_form(node), lowered, alike, in_loop, along)
        return _with_sums(kernel, node, target)


def _of_form(
    node: Node,
    form: Form,
    lowered: Callable[[Node], Kernel],
    alike: Alike | None = None,
    *how: object,
) -> Kernel:
    """The kernel of a node, `lowered` from its form in this way or found among those `alike`."""
    alike = {} if alike is None or form.is_own else alike
    kernel = alike.get((form, how))
    if kernel is None:
        kernel = alike[form, how] = _from_form(node, form, lowered)
    return kernel.named(form, str(node.where))


def _from_form(node: Node, form: Form, lowered: Callable[[Node], Found]) -> Found:
    """What is `lowered` from the form of a node. An error names the node."""
    try:
        return lowered(form.numbered)
    except (CompileError, PlanError):
        return lowered(node)


def lower_step(node: KernelNode, all_steps: Kernel, target: Target) -> Kernel | None:
    """The kernel that computes one time step of what `all_steps` computes, if it gives the same
    bits; else None. CPU kernels never promise that."""
    if target.device == "cpu":
        return None
    from graphc.kernels.cuda.lower import lower_cuda

    order = all_steps.summation_order
    with _deep_enough(node):
        kernel = _of_form(node, node_form(node), lambda n: lower_cuda(n, target, order))
    same_bits = kernel.summation_order == order and (order or all_steps.template == "pointwise")
    return kernel if same_bits else None


def candidates(node: Node, target: Target, in_loop: bool = False) -> list[Kernel]:
    """The kernels that may compute a node, `lower`'s choice first.

    Only contractions have several. In a loop, a kernel whose blocks own rows has no alternatives:
    they would make all blocks wait for each other in every iteration, which the time of a single
    kernel does not show.
    """
    first = lower(node, target, in_loop)
    owns = in_loop and any(launch.owned for launch in first.launches)
    if owns or not isinstance(node, KernelNode) or node.op.template != "contract":
        return [first]

    def tried(node: Node) -> list[Kernel]:
        assert isinstance(node, KernelNode)
        if target.device == "cpu":
            from graphc.kernels.cpu.contract.contract import contract_candidates

            return list(contract_candidates(node, target))
        from graphc.kernels.cuda.lower import cuda_candidates

        return cuda_candidates(node, target, in_loop)

    name = cpu_name(node) if target.device == "cpu" else ""
    form, where = node_form(node, name), str(node.where)
    with _deep_enough(node):
        found = [kernel.named(form, where) for kernel in _from_form(node, form, tried)]
    return [_with_sums(kernel, node, target) for kernel in found]


def cpu_name(node: Node) -> str:
    """The name of the kernel that computes a node on the CPU."""
    from graphc.kernels.cpu.shared.kernel_source import symbol
    from graphc.kernels.program.body.names import identifier

    return symbol(node) if isinstance(node, KernelNode) else identifier(node.outputs[0].name)


def prebuilt(node: Node, kernel: Kernel, target: Target) -> Prebuilt | None:
    """The prebuilt function that computes what a node's `kernel` on the CPU computes; None if there
    is none."""
    from graphc.kernels.prebuilt.lower import prebuilt as describe

    with _deep_enough(node):
        return describe(node, kernel, target)


def joined_kernel(name: str, parts: Sequence[JoinedStep], arguments: int) -> Kernel:
    """The kernel of a joined launch that runs `parts` and takes `arguments` addresses."""
    from graphc.kernels.cuda.joined import joined_launch

    return joined_launch.joined_kernel(name, parts, arguments)


def lower_members(group: KernelNode) -> dict[str, Kernel]:
    """The kernels of a group's nodes, by their first output: separate launches with the group's
    bits."""
    from graphc.kernels.cuda import lower

    form, nodes = node_form(group), kernels_in(group.body)
    members = zip(nodes, _from_form(group, form, lower.lower_members), strict=True)
    return {n.outputs[0].name: kernel.named(form, str(n.where)) for n, kernel in members}


def call_of(node: Node) -> Call | None:
    """The library call that can replace a node's kernel; None if there is none."""
    from graphc.kernels.cuda.libraries import call_kernel

    return call_kernel.call_of(node)


def call_kernel(node: KernelNode, call: Call, library: str, rank: int, workspace: int) -> Kernel:
    """The kernel that calls `library` with the algorithm of this `rank` in its heuristic's
    proposals, which takes `workspace` bytes."""
    from graphc.kernels.cuda.libraries import call_kernel

    return call_kernel.call_kernel(node, call, library, rank, workspace)


def _with_sums(kernel: Kernel, node: Node, target: Target) -> Kernel:
    """The kernel of a node with the promise of its sums."""
    ops = [*_accumulating(node)]
    if not ops:
        return kernel
    own = any(isinstance(op, Contraction) and not op.order for op in ops)
    return replace(kernel, sums="own" if own or not target.kind.vectors else "stated")


def _with_choices(kernel: Kernel, node: Node) -> Kernel:
    """The kernel of a node with its `choices` and `keeps`, if it does nothing but choose."""
    if not isinstance(node, KernelNode):
        return kernel
    body = node.body
    if not all(_selects(n) or not n.inputs for n in body.nodes):
        return kernel
    place = {v: n for n, v in enumerate(body.inputs)}
    chosen: list[tuple[int, int]] = []
    for value, number in place.items():
        readers = [n for n in body.nodes if value in n.inputs]
        conditions = {n.inputs[0] for n in readers}
        alone = all(n.inputs[1] == value and value not in n.inputs[::2] for n in readers)
        if alone and len(conditions) == 1 and value not in body.outputs:
            chosen += [(place[c], number) for c in conditions if _is_flag(c, place)]
    kept: list[tuple[int, int, int]] = []
    for number, value in enumerate(body.outputs):
        made = body.producers.get(value)
        if made is not None and made.inputs:
            condition, _, old = made.inputs
            if _is_flag(condition, place) and old in place and old.type == value.type:
                kept.append((place[condition], place[old], number))
    return replace(kernel, choices=tuple(chosen), keeps=tuple(kept))


def _is_flag(condition: Value, place: Mapping[Value, int]) -> bool:
    """Whether it is one for all elements, and an input."""
    return condition in place and not condition.type.shape


def _selects(node: Node) -> bool:
    return isinstance(node.op, Select)


def _accumulating(node: Node) -> Iterator[Op]:
    """The ops of a node that add floats."""
    if isinstance(node, KernelNode):
        for inner in node.body.nodes:
            yield from _accumulating(inner)
    elif node.op.accumulates and node.outputs[0].type.dtype in FLOATS:
        yield node.op


@contextmanager
def _deep_enough(node: Node) -> Iterator[None]:
    """Raise Python's recursion limit for walks along the longest chain of the node's body."""
    limit, length = sys.getrecursionlimit(), 1
    if isinstance(node, KernelNode):
        length = len(node.body.nodes)
    sys.setrecursionlimit(limit + CALLS_PER_NODE * length)
    try:
        yield
    finally:
        sys.setrecursionlimit(limit)
