"""Print what surrounds the loops of a CPU kernel (header, constants, pointers, chunks), and
estimate the costs that decide the chunks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from graphc.ir import Value, dtype_name
from graphc.kernels.program.access import Domain
from graphc.kernels.program.body.along import Along
from graphc.kernels.program.body.literals import memory_literal
from graphc.kernels.program.body.reduce import Reduce
from graphc.kernels.program.body.statement import (
    Call,
    Compute,
    Load,
    RegisterProgram,
    Statement,
    Store,
)
from graphc.kernels.program.kernel import Kernel, moved_bytes, origin_of
from graphc.ops.base import Array
from graphc.ops.fused import KernelNode
from graphc.ops.pointwise.logic import C_TYPES

CHUNK_NANOSECONDS = 20_000.0
"""Work of a chunk: long enough that taking a chunk costs nothing, short enough that workers finish
together."""
FEW_STEPS = 64
"""The fewest registers per piece of a row or axis that is split; pieces are combined afterwards."""
_LIBRARY = frozenset(
    "abs cos erf exp expm1 floor fmod fmodf log log1p main memcpy memset pow remainder sin sqrt "
    "sqrtf tanh".split()
)
"""Names of C functions that kernels call; a kernel must not be named like one."""
HEADERS = {
    "attend": "attention/attend",
    "contract": "contract/contract",
    "factor": "linear/factor",
    "index": "index/index",
    "pointwise": "pointwise/pointwise",
    "prefix": "prefix/prefix",
    "reduce": "reduce/reduce",
    "scatter": "index/index",
    "sort": "prefix/sort",
}
"""The header of each template, below kernels/cpu."""
FUNCTION = 30
"""Operations per element from which a statement counts as a call of a long function."""


def symbol(node: KernelNode) -> str:
    """The kernel's C++ symbol, distinct from the functions that kernels call."""
    name = node.op.kernel
    return f"{name}_kernel" if name in _LIBRARY else name


def make_kernel(
    node: KernelNode,
    sections: Sequence[str],
    phases: tuple[int, ...],
    workspace: int = 0,
    flops: int = 0,
    inplace: tuple[tuple[int, int], ...] = (),
    header: str = "",
) -> Kernel:
    """The kernel whose file is the header (its template's by default) and the sections in a
    namespace, where their names hide those of the header."""
    name, template = symbol(node), node.op.template
    head = [f'#include "cpu/{header or HEADERS[template]}.h"', "using namespace graphc;", ""]
    text = "\n".join([*head, f"namespace {name}_space {{", f"{''.join(sections)}}}", ""])
    counts = phases, workspace, flops, moved_bytes(node), inplace
    return Kernel(name, template, text, *counts, origin=origin_of(node))


def entry(node: KernelNode, lines: Sequence[str], phase: str = "") -> str:
    """The kernel's C++ function; `phase` is the parameter name that the lines use for the phase."""
    parameters = "void* const*, int, int"
    if lines:
        parameters = f"void* const* arguments, int{phase and f' {phase}'}, int chunk"
    body = "".join(f"  {line}\n" for line in lines)
    return f'extern "C" void {symbol(node)}({parameters}) {{\n{body}}}\n'


def share(units: int, chunks: int) -> str:
    """Statements that compute a chunk's first unit of work and its end."""
    return f"chunk * {units}L / {chunks}, (chunk + 1) * {units}L / {chunks}"


def pointer_lines(
    node: KernelNode, program: RegisterProgram, pointers: Mapping[Value, str]
) -> list[str]:
    """Definitions of those `pointers` that the program uses."""
    used, order, outputs = program.pointers, argument_order(node), node.body.outputs
    return [
        f"{'' if value in outputs else 'const '}{C_TYPES[value.type.dtype]}* const {name} = "
        f"({C_TYPES[value.type.dtype]}*)arguments[{order[value]}];"
        for value, name in pointers.items()
        if name in used
    ]


def domain_text(name: str, domain: Domain) -> str:
    """A C++ struct with the extents of a domain that has a lane axis."""
    extents = ", ".join(map(str, domain.extents))
    return (
        f"struct {name} {{\n"
        f"  static constexpr int RANK = {domain.rank}, LANE = {domain.lane};\n"
        f"  static constexpr long EXTENT[] = {{{extents}}};\n"
        "};\n"
    )


def array_text(arrays: Mapping[str, Array]) -> str:
    """Constants of more than one element as static arrays."""
    lines = []
    for name, array in arrays.items():
        dtype = dtype_name(array.dtype)
        elements = ", ".join(memory_literal(x, dtype) for x in array.ravel())
        kind = C_TYPES[dtype]
        lines.append(f"alignas(64) static const {kind} {name}[] = {{{elements}}};")
    return "".join(f"{line}\n" for line in lines)


def argument_order(node: KernelNode) -> dict[Value, int]:
    """The kernel's argument number of each of the body's inputs and outputs."""
    body = node.body
    values = (*body.inputs, *body.outputs)
    order = {v: i for i, v in enumerate(values)}
    assert len(order) == len(values), f"{symbol(node)}: a value is two of its arguments"
    return order


def statement_cost(statement: Statement, width: int) -> float:
    """Estimated nanoseconds per register, for sizing chunks."""
    if isinstance(statement, Load | Store):
        (access,) = statement.accesses
        guarded = isinstance(statement, Load) and not statement.plain
        return 1.0 if access.lane_stride in (0, 1) and not guarded else 0.5 * width
    if isinstance(statement, Call):
        return 0.5 * width + 5.0
    if isinstance(statement, Along | Reduce):
        return 0.0  # the template knows what it costs
    # 16 elements of 5 picoseconds per operation; short functions take longer beside others.
    assert isinstance(statement, Compute)
    return max(6.0, 0.08 * statement.operations) if statement.operations >= FUNCTION else 0.3


def program_cost(program: RegisterProgram, width: int) -> float:
    """Estimated nanoseconds per register of all statements."""
    return sum(statement_cost(s, width) for s in program.statements)


def chunk_count(nanoseconds: float, units: int) -> int:
    """The number of chunks for `units` of work that take `nanoseconds` in total: about
    `CHUNK_NANOSECONDS` each, but at least 8 chunks while each has a quarter of that."""
    few = min(8, int(nanoseconds / (CHUNK_NANOSECONDS / 4)))
    return balanced(max(1, min(units, max(few, int(nanoseconds / CHUNK_NANOSECONDS)))), units)


def balanced(chunks: int, units: int) -> int:
    """A count near `chunks` and at most `units` that small numbers of workers share evenly. With
    three chunks one of two workers would do two thirds of the work."""
    if chunks < 3 or chunks >= 64:
        return chunks
    step = 4 if chunks >= 8 else 2
    near = (chunks + step // 2) // step * step
    counts = [c for c in (near, near + step) if c <= units]
    return min(counts, key=lambda c: -(-units // c) * c, default=chunks // step * step)
