"""The constants of the model, each with its source. None was measured with graphc's kernels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

LANES = 32
"""Threads of a warp."""


@dataclass(frozen=True)
class Machine:
    """A GPU of architecture `arch`: rates in FLOPs and bytes per second, latencies in cycles, times
    in seconds. `SOURCES` describes each field."""

    name: str = "NVIDIA H200 (model)"
    arch: str = "sm_90a"
    multiprocessors: float = 132
    clock: float = 1.98e9
    fp32: float = 67e12
    tf32: float = 494.7e12
    bf16: float = 989.4e12
    mma_share: float = 0.62
    wgmma_share: float = 0.80
    issue_share: float = 0.92
    copy: float = 4.3e12
    l2: float = 5.5e12
    l2_keeps: float = 30e6
    l1: float = 200e3
    l1_lines: float = 256 * 1024
    l1_share: float = 0.75
    l1_latency: float = 40
    l2_latency: float = 270
    memory_latency: float = 650
    shared_latency: float = 33
    barrier: float = 30
    shuffle: float = 25
    l2_of_one: float = 48
    ticket: float = 600
    fence: float = 300
    turn: float = 700
    wait: float = 1.2e-6
    node: float = 2.3e-6
    gap: float = 1.2e-6
    registers: float = 65536
    shared: float = 227 * 1024
    threads: float = 2048
    blocks: float = 32
    host: float = 50e9


SOURCES: Mapping[str, str] = {
    "multiprocessors": "of an H200",
    "clock": "Hz under load; 132 x 128 lanes x 2 x 1.98 GHz = 67 TFLOP/s",
    "fp32": "FLOP/s, datasheet: FFMA in every issue slot",
    "tf32": "FLOP/s dense, datasheet (989 with sparsity)",
    "bf16": "FLOP/s dense, datasheet",
    "mma_share": "of the dense peak that mma.sync reaches; guess from published 60 to 65 %",
    "wgmma_share": "of the dense peak that wgmma reaches; 788 of 989 for PyTorch's 8192^3 product",
    "issue_share": "of the issue slots that a full multiprocessor uses; guess",
    "copy": "bytes/s read and written by a device-to-device copy with PyTorch",
    "l2": "bytes/s from L2 to all multiprocessors; published microbenchmarks of an H100",
    "l2_keeps": "bytes touched since, below which data are still in L2 (60 MB in halves); guess",
    "l1": "bytes that resident blocks may read for loads again to hit L1; guess",
    "l1_lines": "bytes of L1 and shared memory together, of a multiprocessor",
    "l1_share": "of what shared memory leaves of them, that lines of copies find; guess",
    "l1_latency": "cycles; published microbenchmarks of Hopper",
    "l2_latency": "cycles; published microbenchmarks of Hopper",
    "memory_latency": "cycles, with some load; published microbenchmarks say 480 to 600 without",
    "shared_latency": "cycles from LDS to use, once per block of code that has some",
    "barrier": "cycles per BAR",
    "shuffle": "cycles per SHFL, which are taken as one chain",
    "l2_of_one": "bytes per cycle from L2 to one multiprocessor alone; guess",
    "ticket": "cycles of the ticket by which a block knows that it is the last; guess",
    "fence": "cycles of a fence of the device, of which a ticket has two; guess",
    "turn": "cycles until a warp knows by a load that acquires what another block stored; guess",
    "wait": "s that all blocks wait for each other; published microbenchmarks of grid.sync()",
    "node": "s, the least that a node of a CUDA graph takes; assumed",
    "gap": "s of it between the end of a node and the first instruction of the next; guess",
    "registers": "per multiprocessor (CUDA programming guide)",
    "shared": "bytes of shared memory that blocks of a multiprocessor can have; 1 KiB more each",
    "threads": "per multiprocessor",
    "blocks": "per multiprocessor",
    "host": "bytes/s of page-locked copies over PCIe 5 x16; a lead",
}

ENDS: Mapping[str, tuple[float, float]] = {
    "clock": (1.0, 0.8),
    "mma_share": (1.2, 0.8),
    "wgmma_share": (1.15, 0.8),
    "issue_share": (1.06, 0.85),
    "copy": (1.07, 0.93),
    "l2": (1.3, 0.8),
    "l2_keeps": (1.6, 0.6),
    "l2_latency": (0.8, 1.2),
    "memory_latency": (0.75, 1.35),
    "l2_of_one": (1.3, 0.7),
    "ticket": (0.6, 1.6),
    "fence": (0.5, 1.8),
    "wait": (0.6, 1.6),
    "node": (0.5, 1.4),
    "gap": (0.5, 1.4),
    "host": (1.1, 0.5),
}
"""What a constant may be at most and at least in place of 1, first what makes a step faster. These
ranges are why a prediction is one: a time outside of it says that the formula is wrong."""

H200 = Machine()
H100 = replace(H200, name="NVIDIA H100 (model)", copy=3.0e12, l2_keeps=25e6)
A100 = replace(
    H200,
    name="NVIDIA A100 (model)",
    arch="sm_80",
    multiprocessors=108,
    clock=1.41e9,
    fp32=19.5e12,
    tf32=156e12,
    bf16=312e12,
    mma_share=0.85,
    copy=1.7e12,
    l2=3.5e12,
    l2_keeps=20e6,
    l1_lines=192 * 1024,
    l2_latency=200,
    memory_latency=500,
    shared=163 * 1024,
    host=25e9,
)
MACHINES: Mapping[str, Machine] = {"h200": H200, "h100": H100, "a100": A100}


def machine_called(name: str) -> Machine:
    """The machine for a GPU of this name, such as "NVIDIA H100 80GB HBM3"; an H200 if there is
    none."""
    return next((m for key, m in MACHINES.items() if key in name.lower()), H200)


def ends(machine: Machine) -> tuple[Machine, Machine]:
    """The machine with all constants at the fast ends of `ENDS`, and at the slow ends."""
    fast, slow = (
        {name: getattr(machine, name) * factors[end] for name, factors in ENDS.items()}
        for end in (0, 1)
    )
    return replace(machine, **fast), replace(machine, **slow)


def changed(machine: Machine, settings: Sequence[str]) -> Machine:
    """The machine with constants replaced by `name=value`, such as measured ones. Raises ValueError
    for an unknown constant or an invalid number."""
    known = [field.name for field in fields(Machine) if field.name not in ("name", "arch")]
    for setting in settings:
        name, _, value = setting.partition("=")
        if name not in known:
            raise ValueError(f"--set {setting}: expected one of {', '.join(known)}")
        try:
            changes: dict[str, Any] = {name: float(value)}
        except ValueError:
            raise ValueError(f"--set {setting}: expected a number, got {value!r}") from None
        machine = replace(machine, **changes)
    return machine


FORMULA = """\
node      = max(node, gap + max(SM, DRAM, L2));  step = nodes in the order of streams and events
SM        = whole rounds of resident blocks and the rest: r blocks per multiprocessor take
            max(issue, FMA, ALU, XU, FP64, tensor, LSU, latency) cycles; padding is in the counts
