"""PyTorch modules through torch.export: graphs of core operators.

Buffers' next contents are results. Operators of our own mark where no gradient flows, which
torch.export leaves out.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind
from torch.fx import Graph, GraphModule, Node

from graphc.base.errors import GraphError
from graphc.base.source_lines import error
from graphc.torch.decompositions import inference_decompositions
from graphc.torch.interpret import where_of
from graphc.torch.operators import stop_gradient
from graphc.torch.partition import Offered
from graphc.torch.recurrent import WithLayers
from graphc.torch.reporting import nearest

aten = torch.ops.aten
_INPUTS = (
    InputKind.PARAMETER,
    InputKind.BUFFER,
    InputKind.CONSTANT_TENSOR,
    InputKind.USER_INPUT,
)
_UNKNOWN = re.compile(r"Found <class '([^']+)'> in output, which is not a known type")
"""What torch.export says of an output that it cannot take apart."""
_MOST = 5
"""So many places of an operator a message names."""


class Exported:
    """A module's graph for some types of inputs.

    `inputs` and `outputs` say what each of the graph's is; `constants` are the tensors that are
    neither parameters nor buffers.
    """

    def __init__(self, program: ExportedProgram) -> None:
        self.graph: GraphModule = program.graph_module
        self.inputs = program.graph_signature.input_specs
        self.outputs = program.graph_signature.output_specs
        self.constants: Mapping[str, Any] = program.constants
        spec = program.call_spec
        assert spec.in_spec is not None and spec.out_spec is not None
        self.names: list[str] = list(spec.in_spec.children()[1].context)
        """The arguments given by name, in the graph's order."""
        self.returned = spec.out_spec


def exported(module: torch.nn.Module, args: tuple[Any, ...], named: dict[str, Any]) -> Exported:
    """Return the graph of `module(*args, **named)`.

    It raises GraphError if torch.export cannot trace it, or with all unsupported operators.
    """
    kind = type(module).__name__
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            with WithLayers():
                program = torch.export.export(module, args, named, strict=False)
            for part in list(program.graph_module.modules()):
                if isinstance(part, GraphModule):
                    _mark(part.graph)
            program = program.run_decompositions(inference_decompositions())
            _drop_checks(program.graph)
        except Exception as problem:  # whatever the model's code raises
            text = str(problem).strip() or type(problem).__name__
            if found := _UNKNOWN.search(text):
                raise error(
                    f"from_torch: {kind} returns a {found[1].rpartition('.')[2]}, expected tensors "
                    "and tuples, lists and dicts of them; models of transformers leave their cache "
                    "out where they are given use_cache=False"
                ) from problem
            raise error(
                f"from_torch: torch.export cannot trace {kind}: {text.splitlines()[0]}"
            ) from problem
    _check(kind, program)
    return Exported(program)


def _mark(graph: Graph) -> None:
    """Insert operators where no gradient flows.

    These are detached tensors, and values computed without gradients.

    Core operators say neither.
    """
    for node in list(graph.nodes):
        if node.target == aten.detach.default:
            node.target = stop_gradient
        wraps = getattr(node.target, "__name__", "") == "wrap_with_set_grad_enabled"
        if wraps and not node.args[0]:
            assert graph.owning_module is not None
            inner = graph.owning_module.get_submodule(str(node.args[1].target))
            assert isinstance(inner, GraphModule)
            _stop_inputs(inner)
    assert graph.owning_module is not None
    graph.owning_module.recompile()


def _drop_checks(graph: Graph) -> None:
    """Remove PyTorch's assertions on values, such as those of `one_hot` on its indices.

    They have no result, and a program does not stop half-way.
    """
    for node in list(graph.nodes):
        if node.target == aten._assert_async.msg:
            graph.erase_node(node)


def _stop_inputs(module: GraphModule) -> None:
    graph = module.graph
    inputs = [node for node in graph.nodes if node.op == "placeholder"]
    for node in inputs:
        value = node.meta.get("val")
        float_ = isinstance(value, torch.Tensor) and value.is_floating_point()
        # What is written into must stay what it is, and is a buffer, without a gradient.
        if float_ and not any(_writes(user, node) for user in node.users):
            readers = list(node.users)
            with graph.inserting_after(inputs[-1]):
                stopped = graph.call_function(stop_gradient, (node,))
            stopped.meta = dict(node.meta)
            for reader in readers:
                reader.replace_input_with(node, stopped)
    module.recompile()


def _writes(user: Node, node: Node) -> bool:
    schema = getattr(user.target, "_schema", None)
    return bool(schema and schema.is_mutable and user.args[:1] == (node,))


def _check(kind: str, program: ExportedProgram) -> None:
    """GraphError unless graphc can make a program of the graph."""
    nodes = [node for node in program.graph.nodes if node.op == "call_function"]
    offered = Offered(draws=True)
    for node in nodes:
        offered.is_node_supported({}, node)
    if offered.refused:
        lines = _lines(offered.refused.items())
        raise GraphError(
            "\n  ".join([f"from_torch: {kind} has operators that are not offered", *lines])
        )
    (results,) = (node for node in program.graph.nodes if node.op == "output")
    values = [node.meta.get("val") for node in results.all_input_nodes]
    if any(isinstance(v, torch.Tensor) and v.is_complex() for v in values):
        raise error(
            f"from_torch: {kind} returns complex numbers: torch.view_as_real makes two of one"
        )
    signature = program.graph_signature
    for given in signature.input_specs:
        if given.kind not in _INPUTS:
            raise error(f"from_torch: {kind} reads a {given.kind.name.lower()}: {given.target}")
    for result in signature.output_specs:
        if result.kind == OutputKind.BUFFER_MUTATION or result.kind == OutputKind.USER_OUTPUT:
            continue
        raise error(f"from_torch: {kind} writes into {result.target}, which is no buffer of its")


def _lines(refused: Iterable[tuple[Node, str]]) -> Sequence[str]:
    """A line for each operator and reason: how often, where, and what graphc has near it."""
    found: dict[tuple[str, str], list[str]] = {}
    for node, reason in refused:
        where = where_of(node)
        place = " ".join([where.module or "forward", *(f"({line})" for line in where.lines)])
        found.setdefault((str(node.target), reason), []).append(place)
    lines = []
    for (name, reason), places in found.items():
        near = nearest(name)
        hint = f"; the nearest that graphc has is {near}" if near else ""
        shown = ", ".join([*places[:_MOST], *(["..."] if len(places) > _MOST else [])])
        why = "" if reason == f"{name} is not offered" else f": {reason}"
        lines.append(f"{name}{why}{hint}; {len(places)} times, in {shown}")
    return lines
