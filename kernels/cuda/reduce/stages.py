"""The results of a stage of a reduction as a C++ struct."""

from __future__ import annotations

from graphc.ir import DTYPES
from graphc.kernels.cuda.reduce.reduce import result_bytes
from graphc.kernels.loops.rows import RowLoop
from graphc.kernels.program.body.literals import literal
from graphc.kernels.program.body.reduce import Reduce
from graphc.ops.pointwise.logic import C_TYPES


def bytes_of_stage(loop: RowLoop) -> int:
    """Bytes of the results of one row."""
    aligned = max(max(4, DTYPES[s.dtype].itemsize) for s in loop.sums)
    return -(-sum(map(result_bytes, loop.sums)) // aligned) * aligned


def stage_struct(number: int, loop: RowLoop) -> list[str]:
    """The type of a stage's results."""
    name, sums = f"Stage{number}", sorted(loop.sums, key=result_bytes, reverse=True)
    identity = ", ".join(map(_identity, sums))
    return [
        f"struct {name} {{",
        *(f"  {_kind(s)} {s.result};" for s in sums),
        f"  GRAPHC_INLINE static {name} identity() {{ return {{{identity}}}; }}",
        f"  GRAPHC_INLINE void combine(const {name}& other) {{",
        *(f"    {s.joined('', f'other.{s.result}')}" for s in sums),
        "  }",
        "};",
    ]


def _kind(sum: Reduce) -> str:
    """The C++ type of a result."""
    plain = "int" if _small(sum) else C_TYPES[sum.dtype]
    return f"Deviations<{plain}>" if sum.combine == "deviations" else plain


def _identity(sum: Reduce) -> str:
    return "{}" if sum.combine == "deviations" else literal(sum.identity, sum.dtype)


def _small(sum: Reduce) -> bool:
    """Whether it is stored as an int: results are whole words, so that lanes can exchange them."""
    return DTYPES[sum.dtype].itemsize < 4


def operand_of(sum: Reduce) -> str:
    """The C++ expression of the operand of a reduction."""
    return f"static_cast<int>({sum.operand})" if _small(sum) else sum.operand
