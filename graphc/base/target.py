"""The target: all that passes and lowering know of a machine.

All of it is fixed before planning and free of stream and thread counts, so that results depend on
neither. Nothing else in passes and lowering asks which device it works for: what holds for every
machine of a kind stands in `KINDS`, the rest in the fields of `Target`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

LANES = 16
"""The float32 in the widest vector register. What decides the order of a sum, such as an axis in
lanes, is chosen for such registers on every CPU; narrower ones take a part of them at a time."""


@dataclass(frozen=True)
class Rates:
    """Operations and bytes per microsecond, and microseconds per launch and per event wait.

    They rank launches and predict nothing: one set of round figures stands for all machines of a
    kind, so that a plan does not depend on where it was made.
    """

    flops: float
    bytes: float
    launch: float
    event: float
    barrier: float = 0.0
    """For all blocks of a launch to wait for each other; 0 where they cannot."""


@dataclass(frozen=True)
class Kind:
    """What the kernels of one kind of machine can do besides computing every op."""

    rates: Rates
    vectors: bool = False
    """Kernels compute registers of several elements, and may be given values that lie so."""
    pools: bool = False
    """A contraction with a batch in the lanes takes max pooling into its epilogue: a register tile
    can hold whole windows of pixels."""
    cuts_any_axis: bool = False
    """A contraction takes the sections of any axis of its output into the epilogue: a register tile
    has each of the nest's axes for itself, where a block's tile has rows and columns alone, so that
    the axis cut must be all columns."""
    adds_columns: bool = False
    """A kernel that reduces along rows may sum over all of them besides."""
    reduces_products: bool = False
    """The kernel of a contraction may go on with reductions of its output's columns, which it adds
    up in its epilogue, or of its rows."""
    groups_products: bool = False
    """One launch may be the blocks of several contractions."""
    converts_on_reads: bool = False
    """A contraction converts its operands in registers, however often it reads an element: it
    shares what it reads among a block. Else many reads want f32 in memory."""
    overlaps_chunks: bool = False
    """Kernels of several chunks may run beside each other: one does not occupy all threads."""
    skips_iterations: bool = False
    """What computes an iteration of a loop leaves out what would be dropped."""
    copied_bytes: int = 1
    """What kernels copy as one, from addresses that are a multiple of it."""
    multiprocessors: int = 0
    """How many blocks' worth of threads run at once; 0 where workers play chunks instead."""
    full_threads: int = 1
    """Threads with which a multiprocessor reaches its rate: it takes more, and gains little."""
    held_elements: int = 0
    """Of an operand of a product in a loop, such as weights, that blocks hold from one iteration to
    the next."""


CPU = Kind(
    Rates(flops=200e3, bytes=40e3, launch=1.0, event=1.0),
    vectors=True,
    pools=True,
    cuts_any_axis=True,
    adds_columns=True,
    skips_iterations=True,
)
"""A core with AVX-512; its peak was measured as 284 GFLOP/s and 42 GB/s."""
GPU = Kind(
    Rates(flops=20e6, bytes=2e6, launch=3.0, event=0.5, barrier=1.2),
    reduces_products=True,
    groups_products=True,
    converts_on_reads=True,
    overlaps_chunks=True,
    copied_bytes=16,
    multiprocessors=132,
    full_threads=512,
    held_elements=132 * 32 * 1024,
)
"""A data-centre GPU. Estimates, not measured: rates are the round figures of an A100's data sheet,
the multiprocessors those of an H100, each of which holds 128 KB in registers; that 16 warps fill
one is a rule of thumb. In a graph an event
is an edge, which costs little more than following on one stream. A barrier is an
atomic addition of each block and a wait for the last one, two ways to L2 and back: published
microbenchmarks of an A100 and an H100 say 1.1 to 1.5 us for `grid.sync()` with a block on each
multiprocessor."""
SIMULATOR = replace(GPU, rates=CPU.rates)
"""A GPU whose blocks run on the CPU, one after the other."""
REFERENCE = Kind(CPU.rates, skips_iterations=True)
"""NumPy, node by node."""
KINDS = {"cpu": CPU, "cuda": GPU, "sim": SIMULATOR, "reference": REFERENCE}


