"""Lower attention and its gradients to attend.cuh or, on tensor cores, to attend_tensor.cuh and its
gradients.

Each block owns queries or keys; where blocks may add in turns, all own keys (attend_serialized.py).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from graphc.ir import Value
from graphc.kernels.cuda.attention.attend_serialized import (
    SerializedSums,
    element_bytes,
    line_bytes,
    serialized_of,
)
from graphc.kernels.cuda.shared.gpu_model import GPU
from graphc.kernels.cuda.shared.kernel_source import BLOCKS, constant_arrays
from graphc.kernels.cuda.shared.launches import Launches
from graphc.kernels.program.attend_shape import (
    AXES,
    EXTENTS,
    AttentionProblem,
    find_problem,
    shape_text,
)
from graphc.kernels.program.body.names import Identifiers
from graphc.kernels.program.body.statement import RegisterProgram
from graphc.kernels.program.kernel import Kernel
from graphc.ops.fused import KernelNode

PRODUCTS = {"half": "f16", "bfloat": "bf16", "tf32": "tf32"}
"""Element types that tensor cores multiply, with their names in notes."""
MOST_FEATURES = 128
"""The most features of a head on tensor cores: sums of two gradients for 16 rows fill 128
registers."""
COLUMNS = {2: 64, 4: 32}
"""The most rows of the streamed operand per step, by bytes of an element."""
FIVE_PRODUCTS = 3, 2
"""Products of queries and keys (scores and two gradients), and those of scores and values."""
MOST_WORDS = 64
"""The most registers of sums and scores per thread with two blocks per multiprocessor."""


def lower_attend(node: KernelNode, serializes: bool = False, tensor_cores: bool = True) -> Kernel:
    """The kernel of a fused node with an attention or attention_grad; every value is row-major.

    Gradients of queries, and of keys and values, are computed by blocks of their own: on tensor
    cores in one launch if the blocks are alike, else in one each. If `serializes`, the blocks of
    keys may also add to the gradients of queries in turns. Without `tensor_cores` registers
    multiply.
    """
    problem = find_problem(node)
    pointers = Identifiers(problem.arrays).pointers(problem.body)
    writes, arrays = (
        problem.writes(pointers),
        constant_arrays(RegisterProgram((), problem.arrays, {})),
    )
    if not (tensor_cores and _fits_tensor_cores(problem)):
        launches = Launches(node, pointers)
        for part in _block_works(problem, writes):
            _add_registers(launches, problem, pointers, part)
        return launches.kernel(("attention/attend",), [arrays, shape_text(problem)], problem.flops)
    product = f"tensor cores, products of {PRODUCTS[problem.element]}"
    sections = [arrays, shape_text(problem, **_runs(problem))]
    choice = f"{product}: what is multiplied is of that dtype"
    if serialized := serialized_of(problem) if serializes else None:
        launches = Launches(node, pointers, serialized.workspace)
        serialized.add(launches, _arrays(problem, pointers), writes)
        flops = problem.flops_of(FIVE_PRODUCTS)
        notes = _notes(serialized, choice, product)
        return launches.kernel(("attention/attend_serialized",), sections, flops, *notes)
    launches = Launches(node, pointers)
    _add_tensor_cores(launches, problem, pointers, _block_works(problem, writes))
    name = "attend_tensor" if problem.forward else "attend_tensor_gradient"
    return launches.kernel((f"attention/{name}",), sections, problem.flops, choice, product)


def _notes(serialized: SerializedSums, choice: str, product: str) -> tuple[str, str]:
    """The entries of a kernel with five products in the report of choices and in the plan's
    notes."""
    added = " that add to those of queries in turns" if serialized.workspace else ""
    both = f"all gradients by blocks of {serialized.keys} keys{added}"
    return f"{choice}; {both}: five products in place of seven", f"{product}; {both}"


@dataclass(frozen=True)
class _BlockWork:
    """The work of some blocks of a launch."""

    name: str
    """The launch's name."""
    function: str
    """The C++ function."""
    writes: list[str]
    """Pointers of the results."""
    heads: int
    """Heads in the whole batch."""
    places: int
    """Queries or keys per head."""
    features: int
    """Features of a result."""


def _block_works(problem: AttentionProblem, writes: list[str]) -> list[_BlockWork]:
    """The work of a problem's blocks, the longest first."""
    n, h, g, t, u, e, d = problem.extents
    if problem.forward:
        return [_BlockWork("kernel", "forward", writes, n * h, t, d)]
    keys = _BlockWork("key", "key_gradient", writes[1:], n * g, u, e + d)
    queries = _BlockWork("query", "query_gradient", writes[:1], n * h, t, e)
    wanted = any(problem.used_results[1:]), problem.used_results[0]
    return [part for part, asked in zip((keys, queries), wanted, strict=True) if asked]


