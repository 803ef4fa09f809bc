"""Which of the kernels that could compute a node is fastest here, by measurement (`tune=True`).

Lowering ranks its candidates by a model of the machine, whose constants are those of one core, or
those of no GPU that was measured. Here the first of them are built and played one after another on
scratch arrays, and the model's first is replaced by another only where that is faster by more than
the noise. A choice is kept in the cache by machine and by the candidates' text, so a layer is
measured once. It is made for each kernel alone, before anything knows of streams: the bits of
results are those of every number of streams.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from graphc.errors import RunError
from graphc.ir import Graph, Node
from graphc.kernels.lower import candidates
from graphc.kernels.program.kernel import Kernel
from graphc.messages import decide as tell
from graphc.messages import log, progress
from graphc.ops.scan import bodies
from graphc.runtime import cache
from graphc.runtime.chooser import compare, decide, ratio
from graphc.runtime.timing import Play
from graphc.target import Target

SECONDS = 0.5
"""What the measurement of one node may take, beside one call of each candidate."""
FEWEST_ROUNDS = 3
"""Rounds of measurement: fewer say nothing."""
FORMAT = 2
"""Of what is kept in the cache."""


class Trial(Protocol):
    """A device on which kernels are played. `machine` is all that their times depend on, `clock`
    says what they have taken so far."""

    machine: str

    def clock(self) -> float: ...
    def plays(self, node: Node, found: Sequence[Kernel]) -> AbstractContextManager[list[Play]]: ...


def measure(plays: Sequence[Play], clock: Callable[[], float]) -> tuple[int, str]:
    """The index of the fastest, 0 unless another is faster by more than the noise, and why."""
    for play in plays:
        play()
    samples = compare(plays[0], dict(enumerate(plays[1:], 2)), SECONDS, clock)
    if len(samples[1]) < FEWEST_ROUNDS:
        return 0, "a call takes too long to be measured"
    chosen, noise = decide(samples)
    if chosen == 1:
        return 0, f"no other was faster by more than the noise of {noise:.1%}"
    return chosen - 1, f"{ratio(samples, chosen):.3f} of the first's time, noise {noise:.1%}"


def tuned(
    graph: Graph, kernels: Mapping[str, Kernel], target: Target, trial: Trial
) -> dict[str, Kernel]:
    """`kernels`, by their nodes' first outputs, with what is fastest in place of what the model
    takes for it. Only contractions have candidates."""
    nodes = [n for g in (graph, *bodies(graph)) for n in g.nodes if n.outputs[0].name in kernels]
    several = [(node, found) for node in nodes if len(found := candidates(node, target)) > 1]
    equal: dict[str, list[tuple[Node, list[Kernel]]]] = {}
    for node, found in several:
        key = cache.choice_key(FORMAT, trial.machine, *(kernel.canonical for kernel in found))
        equal.setdefault(key, []).append((node, found))
    chosen = dict(kernels)
    with progress("tuning kernels", len(equal)) as advance:
        for number, (key, layers) in enumerate(equal.items(), 1):
            node, found = layers[0]
            log("info", f"tune: {found[0].name}, {number} of {len(equal)}")
            index, why = _choice(key, node, found, trial)
            tell(f"tune: {found[0].name} takes candidate {index + 1} of {len(found)}: {why}")
            chosen |= {node.outputs[0].name: found[index] for node, found in layers}
            advance(1)
    return chosen


def _choice(key: str, node: Node, found: Sequence[Kernel], trial: Trial) -> tuple[int, str]:
    """The index of the kernel to take, and why: as it was remembered, else by measurement."""
    remembered = cache.recalled(key)
    if remembered is not None:
        index, why = remembered
        return index, why
    try:
        with trial.plays(node, found) as plays:
            choice = measure(plays, trial.clock)
    except RunError as error:
        log("warning", f"tune: {found[0].name} was not measured: {error}")
        return 0, "the device could not measure it"
    cache.remember(key, choice)
    return choice
