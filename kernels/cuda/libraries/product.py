"""Find fused contractions that are plain matrix products for a library.

A library gets d = a b or relu(a b + bias), with either part optional, of matrices whose rows or
columns are contiguous. Any other body uses a generated kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from graphc.ir import ROW_MAJOR, Graph, Node, Value
from graphc.ir.sections import sections_of_sums
from graphc.kernels.cuda.contract.contract import Problem, make_problem, output_strides
from graphc.kernels.program.calls import CallMatrix, Product
from graphc.kernels.program.nest import Read, contraction_nest
from graphc.ops.fused import KernelNode

ELEMENTS = ("f32", "f16", "bf16")
"""Dtypes of operands and results."""


def product_of(node: Node) -> Product | None:
    """The product that a fused contraction is; None if it has more, or an unsupported layout."""
    if not isinstance(node, KernelNode) or node.op.template != "contract":
        return None
    body = node.body
    rest = _rest(body)
    if rest is None or sections_of_sums(body):
        return None
    nest = contraction_nest(body, lanes=False)
    problem = make_problem(nest, body)
    kinds = {x.read.type.dtype for x in (problem.a, problem.b)}
    (out,) = body.outputs
    plain = len(kinds) == 1 and {*kinds, out.type.dtype} <= {*ELEMENTS}
    if not plain or problem.limits or out.type.layout != ROW_MAJOR or min(problem.sizes) < 1:
        return None
    strides = output_strides(nest, body)
    a = _matrix(problem, problem.a.read, problem.rows, problem.depth)
    b = _matrix(problem, problem.b.read, problem.depth, problem.columns)
    places = [
        _merged(problem, axes, [strides.get(i, 0) for i in range(len(nest.axes))])
        for axes in problem.kept
    ]
    if a is None or b is None or None in places:
        return None
    batch, row, column = (place or 0 for place in places)
    batches, m, n, k = problem.sizes
    if min(m, n, k) < 2 or column != 1:
        return None
    bias, relu = rest
    if bias is not None and not _along_columns(problem, bias, out):
        return None
    d = CallMatrix(len(body.inputs), row, 1, batch, out.type.dtype)
    place = None if bias is None else body.inputs.index(bias)
    return Product(batches, m, n, k, a, b, d, place, relu)


def _rest(body: Graph) -> tuple[Value | None, bool] | None:
    """The bias that is added to the sums and whether a relu follows; None if the epilogue has more
    or another order."""
    nest = contraction_nest(body, lanes=False)
    sums = nest.node.output
    if len(body.outputs) != 1:
        return None
    bias, relu, value = None, False, sums
    while value not in body.outputs:
        users = [n for n in body.nodes if value in n.inputs]
        if len(users) != 1:
            return None
        (user,) = users
        others = [v for v in user.inputs if v is not value]
        if user.op.name == "add" and bias is None and not relu and len(others) == 1:
            (bias,) = others
            if bias not in body.inputs or bias.type.dtype != "f32":
                return None
        elif user.op.name == "relu" and not relu:
            relu = True
        elif user.op.name != "cast" or user.output not in body.outputs or bias is not None:
            return None
        value = user.output
    if value.type.shape != sums.type.shape or sums.type.dtype != "f32":
        return None
    return bias, relu


def _matrix(
    problem: Problem, read: Read, rows: tuple[int, ...], columns: tuple[int, ...]
) -> CallMatrix | None:
    """An operand as a matrix; None unless one of its strides is 1."""
    if read.offset or read.borders or read.quotients or read.rounded or read.lanes is not None:
        return None
    places = [_merged(problem, axes, read.strides) for axes in (problem.batch, rows, columns)]
    if None in places:
        return None
    batch, row, column = (place or 0 for place in places)
    m, n = (problem.nest.extents(axes) for axes in (rows, columns))
    by_rows, by_columns = column == 1 and row >= n, row == 1 and column >= m
    if batch < 0 or not (by_rows or by_columns):
        return None
    return CallMatrix(read.input, row, column, batch, read.type.dtype)


def _merged(problem: Problem, axes: Sequence[int], strides: Sequence[int]) -> int | None:
    """The stride of neighbouring `axes` that can be stepped through as one; 0 without an axis of
    more than one index, None if they cannot be merged."""
    wide = [i for i in axes if problem.nest.axes[i].extent > 1]
    for outer, inner in pairwise(wide):
        if strides[outer] != strides[inner] * problem.nest.axes[inner].extent:
            return None
    return strides[wide[-1]] if wide else 0


def _along_columns(problem: Problem, bias: Value, out: Value) -> bool:
    """Whether each column of sums has one element of `bias`, contiguously."""
    if bias.type.layout != ROW_MAJOR:
        return False
    shape = (1,) * (out.type.rank - bias.type.rank) + bias.type.shape
    steps = [0] * len(shape)
    behind = 1
    for d in reversed(range(len(shape))):
        steps[d] = behind if shape[d] > 1 else 0
        behind *= shape[d]
    strides = [
        sum(s * a.coefficients[i] for s, a in zip(steps, problem.nest.output, strict=True))
        for i in range(len(problem.nest.axes))
    ]
    others = [_merged(problem, axes, strides) for axes in (problem.batch, problem.rows)]
    return others == [0, 0] and _merged(problem, problem.columns, strides) == 1