issue     = warp instructions on a scheduler / issue_share;  FMA 1 cycle, IMAD 2, ALU 2, XU 8,
            FP64 2
tensor    = FLOP of HMMA or HGMMA / (dense rate x mma_share or wgmma_share)
LSU       = cycles of the load/store pipe: 4-byte access 1, 8-byte 2, 16-byte 4 (LDS.128 3)
latency   = one warp alone: instructions (FMA 1 cycle, others 2), shared_latency per block of code
            with LDS, barrier, shuffle, a latency for each wait on loads, a turn for each that it
            asks for; a ring of cp.async tiles with n in flight takes at least latency / n per step
DRAM      = bytes of the plan's reads and writes not touched within l2_keeps bytes / copy
L2        = 32-byte sectors that the lanes' addresses touch in loads, copies and stores / l2; loads
            again of what the resident blocks read hit L1 if that fits (`l1`); what copies by way
            of L1 find there is a simulation of its lines
members   = blocks that do different things are given to multiprocessors in turn, whose pipes take
            the sum of theirs; the longest block's latency is the least
last      = what comes behind a ticket is done by one block of a group alone: its pipes, or its
            bytes / l2_of_one, two latencies, a ticket and two fences
joined    = a node, a wait for each place at which all blocks wait, and between two of these what
            the multiprocessor with most to do takes
streams   = nodes side by side slow down where pipes, block slots or bandwidth exceed 100 % together
counts    = the machine code, walked as sampled threads walk it (integer instructions only)"""
