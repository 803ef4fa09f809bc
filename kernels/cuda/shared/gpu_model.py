"""The GPU that estimates are made for.

Its figures are constants, whatever device is there: kernels, and with them results, must not depend
on the device. They are of an H100, by the programming guide and published measurements; those that
are assumptions say so.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class GpuModel:
    """What estimates assume of a large GPU. Rates are per cycle.

    Attributes:
        multiprocessors: of an H100 or H200.
        registers: words of all registers of a multiprocessor.
        shared: bytes of shared memory of a multiprocessor.
        block_shared: bytes of it that a block may have on every GPU of compute capability 8.0 or
            newer.
        l1: bytes of L1 and shared memory of a multiprocessor together.
        l1_rate: bytes that a multiprocessor reads from L1, half of what it has.
        l1_line: bytes of a line of L1.
        l2_sector: bytes that the second-level cache gives at once.
        l2_rate: bytes from the second-level cache to all multiprocessors: 5.5 TB/s at 1.98 GHz.
        l2_rate_of_one: bytes that one multiprocessor reads from it: three quarters of 64.
        multiply_adds: of a multiprocessor without tensor cores: three quarters of its units.
        fragment: cycles of a multiprocessor for a fragment's product by tensor cores: at its peak
            1.1, of which `mma.sync` reaches 0.62.
        issue: cycles of a multiprocessor for an instruction of a warp.
        launch: cycles that a second launch takes at least, as a node of a graph.
        launch_gap: those of them in which it does nothing yet.
        partial_wait: cycles that a thread waits for each partial sum: a latency of the cache for
            every eighth.
        ticket: cycles from a block's last partial sum to the first that it has of others, and from
            its last sum to the end: stores, an atomic operation, a load and stores reach the
            second-level cache one after the other. An assumption: four latencies of 600 to 700
            cycles, and barriers.
        cluster: cycles that adding parts within a cluster takes: barriers of the cluster, and loads
            from the shared memory of others. An assumption, about one microsecond less than a
            launch.
        grid_barrier: cycles that all blocks of a joined launch wait for each other: 1.2 us, as
            `Rates.barrier`.
    """

    multiprocessors: int = 132
    registers: int = 64 * 1024
    shared: int = 227 * 1024
    block_shared: int = 99 * 1024
    l1: int = 256 * 1024
    l1_rate: float = 64
    l1_line: int = 128
    l2_sector: int = 32
    l2_rate: float = 2800
    l2_rate_of_one: float = 48
    multiply_adds: float = 96
    fragment: float = 1.8
    issue: float = 0.28
    launch: float = 4500
    launch_gap: float = 2400
    partial_wait: float = 34
    ticket: float = 3000
    cluster: float = 2500
    grid_barrier: float = 2400

    def rounds(self, blocks: int, resident: int) -> list[tuple[int, int]]:
        """The rounds in which so many blocks run where a multiprocessor holds `resident` at once:
        (number of rounds, blocks of a multiprocessor in each)."""
        whole, rest = divmod(-(-blocks // self.multiprocessors), resident)
        return [(whole, resident)] * bool(whole) + [(1, rest)] * bool(rest)

    def resident(self, registers: int, threads: int, shared: int) -> int:
        """Blocks that a multiprocessor holds, of so many threads with so many registers each, and
        of so many bytes of shared memory, to which the device adds 1 KiB."""
        return min(self.registers // (registers * threads), self.shared // (shared + 1024))

    def cycles(self, blocks: int, resident: int, busy: float, alone: float) -> float:
        """What so many blocks take, each of which keeps a multiprocessor `busy` for so many cycles,
        and takes so many `alone`."""
        return sum(n * max(each * busy, alone) for n, each in self.rounds(blocks, resident))


GPU = GpuModel()
