"""The problem that attention kernels solve on every device: operands, extents and constants."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from graphc.ir import Graph, Node, Value
from graphc.kernels.program.access import row_major_strides
from graphc.kernels.program.body.literals import literal
from graphc.kernels.program.counts import check_counts
from graphc.kernels.program.operands import StridedOperand, constant_operands, find_operands
from graphc.ops.attention import Attention
from graphc.ops.base import Array
from graphc.ops.cost import node_flops
from graphc.ops.fused import KernelNode
from graphc.ops.join import Concat
from graphc.ops.pointwise.logic import C_TYPES

EXTENTS = ("n", "heads", "key_heads", "queries", "keys", "features", "values")
"""Names of the problem's extents, in order."""
AXES: Mapping[str, tuple[int | None, ...]] = {
    "q": (0, 1, 2, 3),
    "k": (0, 1, 2, 3),
    "v": (0, 1, 2, 3),
    "dy": (0, 2, 1, 3),
    "logs": (0, 1, 2, None),
    "delta": (0, 1, 2, None),
    "mask": (0, 1, 2, 3),
}
"""For each operand, which of its axes are n, head, row and column; None where it has no such
axis."""
OPERANDS = (*AXES, "counter")
"""Operand names in the order of the C++ struct `Arrays`."""
RESULTS = {"attention": ("y", "logs"), "attention_grad": ("dq", "dk", "dv")}
"""Names of the outputs of each op."""


@dataclass(frozen=True)
class AttentionResult:
    """Where one output of the attention op is stored.

    Element [n, row, head, feature] lies at `offset` + n * strides[0] + row * strides[1] + head *
    strides[2] + feature; logs [n, head, row] use `strides` in the order of their axes.
    """

    target: Value | None
    """The body's output that holds the result; None if the result is unused."""
    offset: int
    """Elements before the first."""
    strides: tuple[int, ...]
    """Elements between neighbouring indices, as above."""


@dataclass(frozen=True)
class AttentionProblem:
    """An attention or its gradient within a fused body."""

    body: Graph
    node: Node
    """The attention node of `body`."""
    operands: Mapping[str, StridedOperand]
    """The operands by name."""
    results: tuple[AttentionResult, ...]
    """The storage of the op's outputs, in order."""
    pointers: Mapping[Value, str]
    """The pointer names of constants of the body."""
    arrays: Mapping[str, Array]
    """The elements of those constants, by pointer name."""

    @property
    def forward(self) -> bool:
        """Whether the op is attention and not its gradient."""
        return isinstance(self.node.op, Attention)

    @property
    def factors(self) -> tuple[str, ...]:
        """Names of the operands that are multiplied."""
        op: Any = self.node.op
        names: tuple[str, ...] = op.roles[op.own_factors]
        return names

    @property
    def element(self) -> str:
        """The C++ type of q, k, v and dy in memory, the same for all of them."""
        (name,) = {self.operands[role].element for role in self.factors}
        return name

    @property
    def rounded(self) -> str:
        """The C++ type that operands are rounded to before products."""
        op: Any = self.node.op
        dtype: str = op.rounded or self.dtype
        return "tf32" if dtype == "tf32" else C_TYPES[dtype]

    @property
    def dtype(self) -> str:
        """The dtype of the queries."""
        return self.node.inputs[0].type.dtype

    @property
    def extents(self) -> tuple[int, ...]:
        """The extents (n, heads, key heads, queries, keys, features, values)."""
        op: Any = self.node.op
        q, k, v = (x.type for x in self.node.inputs[:3])
        shape: tuple[int, ...] = op.check(q, k, v)
        return shape

    @property
    def flops(self) -> int:
        """Floating-point operations of the op."""
        return node_flops(self.node)

    def flops_of(self, products: tuple[int, int]) -> int:
        """FLOPs of a kernel that computes `products` (products of queries and keys, products of
        values)."""
        op: Any = self.node.op
        flops: int = op.flops(*(x.type for x in self.node.inputs), products=products)
        return flops

    @property
    def used_results(self) -> tuple[bool, ...]:
        """For each output of the op, whether the kernel computes it."""
        return tuple(r.target is not None for r in self.results)

    def writes(self, outputs: Mapping[Value, str]) -> list[str]:
        """The C++ pointer of each output of the op, given those of the body's outputs."""
        return [
            "nullptr"
            if r.target is None
            else outputs[r.target] + (f" + {r.offset}" if r.offset else "")
            for r in self.results
        ]

    def reads(self, inputs: Mapping[Value, str]) -> list[str]:
        """The C++ pointer of each of `OPERANDS`, given those of the body's inputs."""
        pointers = {**inputs, **self.pointers}
        found = [self.operands.get(role) for role in OPERANDS]
        return ["nullptr" if o is None else _pointer(o, pointers[o.source]) for o in found]


