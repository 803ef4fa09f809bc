"""Choose a node's kernel by measurement (`tune=True`).

Lowering ranks its candidates by a model of the machine, whose constants describe one core, or a GPU
that was never measured. Here the first of them are built and run one after another on scratch
arrays, and the model's choice is replaced only by one that is faster by more than the noise. A
choice is cached by machine and by the candidates' text, so a layer is measured once. It is made for
each kernel alone, independently of streams, so results have the same bits with every number of
streams.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from graphc.base.errors import RunError
from graphc.base.messages import decide as tell
from graphc.base.messages import log, progress
from graphc.base.target import Target
from graphc.ir import Graph, Node
from graphc.kernels.lower import call_kernel, call_of, candidates
from graphc.kernels.program.calls import Call, Product
from graphc.kernels.program.kernel import Kernel
from graphc.ops.fused import KernelNode
from graphc.ops.loops.scan import bodies
from graphc.runtime.compilers import cache
from graphc.runtime.tuning.stream_autotuner import compare, decide, ratio
from graphc.runtime.tuning.timing import Play

SECONDS = 0.5
"""Seconds that the measurement of a node may take, besides one call of each candidate."""
FEWEST_ROUNDS = 3
"""The fewest rounds of a meaningful measurement."""
FORMAT = 4
"""The format of cached choices."""


class Trial(Protocol):
    """A device on which kernels are run for measurement."""

    machine: str
    """Everything that their times depend on."""

    def clock(self) -> float: ...
    def library(self, call: Call) -> str: ...
    def workspaces(self, call: Call) -> list[int]: ...
    def plays(self, node: Node, found: Sequence[Kernel]) -> AbstractContextManager[list[Play]]: ...


def measure(plays: Sequence[Play], clock: Callable[[], float]) -> tuple[int, str]:
    """The index of the fastest, 0 unless another is faster by more than the noise, and the
    reason."""
    for play in plays:
        play()
    samples = compare(plays[0], dict(enumerate(plays[1:], 2)), SECONDS, clock)
    if len(samples[1]) < FEWEST_ROUNDS:
        return 0, "a call takes too long to be measured"
    chosen, noise = decide(samples)
    if chosen == 1:
        return 0, f"no other was faster by more than the noise of {noise:.1%}"
    return chosen - 1, f"{ratio(samples, chosen):.3f} of the first's time, noise {noise:.1%}"


@dataclass(frozen=True)
class TunedNode:
    """A node and its candidates."""

    node: Node
    """The node."""
    generated: Sequence[Kernel]
    """The generated kernels, the model's choice first."""
    call: Call | None
    """The library call that could replace them; None if there is none."""

    def candidates(self, trial: Trial) -> list[Kernel]:
        """All kernels, library calls last."""
        found = list(self.generated)
        if self.call is not None:
            assert isinstance(self.node, KernelNode)
            title = trial.library(self.call)
            sizes = enumerate(trial.workspaces(self.call))
            found += [call_kernel(self.node, self.call, title, n, size) for n, size in sizes]
        return found

    def kernel(self, index: int, trial: Trial) -> Kernel:
        """Candidate number `index`."""
        return (
            self.generated[index] if index < len(self.generated) else self.candidates(trial)[index]
        )

    def key(self, trial: Trial) -> str:
        """The cache key of a choice."""
        asked = self.call and (self.call, trial.library(self.call))
        return cache.choice_key(
            FORMAT, trial.machine, asked, *(k.canonical for k in self.generated)
        )


def tuned(
    graph: Graph,
    kernels: Mapping[str, Kernel],
    target: Target,
    trial: Trial,
    libraries: bool = False,
) -> dict[str, Kernel]:
    """`kernels`, by their nodes' first outputs, with the fastest candidates.

    Only contractions have several; with `libraries` some candidates are library calls, except in
    loops, where each iteration's operands have other addresses.
    """
    lacking: set[str] = set()
    equal: dict[str, list[TunedNode]] = {}
    for each in (graph, *bodies(graph)):
        for node in (n for n in each.nodes if n.outputs[0].name in kernels):
            call = call_of(node) if libraries and each is graph else None
            if call is not None and not trial.library(call):
                lacking.add("matrix products" if isinstance(call, Product) else "convolutions")
                call = None
            layer = TunedNode(node, candidates(node, target, in_loop=each is not graph), call)
            if len(layer.generated) > 1 or call is not None:
                equal.setdefault(layer.key(trial), []).append(layer)
    for kind in sorted(lacking):
        tell(f"tune: no library for {kind} is installed: pip install 'graphc[libraries]'")
    chosen = dict(kernels)
    with progress("tuning kernels", len(equal)) as advance:
        for number, (key, layers) in enumerate(equal.items(), 1):
            name = layers[0].generated[0].name
            log("info", f"tune: {name}, {number} of {len(equal)}")
            index, count, why = _choice(key, layers[0], trial)
            tell(f"tune: {name} takes candidate {index + 1} of {count}: {why}")
            chosen |= {x.node.outputs[0].name: x.kernel(index, trial) for x in layers}
            advance(1)
    return chosen


def _choice(key: str, layer: TunedNode, trial: Trial) -> tuple[int, int, str]:
    """The number of the chosen kernel, the number of candidates, and the reason; remembered or
    measured."""
    remembered = cache.recall_choice(key)
    if remembered is not None:
        index, count, why = remembered
        return index, count, why
    try:
        found = layer.candidates(trial)
        with trial.plays(layer.node, found) as plays:
            index, why = measure(plays, trial.clock)
    except RunError as error:
        log("warning", f"tune: {layer.generated[0].name} was not measured: {error}")
        return 0, len(layer.generated), "the device could not measure it"
    choice = index, len(found), why
    cache.remember_choice(key, choice)
    return choice
