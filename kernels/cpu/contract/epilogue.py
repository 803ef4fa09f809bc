"""Choose the registers that a contraction's epilogue runs on: those of a tile, or partial sums."""

from __future__ import annotations

import math
from dataclasses import dataclass

from graphc.ir import Graph
from graphc.ir.sections import sections_of_sums
from graphc.kernels.program.access import Domain
from graphc.kernels.program.epilogue import Epilogue, epilogue_of, pooling
from graphc.kernels.program.nest import Nest

FINISH_CHUNK = 8192
"""Output elements per chunk of the second phase, times the number of partial sums."""


@dataclass(frozen=True)
class Finish:
    """The second phase: add partial sums from the workspace, then run the epilogue."""

    epilogue: Epilogue
    chunks: int
    """Chunks of the phase."""


def batch_lane(body: Graph, nest: Nest) -> int | None:
    """The batch's iteration axis, if it is kept and some value has lanes along it."""
    reads = (nest.a, nest.b)
    for read in reads:
        if read.lanes is not None:
            return read.lanes if nest.axes[read.lanes].kept else None
    laned = [v for v in (*body.inputs, *body.outputs) if v.type.layout.axis == 0]
    if not laned:
        return None
    (axis,) = (a for a, c in enumerate(nest.output[0].coefficients) if c)
    return axis


def tile_epilogue(body: Graph, nest: Nest, lane: int, width: int) -> Epilogue:
    """The epilogue on the registers of a tile, along the iteration axis `lane`."""
    (axis,) = (d for d, place in enumerate(nest.output) if place.coefficients[lane])
    domain = Domain(_shape(body, nest), axis, width)
    return epilogue_of(body, nest, domain, domain.identity())


def finish_of(body: Graph, nest: Nest, parts: int, width: int) -> Finish:
    """The epilogue on `parts` partial sums, which lie in the workspace in the output's order."""
    shape = _shape(body, nest)
    domain = Domain(shape, len(shape) - 1, width)
    epilogue, _ = epilogue_of(body, nest, domain, domain.identity(), parts).over()
    registers = math.prod(map(epilogue.domain.steps, range(epilogue.domain.rank)))
    size = nest.node.output.type.size
    return Finish(epilogue, max(1, min(size * parts // FINISH_CHUNK, registers)))


def _shape(body: Graph, nest: Nest) -> tuple[int, ...]:
    """The shape that the epilogue computes: pooled pixels, the output, or a section of it."""
    pool, sections = pooling(body), sections_of_sums(body)
    shape = (pool or nest.node).outputs[0].type.shape
    return sections.shape(shape) if sections else shape
