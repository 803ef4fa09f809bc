"""Figures of a large GPU that several estimates take. They are constants, so that kernels, and with
them results, do not depend on the device."""

from __future__ import annotations

MULTIPROCESSORS = 132
"""Of an H100 or H200."""
BYTES = 2800
"""From the second-level cache per cycle, to all multiprocessors: 5.5 TB/s at 1.98 GHz, from
published measurements of an H100."""
MOST_SHARED = 99 * 1024
"""Bytes of shared memory that a block may have on every GPU of compute capability 8.0 or newer."""
