"""Two tiers of CPU kernels: prebuilt functions first, compiled kernels when they are there.

A kernel that the cache lacks begins as a function of the prebuilt library that reads its
description, so that no compiler runs before a program's first call. Compiled in the background, it
replaces that function between two calls. Both give the same bits. A kernel that no prebuilt
function computes is compiled before the first call.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from graphc.base.errors import CompileError
from graphc.base.locks import NOTES, free_after_fork
from graphc.base.messages import log
from graphc.base.target import Target
from graphc.ir import Graph, Node
from graphc.ir.state import aligned_empty
from graphc.kernels.lower import cpu_name, prebuilt
from graphc.kernels.prebuilt.description import Prebuilt
from graphc.kernels.program.kernel import Kernel
from graphc.ops.loops.scan import bodies
from graphc.runtime.compilers.background_builds import BUILDS
from graphc.runtime.compilers.compiler import find_compiler
from graphc.runtime.compilers.prebuilt_library import PrebuiltLibrary, build_library, find_library
from graphc.runtime.compilers.shared_objects import compiler_or_none
from graphc.runtime.compilers.translation_units import (
    build_kernels,
    kernel_builder,
    kernel_keys,
    pending_kernels,
)
from graphc.runtime.plan.plan import Launch, Loop, Plan, Step
from graphc.runtime.planner.concurrency import DeviceModel

ALIGNMENT = 64
"""Bytes of whose multiples descriptions have their addresses."""
LISTED = 4
"""Kernels that a note names."""

_told = threading.Condition(free_after_fork(threading.RLock(), NOTES))
"""Held while somebody is told of kernels that were compiled."""


@dataclass(frozen=True)
class FirstTier:
    """How the kernels of a plan begin."""

    keys: Mapping[str, str] = field(default_factory=dict)
    """The keys of kernels in the cache, by name; empty where they do not matter."""
    prebuilt: Mapping[str, Prebuilt] = field(default_factory=dict)
    """Those that begin as prebuilt functions, by name."""
    missing: tuple[str, ...] = ()
    """The names of those that are compiled before the first call."""
    replaced: bool = True
    """Whether compiled kernels replace prebuilt functions."""

    @property
    def note(self) -> str:
        """What a plan says about it; "" where all kernels were compiled before."""
        if not self.prebuilt:
            return ""
        until = " until they are compiled" if self.replaced else ""
        text = f"tiers: {len(self.prebuilt)} of {len(self.keys)} kernels run prebuilt{until}"
        if not self.missing:
            return text
        more = f" and {len(self.missing) - LISTED} more" if len(self.missing) > LISTED else ""
        return (
            f"{text}; compiled before the first call, as no prebuilt function computes them: "
            f"{', '.join(self.missing[:LISTED])}{more}"
        )


class Tiers:
    """Decides for one program how kernels begin.

    `tier` is `Config.tier`; `known` has the prebuilt functions of kernels that were described
    before, by name. The default compiles all kernels before the first call.
    """

    def __init__(
        self,
        tier: str = "1",
        target: Target | None = None,
        known: Mapping[str, Prebuilt] | None = None,
    ) -> None:
        self.tier, self._target, self._known = tier, target, known
        self.prebuilt_library: PrebuiltLibrary | None = None
        if tier == "0":
            self.prebuilt_library = build_library()
        elif tier != "1":
            self.prebuilt_library = find_library()
            if compiler_or_none() is None:
                _miss_compiler()
        self._found: dict[str, tuple[Kernel, Prebuilt | None, bool]] = {}
        """What is known of kernels: the prebuilt function, and whether the cache has them."""
        self._alike: dict[object, Prebuilt | None] = {}
        """The prebuilt functions of kernels that do the same, as layers and steps repeat."""

    def first(
        self,
        kernels: Mapping[str, Kernel],
        graph: Graph | None = None,
        keys: Mapping[str, str] | None = None,
    ) -> FirstTier:
        """How `kernels` begin, by name. `graph` has their nodes, unless all are known; `keys` are
        those of `kernel_keys`, if known."""
        if self.prebuilt_library is None:
            return FirstTier(keys or {})
        compiler = compiler_or_none()
        if keys is None:
            keys = kernel_keys(kernels) if compiler else dict.fromkeys(kernels, "")
        new = {n: k for n, k in kernels.items() if self._found.get(n, (None,))[0] is not k}
        lacking = self._lacking(new, keys) if compiler else set(new)
        wanted = set(new) if self.tier == "0" else lacking
        nodes = dict(_nodes(graph)) if graph is not None and wanted else {}
        for name, kernel in new.items():
            described = self._describe(kernel, nodes.get(name)) if name in wanted else None
            self._found[name] = kernel, described, name not in lacking
        found = {name: self._found[name] for name in kernels}
        return FirstTier(
            keys,
            {name: described for name, (_, described, _) in found.items() if described},
            tuple(n for n, (_, described, has) in found.items() if not described and not has),
            self.tier != "0" and compiler is not None,
        )

    def _lacking(self, kernels: Mapping[str, Kernel], keys: Mapping[str, str]) -> set[str]:
        """The names of kernels that the cache lacks."""
        wanted = pending_kernels(kernels, {name: keys[name] for name in kernels})
        with kernel_builder() as builder:
            missing = {pending.key for pending in builder.missing(wanted.values())}
        return {name for name in kernels if keys[name] in missing}

    def _describe(self, kernel: Kernel, node: Node | None) -> Prebuilt | None:
        """The prebuilt function of a kernel, if the library has it."""
        assert self.prebuilt_library is not None
        if self._known is not None and kernel.name in self._known:
            found: Prebuilt | None = self._known[kernel.name]
        elif node is not None and self._target is not None:
            same = kernel.canonical, kernel.offsets, kernel.inplace
            if same not in self._alike:
                self._alike[same] = prebuilt(node, kernel, self._target)
            found = self._alike[same]
        else:
            return None
        return found if found and self.prebuilt_library.address(found.symbol) else None


class KernelFunctions:
    """The functions that play a plan's kernels, and those that will.

    `wheres` tells where kernels come from, for errors; `workers` are those of the plan. Raises
    CompileError.
    """

    def __init__(
        self,
        plan: Plan,
        tiers: Tiers,
        graph: Graph | None = None,
        keys: Mapping[str, str] | None = None,
        wheres: Mapping[str, object] | None = None,
        workers: int = 1,
    ) -> None:
        self.name = plan.name
        kernels = {n: k for n, k in plan.kernels.items() if k.message is None}
        self.first = first = tiers.first(kernels, graph, keys)
        compiled = {n: k for n, k in kernels.items() if n not in first.prebuilt}
        self.functions = self._compiled(compiled, wheres)
        """The address of each kernel's function, by the kernel's name."""
        self.descriptions: dict[str, int] = {}
        """The addresses of descriptions, by the kernel's name."""
        self.finished: list[tuple[str, int]] = []
        """Names and addresses of compiled kernels that are to replace prebuilt functions."""
        self._pending: dict[str, list[str]] = {}
        self._errors: list[CompileError] = []
        if first.prebuilt:
            assert tiers.prebuilt_library is not None
            for name, found in first.prebuilt.items():
                address = tiers.prebuilt_library.address(found.symbol)
                assert address is not None
                self.functions[name] = address
            self._memory = self._place(first.prebuilt)
        if first.replaced and first.prebuilt:
            later = {name: plan.kernels[name] for name in first.prebuilt}
            for name in later:
                self._pending.setdefault(first.keys[name], []).append(name)
            gains: dict[str, float] = {}
            for name, gain in _gains(plan, workers).items():
                key = first.keys[name]
                gains[key] = gains.get(key, 0.0) + gain
            with kernel_builder() as builder:
                wanted = pending_kernels(later, first.keys, wheres)
                BUILDS.order(builder, wanted.values(), gains, self)

    @property
    def ready(self) -> bool:
        """Whether all kernels are compiled that ever will be."""
        return not self._pending

    def wait(self) -> None:
        """Wait until all kernels are compiled. Raises CompileError if one is not."""
        BUILDS.hurry(set(self._pending))
        with _told:
            while self._pending and not self._errors:
                _told.wait(0.2)
        if self._errors:
            raise self._errors[0]

    def built(self, addresses: Mapping[str, int]) -> None:
        """Take the addresses of compiled kernels by their keys."""
        with _told:
            for key, address in addresses.items():
                self.finished += [(name, address) for name in self._pending.pop(key, ())]
            left = sum(map(len, self._pending.values()))
            _told.notify_all()
        count = len(self.first.prebuilt)
        log("info", f"tiers: {count - left} of {count} kernels of {self.name} were compiled")

    def failed(self, key: str, error: CompileError) -> None:
        """Note that a kernel cannot be compiled and stays prebuilt."""
        if not self._errors:
            log("warning", f"{self.name} goes on with prebuilt kernels: {error}")
        self._fail(error)

    def dropped(self, key: str) -> None:
        """Note that a kernel will not be compiled."""
        self._fail(CompileError(f"{self.name}: the compilers were ended"))

    def _fail(self, error: CompileError) -> None:
        with _told:
            self._errors.append(error)
            _told.notify_all()

    def _compiled(
        self, kernels: Mapping[str, Kernel], wheres: Mapping[str, object] | None
    ) -> dict[str, int]:
        keys = {name: self.first.keys[name] for name in kernels} if self.first.keys else None
        try:
            return build_kernels(kernels, wheres, keys=keys)
        except CompileError as error:
            if self.first.prebuilt and compiler_or_none() is None:
                error.add_note(f"no prebuilt function computes {', '.join(self.first.missing)}")
            raise

    def _place(self, described: Mapping[str, Prebuilt]) -> object:
        """Lay out the descriptions in memory, which is returned."""
        places, size = {}, 0
        for name, found in described.items():
            places[name] = size
            size += -(-len(found.data) // ALIGNMENT) * ALIGNMENT
        memory = aligned_empty((size,), np.uint8)
        for name, found in described.items():
            end = places[name] + len(found.data)
            memory[places[name] : end] = np.frombuffer(found.data, np.uint8)
            self.descriptions[name] = memory.ctypes.data + places[name]
        return memory


@functools.cache
def _miss_compiler() -> None:
    """Say, once, what a compiler would be good for."""
    try:
        find_compiler()
    except CompileError as error:
        log("info", f"kernels run prebuilt; compiled they take half the time: {error}")


def _nodes(graph: Graph) -> Iterator[tuple[str, Node]]:
    """The nodes of kernels by the kernels' names, in bodies of loops too."""
    for each in (graph, *bodies(graph)):
        for node in each.nodes:
            if node.op.name not in ("reshape", "scan"):
                yield cpu_name(node), node


def _gains(plan: Plan, workers: int) -> dict[str, float]:
    """Estimated microseconds that each kernel that computes takes in a call, by name."""
    machine = DeviceModel(plan.device, workers)
    gains = {name: 0.0 for name, kernel in plan.kernels.items() if kernel.message is None}

    def add(steps: Sequence[Step], times: int) -> None:
        for step in steps:
            if isinstance(step, Loop):
                add(step.steps, times * step.count)
            elif isinstance(step, Launch) and step.kernel in gains:
                gains[step.kernel] += times * machine.kernel(plan.kernels[step.kernel]).microseconds

    add(plan.steps, 1)
    return gains
