"""The problem that attention kernels solve, on every device: operands, extents, constants."""

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
"""What the problem's extents are called."""
AXES: Mapping[str, tuple[int | None, ...]] = {
    "q": (0, 1, 2, 3),
    "k": (0, 1, 2, 3),
    "v": (0, 1, 2, 3),
    "dy": (0, 2, 1, 3),
    "logs": (0, 1, 2, None),
    "delta": (0, 1, 2, None),
    "mask": (0, 1, 2, 3),
}
"""The axes of an operand that are its n, head, row and column."""
OPERANDS = (*AXES, "counter")
"""In the order of the struct `Arrays`."""
RESULTS = {"attention": ("y", "logs"), "attention_grad": ("dq", "dk", "dv")}


@dataclass(frozen=True)
class AttentionResult:
    """Where an output lies: in `target`, an output of the body, None if nothing wants it. Element
    [n, place, head, feature] is at `offset` + n * strides[0] + place * strides[1] + head *
    strides[2] + feature; logs [n, head, place] likewise, in the order of their axes."""

    target: Value | None
    offset: int
    strides: tuple[int, ...]


@dataclass(frozen=True)
class AttentionProblem:
    """An attention or its gradient: `node` in `body`, its operands by name, and the pointers'
    names and elements of those that are constants of the body."""

    body: Graph
    node: Node
    operands: Mapping[str, StridedOperand]
    results: tuple[AttentionResult, ...]
    pointers: Mapping[Value, str]
    arrays: Mapping[str, Array]

    @property
    def forward(self) -> bool:
        return isinstance(self.node.op, Attention)

    @property
    def factors(self) -> tuple[str, ...]:
        """The names of the operands that are multiplied."""
        op: Any = self.node.op
        names: tuple[str, ...] = op.roles[op.own_factors]
        return names

    @property
    def element(self) -> str:
        """What q, k, v and dy are in memory, in C++: the same for all of them."""
        (name,) = {self.operands[role].element for role in self.factors}
        return name

    @property
    def rounded(self) -> str:
        """What weights are multiplied as, in C++."""
        op: Any = self.node.op
        dtype: str = op.rounded or self.dtype
        return "tf32" if dtype == "tf32" else C_TYPES[dtype]

    @property
    def dtype(self) -> str:
        return self.node.inputs[0].type.dtype

    @property
    def extents(self) -> tuple[int, ...]:
        """n, h, g, t, u, e, d."""
        op: Any = self.node.op
        q, k, v = (x.type for x in self.node.inputs[:3])
        shape: tuple[int, ...] = op.check(q, k, v)
        return shape

    @property
    def flops(self) -> int:
        return node_flops(self.node)

    def flops_of(self, products: tuple[int, int]) -> int:
        """Those of a kernel that takes so many products of queries and keys, and of values."""
        op: Any = self.node.op
        flops: int = op.flops(*(x.type for x in self.node.inputs), products=products)
        return flops

    @property
    def wanted(self) -> tuple[bool, ...]:
        """Which of the op's outputs the kernel has."""
        return tuple(r.target is not None for r in self.results)

    def writes(self, outputs: Mapping[Value, str]) -> list[str]:
        """The pointer of each output of the op, in C++; `outputs` are those of the body's."""
        return [
            "nullptr"
            if r.target is None
            else outputs[r.target] + (f" + {r.offset}" if r.offset else "")
            for r in self.results
        ]

    def reads(self, inputs: Mapping[Value, str]) -> list[str]:
        """The pointer of each of OPERANDS, in C++; `inputs` are those of the body's inputs."""
        pointers = {**inputs, **self.pointers}
        found = [self.operands.get(role) for role in OPERANDS]
        return ["nullptr" if o is None else _pointer(o, pointers[o.source]) for o in found]


def _pointer(operand: StridedOperand, name: str) -> str:
    name = f"reinterpret_cast<const tf32*>({name})" if operand.rounded else name
    return name + (f" + {operand.offset}" if operand.offset else "")


def find_problem(node: KernelNode) -> AttentionProblem:
    """The attention in a fused node: f32 or f64, of row-major inputs and constants."""
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
    """Where the outputs go: out of the body, or into the sections of a concat of all of them."""
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
    """The lines of the struct `Shape`: the constants that the templates are made with."""
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