def _add_registers(
    launches: Launches, problem: AttentionProblem, pointers: dict[Value, str], part: _BlockWork
) -> None:
    rows = _rows(problem, part.heads, part.places, part.features)
    blocks = part.heads * -(-part.places // (16 * rows))
    lines = [
        *_arrays(problem, pointers),
        f"attend::{part.function}<Shape, {rows}>(arrays, {', '.join(part.writes)});",
    ]
    launches.add(lines, blocks, part.name, resident=1 if rows == 1 else 2)


def _add_tensor_cores(
    launches: Launches,
    problem: AttentionProblem,
    pointers: dict[Value, str],
    parts: list[_BlockWork],
) -> None:
    """Add one launch of all blocks, or one per kind if their thread counts differ."""
    tiles = [_tile(problem, part.function, part.heads, part.places) for part in parts]
    each = list(zip(parts, tiles, strict=True))
    together = [each] if len({tile.warps for tile in tiles}) == 1 else [[one] for one in each]
    for group in together:
        lines, first = _arrays(problem, pointers), 0
        for part, tile in group:
            play = _play(part, tile, f"blockIdx.x - {first}" if first else "blockIdx.x")
            first += part.heads * -(-part.places // (16 * tile.warps))
            if part is not group[-1][0]:
                inner = (f"  {line}" for line in (*play, "return;"))
                play = [f"if (blockIdx.x < {first}) {{", *inner, "}"]
            lines += play
        name = group[0][0].name if len(group) == 1 else "kernel"
        warps, shared = group[0][1].warps, max(tile.shared_bytes for _, tile in group)
        launches.add(lines, first, name, threads=32 * warps, resident=2, shared=shared)


@dataclass(frozen=True)
class _WarpTile:
    """A tile: 16 resident rows per warp, and the rows that stream past."""

    warps: int
    columns: int
    """Streamed rows per step."""
    shared_bytes: int


def _fits_tensor_cores(problem: AttentionProblem) -> bool:
    """Whether tensor cores can multiply the operands and a warp's sums fit its registers."""
    _, _, _, _, _, e, d = problem.extents
    return problem.element == problem.rounded in PRODUCTS and max(e, d) <= MOST_FEATURES


def _tile(problem: AttentionProblem, function: str, heads: int, places: int) -> _WarpTile:
    """The largest tile that fits shared memory, with fewer warps where a device would be idle."""
    *_, e, d = problem.extents
    size = element_bytes(problem)
    lines = [line_bytes(features, size) for features in (e, d)]
    own = lines[0] if function == "forward" else sum(lines)
    few = heads * -(-places // 64) < BLOCKS // 2
    for warps, columns in (
        ((2, 64), (2, 32), (1, 16)) if few else ((4, 64), (4, 32), (2, 32), (1, 16))
    ):
        if columns > (COLUMNS[size] if function != "key_gradient" else 32 if e + d <= 160 else 16):
            continue
        slot = columns * sum(lines) + (8 * columns if function == "key_gradient" else 0)
        shared = 16 * warps * own + 2 * slot
        if shared <= GPU.block_shared:
            break
    return _WarpTile(warps, columns, shared)


def _play(part: _BlockWork, tile: _WarpTile, block: str) -> list[str]:
    """The statements that compute block number `block` of some work."""
    name = "".join(word.title() for word in part.function.split("_"))
    return [
        f"using Work = attend::{name}<Shape, {tile.warps}, {tile.columns}>;",
        f"static_assert(Work::shared_bytes == {tile.shared_bytes});",
        f"Work::run({block}, dynamic_shared, arrays, {', '.join(part.writes)});",
    ]


def _runs(problem: AttentionProblem) -> dict[str, int]:
    """Neighbours copied at once for each operand, and whether two are stored at once."""
    found = {}
    size = element_bytes(problem)
    extents = dict(zip(EXTENTS, problem.extents, strict=True))
    for role in ("q", "k", "v", "dy"):
        vector = 1
        if (operand := problem.operands.get(role)) is not None:
            *others, column = (operand.strides[a] for a in AXES[role] if a is not None)
            features = extents["features" if role in "qk" else "values"]
            if column == 1:
                vector = math.gcd(16 // size, features, operand.offset, *others)
        found[f"VECTOR_{role.upper()}"] = vector
    numbers = [2, extents["features"], extents["values"]]
    for result in problem.results:
        if len(result.strides) == 3 and result.target is not None:
            numbers += [result.offset, *result.strides]
    return {**found, "PAIRS": int(math.gcd(*numbers) == 2)}


def _arrays(problem: AttentionProblem, pointers: dict[Value, str]) -> list[str]:
    reads = problem.reads(pointers)
    return [
        f"const attend::Arrays<Shape> arrays{{{', '.join(reads[:4])},",
        f"                                    {', '.join(reads[4:])}, 0}};",
    ]


def _rows(problem: AttentionProblem, heads: int, places: int, features: int) -> int:
    """Rows per thread, with 16 threads per row: as many as the registers hold, but two where four
    would leave much of a device idle."""
    op: Any = problem.node.op
    scores = (4 if problem.forward else 8) + (4 if op.dropout else 0)
    words = (-(-features // 16) + scores) * (2 if problem.dtype == "f64" else 1)
    rows = next((r for r in (4, 2) if r * words <= MOST_WORDS), 1)
    blocks = heads * -(-places // 64)
    return 2 if rows == 4 and blocks < BLOCKS // 2 else rows