def kind_of(device: str) -> Kind:
    """Return the kind of `device`; its number (`cuda:1`) does not matter."""
    return KINDS[device.partition(":")[0]]


@dataclass(frozen=True)
class Caches:
    """The sizes in bytes of the first-level data cache and the second-level cache of one core.

    The defaults are those of the machine that `docs/performance.md` measured; they apply where the
    system does not tell.
    """

    first: int = 32 * 1024
    second: int = 1024 * 1024

    @property
    def near(self) -> int:
        """Bytes that may stay in the first level beside streamed data.

        Three quarters is a choice: streamed data needs only a few lines.
        """
        return self.first * 3 // 4

    @property
    def far(self) -> int:
        """Bytes that may stay in the second level beside streamed data of an operand.

        A quarter is a choice: code and data of other kernels are there too.
        """
        return self.second // 4


@dataclass(frozen=True)
class Target:
    """One machine, as passes and lowering see it.

    `device` is "cpu", "cuda", "sim" or "reference". `lanes` is the number of float32 in a vector
    register on the CPU (16 with AVX-512, 8 with AVX2, else 4), and 1 elsewhere.
    """

    device: str = "cpu"
    lanes: int = 16
    arch: str = ""
    """Resolved CPU features or compute capability, as the caches' keys need it."""
    caches: Caches = Caches()
    """Of a CPU's core. They are in the text of the kernels that they change, and so in its keys."""
    multiplies_pairs: bool = False
    """Whether an instruction adds two products of bf16 at a time (AVX512-BF16), so that a
    contraction had better read them as such than as float32."""
    multiplies_tiles: bool = False
    """Whether an instruction adds products of bf16 to 16 x 16 sums (AMX-BF16), and the system lets
    the process use it. A CPU that does multiplies pairs as well."""
    tensor_cores: bool = True
    """Whether a GPU's tensor cores may multiply: those of compute capability 8.0 or newer multiply
    halves, bfloats and tf32."""
    splits_products: bool = False
    """Whether a product of float32 may be made of three of tf32 (`precision="float32x3"`), where
    tensor cores gain by it."""
    multiplies_groups: bool = False
    """Whether products may be those of warp groups (`GRAPHC_WGMMA`), on GPUs of compute capability
    9.0 alone."""
    copies_in_bulk: bool = False
    """Whether TMA may copy what warp groups multiply (`GRAPHC_TMA`)."""
    adds_in_clusters: bool = False
    """Whether blocks of a cluster may add the parts of k of a product (`GRAPHC_CLUSTERS`), on GPUs
    of compute capability 9.0 or newer alone."""
    draws_tickets: bool = False
    """Whether the last of a GPU's blocks to end may add what others have left
    (`GRAPHC_TICKETS`)."""
    transforms_tiles: bool = False
    """Whether a 3 x 3 convolution may be computed by Winograd's algorithm (`precision="winograd"`),
    where a CPU gains by it."""

    joins_launches: bool = True
    """Whether runs of launches may become one, where that is estimated to gain."""

    @property
    def registers(self) -> int:
        """The number of vector registers of a core: of AVX-512, AVX2, NEON."""
        return {16: 32, 8: 16, 4: 32}[self.lanes]

    @property
    def kind(self) -> Kind:
        return kind_of(self.device)

    def with_denormals(self, mode: str) -> Target:
        """Return this target with kernels that treat denormals by `mode`, "flush" or "keep".

        In both modes, the instructions that add pairs or tiles of bf16 treat them as zeros.
        """
        if mode != "keep":
            return self
        return replace(self, multiplies_pairs=False, multiplies_tiles=False)

    @property
    def has_lanes(self) -> bool:
        """Whether values may have lanes: neighbours along an axis, together in a register."""
        return self.kind.vectors and self.lanes > 1

    def fills_lanes(self, batch: int) -> bool:
        """Return whether so many samples fill registers well enough for a batch in the lanes.

        With half of the lanes empty, a training step of ResNet-18 takes 1.3 times as long as
        row-major.
        """
        return self.has_lanes and batch >= 0.6 * LANES
