"""What programs of several ranks may be."""

from __future__ import annotations

from typing import Any

from graphc.base.errors import GraphError
from graphc.base.source_lines import error
from graphc.optim.private import DPSGD
from graphc.optim.rule import Rule
from graphc.parallel.options import DataParallel
from graphc.parallel.pipeline import PipelineParallel


def ranks_of(parallel: Any, update: Any, accumulate: Any) -> DataParallel | None:
    """The ranks that train together, or GraphError; None for a process by itself."""
    if parallel is None:
        return None
    if not isinstance(parallel, DataParallel):
        raise error(
            "parallel: expected graphc.DataParallel() or PipelineParallel(), got "
            f"{type(parallel).__name__}"
        )
    if update is None:
        raise error("parallel: averages what update= takes, which is not given")
    if isinstance(update, DPSGD) and parallel.active:
        raise error("parallel: DPSGD expected one process, since its noise is that of one batch")
    if parallel.shards is not None and accumulate != 1:
        raise error("accumulate: with shards=, which are micro-batches too, expected 1")
    return parallel if parallel.active else None


def pipeline_of(
    parallel: Any, update: Any, accumulate: Any, mixed: Any, gradients: Any
) -> PipelineParallel | None:
    """Return the ranks that have a stage each, or raise GraphError; None if there are none."""
    if not isinstance(parallel, PipelineParallel):
        return None
    if accumulate != 1:
        raise error("accumulate: with PipelineParallel, which has micro_batches=, expected 1")
    if gradients:
        raise error(
            "gradients: with PipelineParallel, whose ranks have a part each, expected False"
        )
    if isinstance(update, DPSGD):
        raise error("parallel: DPSGD expected one process, since its noise is that of one batch")
    owns = isinstance(update, Rule) and type(update).emit is not Rule.emit
    if owns and update.clip_grad_norm is not None:
        raise error(
            f"clip_grad_norm: with PipelineParallel expected a rule that defines apply, "
            f"{type(update).__name__} has an emit of its own"
        )
    if mixed == "float16":
        raise error(
            "mixed: with PipelineParallel expected None or 'bfloat16', since 'float16' skips "
            "steps by the gradients of all stages"
        )
    return parallel if parallel.active else None


def adds_by_kernels(parallel: DataParallel | None, orders: bool) -> bool:
    """Return whether kernels add the gradients of shards in order.

    Args:
        parallel: The ranks; None for a process by itself.
        orders: Whether the device's messages add in order.
    """
    return parallel is not None and parallel.shards is not None and not orders


def check_messages(device: str, plays: bool) -> None:
    """Raise GraphError if a device, of this name, does not play messages."""
    if not plays:
        raise GraphError(f"parallel: expected device='cpu' or 'cuda', got {device!r}")
