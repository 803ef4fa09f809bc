"""The data of a report: plain values that JSON can hold."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Body:
    """The graph that a node holds: a loop's iteration, or what a kernel computes."""

    inputs: tuple[str, ...]
    """Names of its inputs; the node's inputs stand behind them, in order."""
    nodes: tuple[int, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True)
class NodeData:
    """A node of some stage. Nodes that stay as they are from stage to stage are one."""

    op: str
    kernel: str
    """Name of the kernel that it is; "" before fusion."""
    text: str
    module: str
    lines: tuple[str, ...]
    phase: str
    """"forward", "backward" or "update"."""
    free: bool
    """Whether a kernel computes it where it reads it, at no cost."""
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    note: str
    body: Body | None


@dataclass(frozen=True)
class StageData:
    """The graph after one pass: its nodes by number."""

    name: str
    inputs: tuple[str, ...]
    state: tuple[str, ...]
    outputs: tuple[str, ...]
    updates: tuple[tuple[str, str], ...]
    nodes: tuple[int, ...]


@dataclass(frozen=True)
class KernelData:
    """A kernel over one call of the program; times are in microseconds of one launch."""

    name: str
    template: str
    node: int
    """Number of its node; -1 if it has none of its own."""
    module: str
    lines: tuple[str, ...]
    phase: str
    gradient: str
    """What a backward kernel differentiates by; "" if none is known."""
    launches: int
    """In one call, iterations of loops counted."""
    bytes: int
    flops: int
    workspace: int
    predicted: float
    measured: float | None
    reasons: tuple[str, ...]
    """Why it is as it is, one sentence each."""
    source: str


@dataclass(frozen=True)
class StepData:
    """A step of the plan; `inside` is the number of the loop around it, -1 if there is none."""

    kind: str
    stream: int
    name: str
    """Of the kernel, the value, the event (`e3`) or the loop."""
    inside: int
    count: int
    """Iterations of a loop; else 1."""
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    reasons: tuple[str, ...] = ()
    """Of an event, a copy or a loop; a launch has those of its kernel."""


@dataclass(frozen=True)
class BufferData:
    """Bytes `start` to `stop` of the work memory, from the step `first` to the step `last`."""

    value: str
    type: str
    start: int
    stop: int
    first: int
    last: int
    phase: str
    producer: str
    """The kernel that writes it."""
    lines: tuple[str, ...]
    over: str
    """The value that it is written over in place; "" if none."""
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True)
class SpanData:
    """The time in which a step runs, in microseconds from the beginning.

    Of a loop it is the first iteration.

    `cause` is the number of the step that it waits for, or -1.
    """

    step: int
    stream: int
    start: float
    stop: float
    cause: int = -1


@dataclass(frozen=True)
class Limits:
    """The device's floating-point operations and bytes per second; `title` is their source."""

    flops: float
    bytes: float
    title: str


@dataclass(frozen=True)
class Summary:
    """The figures at the head of a report, of one call; times are in microseconds."""

    name: str
    device: str
    ops: int
    """Nodes that would be kernels of their own if nothing were fused."""
    kernels: int
    op_launches: int
    launches: int
    op_bytes: int
    bytes: int
    flops: int
    state_bytes: int
    peak: int
    bound: int
    streams: int
    events: int
    predicted: float
    measured: float | None
    verified: str
    """What the verifier says of the plan."""


@dataclass(frozen=True)
class ProgramData:
    """All of it."""

    summary: Summary
    nodes: tuple[NodeData, ...]
    types: dict[str, str]
    """Of every value of the first, the differentiated and the last stage, by its name."""
    stages: tuple[StageData, ...]
    kernels: tuple[KernelData, ...]
    steps: tuple[StepData, ...]
    buffers: tuple[BufferData, ...]
    live: tuple[int, ...]
    """Bytes of work memory that hold a value at each step."""
    state: tuple[tuple[str, str, int], ...]
    """(name, type, bytes) of what stays on the device between calls."""
    modelled: tuple[SpanData, ...]
    critical: tuple[int, ...]
    """Numbers of the steps on the critical path of the modelled timeline."""
    timeline: tuple[SpanData, ...]
    """As it ran; empty if nothing was measured."""
    limits: Limits | None
    notes: tuple[str, ...]
    advice: tuple[str, ...]
    """What would lower the peak of the work memory."""
    became: dict[str, tuple[str, ...]]
    """What became of each value that was traced, by its name."""
    files: dict[str, str]
    """The user's files, by the name that lines have."""
