"""When the blocks of a cluster add the parts of k of a contraction (cluster_sums.cuh)."""

from __future__ import annotations

CLUSTERED = 2500
"""Cycles that adding parts within a cluster takes: barriers of the cluster, and loads from the
shared memory of others. An assumption, about one microsecond less than a launch."""
MOST = 8
"""Blocks of a cluster that every GPU with clusters can place."""


def adds_in_cluster(splits: int, itemsize: int) -> bool:
    """Whether the blocks of a cluster can add so many parts, of sums of this many bytes."""
    return 1 < splits <= MOST and itemsize == 4
