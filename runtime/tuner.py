"""Which of the kernels that could compute a node is fastest here, by measurement (`tune=True`).

Lowering ranks its candidates by a model of the machine, whose constants are those of one core. Here
the first of them are built, their chunks are played one after another on scratch arrays, and the
model's first is replaced by another only where that is faster by more than the noise. A choice is
kept in the cache by machine and by the candidates' text, so a layer is measured once.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from graphc.dtypes import Array
from graphc.ir import Graph, Node
from graphc.kernels.lower import candidates
from graphc.kernels.program.kernel import Kernel
from graphc.messages import decide as tell
from graphc.messages import log, progress
from graphc.ops.scan import bodies
from graphc.runtime import cache
from graphc.runtime.build import cpu_target
from graphc.runtime.chooser import compare, decide, filled, ratio
from graphc.runtime.units import build_kernels
from graphc.state import aligned_empty
from graphc.target import Target

SECONDS = 0.5
"""What the measurement of one node may take, beside one call of each candidate."""
FEWEST_ROUNDS = 3
"""Rounds of measurement: fewer say nothing."""
FORMAT = 1
"""Of what is kept in the cache."""

Play = Callable[[], None]
_KERNEL = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_int)


def measure(plays: Sequence[Play]) -> tuple[int, str]:
    """The index of the fastest, 0 unless another is faster by more than the noise, and why. The
    clock is that of this thread, which plays them: it stands while others have the core."""
    for play in plays:
        play()
    samples = compare(plays[0], dict(enumerate(plays[1:], 2)), SECONDS, time.thread_time)
    if len(samples[1]) < FEWEST_ROUNDS:
        return 0, "a call takes too long to be measured"
    chosen, noise = decide(samples)
    if chosen == 1:
        return 0, f"no other was faster by more than the noise of {noise:.1%}"
    return chosen - 1, f"{ratio(samples, chosen):.3f} of the first's time, noise {noise:.1%}"


def tuned(graph: Graph, kernels: Mapping[str, Kernel], target: Target) -> dict[str, Kernel]:
    """`kernels`, by their nodes' first outputs, with what is fastest in place of what the model
    takes for it. Only the CPU's contractions have candidates."""
    nodes = [n for g in (graph, *bodies(graph)) for n in g.nodes if n.outputs[0].name in kernels]
    several = [(node, found) for node in nodes if len(found := candidates(node, target)) > 1]
    equal: dict[str, list[tuple[Node, list[Kernel]]]] = {}
    for node, found in several:
        equal.setdefault(_key(found), []).append((node, found))
    chosen = dict(kernels)
    with progress("tuning kernels", len(equal)) as advance:
        for number, (key, layers) in enumerate(equal.items(), 1):
            node, found = layers[0]
            choice = cache.recalled(key)
            if choice is None:
                log("info", f"tune: measuring {found[0].name}, {number} of {len(equal)}")
                choice = measure(_plays(node, found))
                cache.remember(key, choice)
            index, why = choice
            tell(f"tune: {found[0].name} takes candidate {index + 1} of {len(found)}: {why}")
            chosen |= {node.outputs[0].name: found[index] for node, found in layers}
            advance(1)
    return chosen


def _plays(node: Node, found: Sequence[Kernel]) -> list[Play]:
    """What plays each candidate once, all on the same arrays, in the calling thread."""
    numbered = {str(index): kernel for index, kernel in enumerate(found)}
    functions = build_kernels(numbered, dict.fromkeys(numbered, node.where))
    arrays = [
        _scratch(v.type.storage_shape, v.type.numpy_dtype) for v in (*node.inputs, *node.outputs)
    ]
    arrays.append(_scratch((max(k.workspace for k in found),), np.dtype(np.uint8)))
    arguments = (ctypes.c_void_p * len(arrays))(*(a.ctypes.data for a in arrays))

    def play(name: str) -> None:
        function = _KERNEL(functions[name])
        for phase, chunks in enumerate(numbered[name].phases):
            for chunk in range(chunks):
                function(arguments, phase, chunk)
        assert arrays  # alive until here

    return [partial(play, name) for name in numbered]


def _scratch(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    array = aligned_empty(shape, dtype)
    array[...] = filled(shape, dtype)
    return array


def _key(found: Sequence[Kernel]) -> str:
    return cache.choice_key(FORMAT, cpu_target().arch, *(kernel.canonical for kernel in found))
