"""What programs of several ranks may be."""

from __future__ import annotations

from typing import Any

from graphc.base.errors import GraphError
from graphc.base.source_lines import error
from graphc.optim.private import DPSGD
from graphc.parallel.options import DataParallel


def ranks_of(parallel: Any, update: Any, accumulate: Any) -> DataParallel | None:
    """The ranks that train together, or GraphError; None for a process by itself."""
    if parallel is None:
        return None
    if not isinstance(parallel, DataParallel):
        raise error(f"parallel: expected graphc.DataParallel(), got {type(parallel).__name__}")
    if update is None:
        raise error("parallel: averages what update= takes, which is not given")
    if isinstance(update, DPSGD) and parallel.active:
        raise error("parallel: DPSGD expected one process, since its noise is that of one batch")
    if parallel.shards is not None and accumulate != 1:
        raise error("accumulate: with shards=, which are micro-batches too, expected 1")
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