def _pointer(operand: StridedOperand, name: str) -> str:
    """The C++ expression for the operand's first element, whose source is the pointer `name`."""
    name = f"reinterpret_cast<const tf32*>({name})" if operand.rounded else name
    return name + (f" + {operand.offset}" if operand.offset else "")


def find_problem(node: KernelNode) -> AttentionProblem:
    """The attention in a fused node of f32 or f64; operands are row-major inputs and constants."""
    body = node.body
    (inner,) = (n for n in body.nodes if n.op.own_template == "attend")
    op: Any = inner.op
    found = find_operands(body, inner.inputs)
    results = tuple(_results(body, inner))
    problem = AttentionProblem(
        body, inner, op.operands(found), results, *constant_operands(body, found)
    )
    check_counts(node, **dict(zip(EXTENTS, problem.extents, strict=True)))
    assert problem.dtype in ("f32", "f64"), f"{node.op.kernel} is not computed in {problem.dtype}"
    return problem


def _results(body: Graph, inner: Node) -> Iterator[AttentionResult]:
    """The storage of the op's outputs: body outputs, or sections of a concat of all of them."""
    concat = next((n for n in body.nodes if isinstance(n.op, Concat)), None)
    if concat is None:
        assert all(v in inner.outputs for v in body.outputs), f"{body.name}: something follows"
        for value in inner.outputs:
            strides = row_major_strides(value.type.shape)
            yield AttentionResult(value if value in body.outputs else None, 0, strides[:3])
        return
    assert body.outputs == concat.outputs and set(concat.inputs) == set(inner.outputs)
    strides = row_major_strides(concat.output.type.shape)
    for value in inner.outputs:
        before = concat.inputs[: concat.inputs.index(value)]
        offset = sum(v.type.shape[2] for v in before) * strides[2]
        yield AttentionResult(concat.output, offset, strides[:3])


def shape_text(problem: AttentionProblem, **settings: int) -> list[str]:
    """The lines of the C++ struct `Shape`: constants that instantiate the templates."""
    op: Any = problem.node.op
    numbers = {k.upper(): n for k, n in zip(EXTENTS, problem.extents, strict=True)} | settings
    flags = {
        "CAUSAL": op.causal,
        "MASKED": "mask" in problem.operands,
    }
    mask = problem.operands.get("mask", problem.operands["q"])
    lines = [
        f"  using T = {C_TYPES[problem.dtype]};",
        f"  using Element = {problem.element};",
        f"  using Rounded = {problem.rounded};",
        f"  using Mask = {mask.element};",
        *(f"  static constexpr int {name} = {number};" for name, number in numbers.items()),
        *(f"  static constexpr bool {name} = {str(on).lower()};" for name, on in flags.items()),
        f"  static constexpr double SCALE = {literal(op.scale, 'f64')};",
        f"  static constexpr float DROPOUT = {literal(op.dropout, 'f32')};",
        f"  static constexpr unsigned SEED = {op.seed & 0xFFFFFFFF}u, NUMBER = {op.number}u;",
    ]
    for role, axes in AXES.items():
        operand = problem.operands.get(role)
        strides = (0,) * 4 if operand is None else operand.strides
        ordered = ", ".join("0" if a is None else str(strides[a]) for a in axes)
        lines.append(f"  using {role.upper()} = attend::Strides<{ordered}>;")
    for role, result in zip(RESULTS[op.name], problem.results, strict=True):
        if role != "logs":
            n, place, head = result.strides
            lines.append(f"  using {role.upper()} = attend::Strides<{n}, {head}, {place}, 1>;")
    return ["struct Shape {", *lines, "};"]
