"""Print what surrounds the body of a CUDA kernel: includes, namespace, signature."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

import numpy as np

from graphc.ir import Graph, Value, dtype_name
from graphc.kernels.program.body.literals import memory_literal
from graphc.kernels.program.body.names import identifier
from graphc.kernels.program.body.statement import RegisterProgram
from graphc.kernels.program.joined import RESIDENT as RESIDENT
from graphc.kernels.program.joined import THREADS as THREADS
from graphc.ops.fused import KernelNode
from graphc.ops.pointwise.logic import C_TYPES

WARP = 32
"""Threads that exchange registers."""

FEW_THREADS = 128
"""Threads of a block whose threads or warps work independently, each on its own rows."""
SHARED_BYTES = 48 * 1024
"""The most bytes of static shared memory of a block, by CUDA's programming guide."""
BLOCKS = 264
"""Blocks that fill a large device: two per multiprocessor on 132. A constant, so that kernels, and
with them results, do not depend on the device."""


JOINABLE = (
    "contract/contract",
    "recurrent/persistent",
    "recurrent/persistent_exact",
    "pointwise/pointwise",
    "reduce/reduce",
    "recurrent/rows",
)
"""Headers whose templates take the block that they do the work of, so that their kernels can be
parts of a joined launch (joined_launch.py)."""
TENSOR_HEADERS = (
    "convolution/halo",
    "convolution/halo_gradient",
    "convolution/im2col_gradient",
    "convolution/single_channel",
    "contract/tiles/tensor",
    "contract/tiles/wgmma",
    "contract/tiles/wgmma_bulk",
)
"""Headers whose templates take the block too, but cannot be parts of a joined launch."""
GROUPABLE = (
    "convolution/halo",
    "convolution/halo_gradient",
    "convolution/im2col_gradient",
    "contract/tiles/tensor",
)
"""Those of them whose blocks can share a launch with other kernels' (grouped_gemm.py)."""
DYNAMIC = "extern __shared__ __align__(16) unsigned char dynamic_shared[];"
"""The declaration of dynamic shared memory."""
PANELS = DYNAMIC.replace("16", "1024")
"""The declaration for wgmma, whose panels begin at multiples of 1024 bytes."""
"""The shared memory whose size a launch gives."""


def launch_bounds(threads: int, blocks: int) -> str:
    """The `__launch_bounds__` of a kernel, of which a multiprocessor must hold at least `blocks`
    blocks (0: any). One block of `THREADS` or more is stated too, as ptxas otherwise reserves
    registers for two."""
    said = blocks > 1 or (blocks == 1 and threads >= THREADS)
    return f"__launch_bounds__({threads}{f', {blocks}' * said})"


def entry(symbol: str, bounds: str, parameters: Sequence[str], lines: Sequence[str]) -> list[str]:
    """The lines of an `extern "C"` kernel with these bounds and `lines` as its body."""
    return [
        f'extern "C" __global__ void {bounds}',
        f"{symbol}({', '.join(parameters)}) {{",
        *(f"  {line}" for line in lines),
        "}",
    ]


def source(
    node: KernelNode,
    headers: Sequence[str],
    sections: Sequence[Sequence[str]],
    dynamic: bool = False,
) -> str:
    """The text of a kernel's file.

    It is in the namespace of the headers, whose functions hide the toolkit's of the same name, and
    in one of its own, so that files can be concatenated. `dynamic` shared memory is declared
    outside of both, under one name for all.
    """
    body = join_sections(sections)
    includes = include_lines(headers)
    panels = any(header.startswith("contract/tiles/wgmma") for header in headers)
    includes += f"\n\n{PANELS if panels else DYNAMIC}" if dynamic else ""
    space = f"graphc::{symbol_of(node, 'text')}"
    return f"{includes}\n\n{in_namespace(space, body)}\n"


def join_sections(sections: Sequence[Sequence[str]]) -> str:
    """Sections of lines, separated by empty lines."""
    return "\n\n".join("\n".join(lines) for lines in sections if lines)


def include_lines(headers: Sequence[str]) -> str:
    """The `#include` directives of these headers."""
    return "\n".join(f'#include "cuda/{h}.cuh"' for h in headers)


def in_namespace(space: str, body: str) -> str:
    """`body` in the namespace `space`."""
    return f"namespace {space} {{\n\n{body}\n\n}}  // namespace {space}"


def constant_arrays(program: RegisterProgram) -> list[str]:
    """Definitions of a program's constants of more than one element."""
    lines = []
    for name, array in program.arrays.items():
        dtype = dtype_name(array.dtype)
        items = ", ".join(memory_literal(x, dtype) for x in np.ravel(array))
        lines.append(f"__device__ const {C_TYPES[dtype]} {name}[] = {{{items}}};")
    return lines


def delinearize(
    whole: str, names: Sequence[str], extents: Sequence[int], index: str, used: Collection[str]
) -> list[str]:
    """Definitions of the indices `names` with these extents from the linear index `whole`; only of
    those that are `used`."""
    size, step = math.prod(extents), math.prod(extents)
    definitions = []
    for name, extent in zip(names, extents, strict=True):
        first, step = step == size, step // max(extent, 1)
        text = f"{whole} / {step}" if step > 1 else whole
        if name in used:
            definitions.append(f"const {index} {name} = {text if first else f'{text} % {extent}'};")
    return definitions


def memory_order(values: Collection[Value]) -> tuple[int, ...]:
    """The axes of values of one shape from slowest to fastest, as most of their bytes are laid
    out."""
    bytes_of: dict[tuple[int, ...], int] = {}
    for value in values:
        order = value.type.layout.order(value.type.rank)
        bytes_of[order] = bytes_of.get(order, 0) + value.type.nbytes
    return max(bytes_of, key=lambda order: bytes_of[order])


def index_type(body: Graph) -> str:
    """The C++ type of element indices and offsets in a kernel of `body`. int leaves room for
    threads past the end, which may compute an index beyond the last."""
    values = (*body.inputs, *(v for n in body.nodes for v in n.outputs))
    return "int" if all(v.type.size < 2**30 for v in values) else "int64_t"


def symbol_of(node: KernelNode, part: str = "kernel") -> str:
    """The symbol of a kernel of the node. It always names the part, so that a kernel called `exp`
    is not taken for the function."""
    return f"{identifier(node.op.kernel)}_{part}"
