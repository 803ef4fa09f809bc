"""Graphs and plans for other tools: what a pass changed as a diff, Graphviz, JSON."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

from graphc.ir import Graph, Node, Value
from graphc.ops.fused import KernelNode
from graphc.ops.loops.scan import Scan
from graphc.runtime.plan.lives import accesses, step_name
from graphc.runtime.plan.plan import Launch, Loop, Plan, Range, Step
from graphc.text import graph_text

CONTEXT = 2
"""Lines around a change that a diff shows."""


def stage_diffs(stages: Mapping[str, Graph]) -> dict[str, str]:
    """Return for each stage but the first what it changed, as a unified diff of the texts.

    It is "" where nothing changed. Texts are not aligned in columns, or one long name would change
    every line.
    """
    texts = [(name, list(_plain_lines(graph))) for name, graph in stages.items()]
    return {
        name: "\n".join(difflib.unified_diff(old, new, before, name, "", "", CONTEXT, lineterm=""))
        for (before, old), (name, new) in pairwise(texts)
    }


def graph_dot(graph: Graph) -> str:
    """The graph for Graphviz: a box per node, grouped by module, an arrow per value."""
    makers = {v: f"n{i}" for i, n in enumerate(graph.nodes) for v in n.outputs}
    for kind, values in (("in", graph.inputs), ("state", graph.state)):
        makers.update((v, f"{kind}{i}") for i, v in enumerate(values))
    lines = [f"digraph {_quoted(graph.name)} {{", "  rankdir=TB; node [shape=box, fontsize=10];"]
    modules: dict[str, list[str]] = {}
    for value in (*graph.inputs, *graph.state):
        label = _quoted(f"{value} {value.type}")
        lines.append(f"  {makers[value]} [label={label}, shape=ellipse];")
    for number, node in enumerate(graph.nodes):
        label = _quoted("\n".join(filter(None, (_title(node), " ".join(node.where.lines)))))
        modules.setdefault(node.where.module, []).append(f"n{number} [label={label}];")
    for number, (module, boxes) in enumerate(modules.items()):
        if module:
            lines.append(f"  subgraph cluster{number} {{ label={_quoted(module)};")
        lines += [f"  {box}" for box in boxes] + (["  }"] if module else [])
    for number, node in enumerate(graph.nodes):
        for value in dict.fromkeys(node.inputs):
            lines.append(f"  {makers[value]} -> n{number} [label={_quoted(str(value.type))}];")
    for number, value in enumerate(graph.outputs):
        lines.append(f"  out{number} [label={_quoted(f'return {value}')}, shape=ellipse];")
        lines.append(f"  {makers[value]} -> out{number};")
    lines += [f"  {makers[new]} -> {makers[old]} [style=dashed];" for old, new in graph.updates]
    return "\n".join([*lines, "}"])


def graph_json(graph: Graph) -> str:
    """Return the graph as JSON: values, nodes with their bodies, outputs and updates.

    Constants are replaced by their digests, as in the text.
    """
    return json.dumps(_graph(graph), indent=1)


def plan_json(plan: Plan) -> str:
    """The plan as JSON, without measured values: steps with the bytes that they touch, kernels."""
    return json.dumps(
        {
            "name": plan.name,
            "device": plan.device,
            "streams": plan.streams,
            "peak_bytes": plan.peak_bytes,
            "lower_bound_bytes": plan.lower_bound_bytes,
            "steps": list(map(_step, plan.steps)),
            "kernels": {
                k.name: {"template": k.template, "flops": k.flops, "bytes": k.bytes}
                for k in plan.kernels.values()
            },
            **{
                kind: [{**_value(b.value), "place": _place(b.place)} for b in bindings]
                for kind, bindings in (
                    ("state", plan.state),
                    ("inputs", plan.inputs),
                    ("outputs", plan.outputs),
                )
            },
        },
        indent=1,
    )


def _plain_lines(graph: Graph) -> Iterator[str]:
    for line in graph_text(graph).splitlines():
        indent = len(line) - len(line.lstrip())
        yield " " * indent + re.sub(r" {2,}", " ", line.strip())


def _graph(graph: Graph) -> dict[str, Any]:
    return {
        "name": graph.name,
        "inputs": list(map(_value, graph.inputs)),
        "state": list(map(_value, graph.state)),
        "nodes": list(map(_node, graph.nodes)),
        "outputs": [v.name for v in graph.outputs],
        "updates": [[old.name, new.name] for old, new in graph.updates],
    }


def _node(node: Node) -> dict[str, Any]:
    attributes = {k: v for k, v in node.op.attributes.items() if not isinstance(v, Graph)}
    found: dict[str, Any] = {
        "op": node.op.name,
        "attributes": {k: str(getattr(v, "digest", v)) for k, v in attributes.items()},
        "inputs": [v.name for v in node.inputs],
        "outputs": list(map(_value, node.outputs)),
        "module": node.where.module,
        "function": node.where.function,
        "lines": list(node.where.lines),
        "derived": node.where.derived,
    }
    body = node.op.body if isinstance(node.op, Scan) else getattr(node, "body", None)
    return found if body is None else {**found, "body": _graph(body)}


def _value(value: Value) -> dict[str, Any]:
    kind = value.type
    return {
        "name": value.name,
        "shape": list(kind.shape),
        "dtype": kind.dtype,
        "layout": str(kind.layout),
    }


def _step(step: Step) -> dict[str, Any]:
    reads, writes = accesses(step)
    found: dict[str, Any] = {
        "step": type(step).__name__.lower(),
        "stream": step.stream,
        "name": step_name(step),
        "reads": list(map(_place, reads)),
        "writes": list(map(_place, writes)),
    }
    if isinstance(step, Launch | Loop):
        found |= {"module": step.where.module, "lines": list(step.where.lines)}
    if isinstance(step, Loop):
        found |= {"count": step.count, "steps": list(map(_step, step.steps))}
    return found


def _place(place: Range) -> dict[str, Any]:
    moves = [[move.stride, move.period] for move in place.moves]
    found = {"value": place.value, "segment": place.segment, "bytes": [place.start, place.stop]}
    return {**found, "moves": moves} if moves else found


def _title(node: Node) -> str:
    return node.op.kernel if isinstance(node, KernelNode) else node.op.name


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
