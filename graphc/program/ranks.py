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


def adds_by_kernels(parallel: DataParallel | None, device: str) -> bool:
    """Whether kernels add the pieces of gradients, as NCCL adds in an order of its own."""
    return parallel is not None and parallel.shards is not None and device == "cuda"


def check_messages(device: str) -> None:
    """Raise GraphError if a device cannot play messages."""
    if device.partition(":")[0] not in ("cpu", "cuda"):
        raise GraphError(f"parallel: expected device='cpu' or 'cuda', got {device!r}")
