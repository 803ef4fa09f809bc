"""The GPU that estimates assume.

Its figures are constants whatever device is present, because kernels, and with them results, must
not depend on the device. They describe an H100 by the programming guide and published measurements;
assumptions are marked as such.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class GpuModel:
    """What estimates assume of a large GPU. Rates are per cycle."""

    multiprocessors: int = 132
    """Multiprocessors of an H100 or H200."""
    registers: int = 64 * 1024
    """32-bit registers of a multiprocessor."""
    shared: int = 227 * 1024
    """Bytes of shared memory of a multiprocessor."""
    block_shared: int = 99 * 1024
    """Bytes of shared memory that a block may use on every GPU of compute capability 8.0 or
    newer."""
    l1: int = 256 * 1024
    """Bytes of L1 and shared memory of a multiprocessor together."""
    l1_rate: float = 64
    """Bytes that a multiprocessor reads from L1: half of its peak."""
    l1_line: int = 128
    """Bytes of an L1 line."""
    l2_sector: int = 32
    """Bytes of an L2 transfer."""
    l2_rate: float = 2800
    """Bytes from L2 to all multiprocessors: 5.5 TB/s at 1.98 GHz."""
    l2_rate_of_one: float = 48
    """Bytes from L2 to one multiprocessor: three quarters of 64."""
    multiply_adds: float = 96
    """Multiply-adds of a multiprocessor without tensor cores: three quarters of its units."""
    fragment: float = 1.8
    """Cycles of a multiprocessor per tensor-core product of a fragment: 1.1 at its peak, of which
    `mma.sync` reaches 0.62."""
    issue: float = 0.28
    """Cycles of a multiprocessor per instruction of a warp."""
    launch: float = 4500
    """The least cycles of another launch, as a node of a graph."""
    launch_gap: float = 2400
    """Those of them before the launch does any work."""
    partial_wait: float = 34
    """Cycles that a thread waits per partial sum: an L2 latency for every eighth."""
    ticket: float = 3000
    """Cycles from a block's last partial sum to the first that it reads of others, and from its
    last sum to the end: stores, an atomic, a load and stores reach L2 one after another. An
    assumption: four latencies of 600 to 700 cycles, plus barriers."""
    cluster: float = 2500
    """Cycles to add partial sums within a cluster: cluster barriers, and loads from other blocks'
    shared memory. An assumption, about one microsecond less than a launch."""
    grid_barrier: float = 2400
    """Cycles of a barrier of all blocks of a joined launch: 1.2 us, as `Rates.barrier`."""

    def rounds(self, blocks: int, resident: int) -> list[tuple[int, int]]:
        """The rounds in which `blocks` blocks run with `resident` per multiprocessor, as (number of
        rounds, blocks of a multiprocessor in each)."""
        whole, rest = divmod(-(-blocks // self.multiprocessors), resident)
        return [(whole, resident)] * bool(whole) + [(1, rest)] * bool(rest)

    def resident(self, registers: int, threads: int, shared: int) -> int:
        """Blocks that a multiprocessor holds, given registers per thread, threads, and bytes of
        shared memory per block, to which the device adds 1 KiB."""
        return min(self.registers // (registers * threads), self.shared // (shared + 1024))

    def cycles(self, blocks: int, resident: int, busy: float, alone: float) -> float:
        """Cycles of `blocks` blocks, each of which occupies a multiprocessor for `busy` cycles and
        takes `alone` cycles by itself."""
        return sum(n * max(each * busy, alone) for n, each in self.rounds(blocks, resident))


GPU = GpuModel()
