"""The CPU device: runs a plan of generated C++ kernels on arrays of this process."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from graphc.base.config import denormals
from graphc.base.dtypes import Array
from graphc.base.errors import RunError
from graphc.base.locks import HOST, refuse_reentry
from graphc.ir import Graph, Node, Type
from graphc.ir.state import PackedBuffer, StateBuffer, elements, wrote
from graphc.runtime.checks.nan import (
    Nan,
    Reads,
    has_nan,
    kernels_of,
    reads_of,
    value_types,
    written_nan,
)
from graphc.runtime.compilers.player_library import begin_player
from graphc.runtime.cpu import addresses
from graphc.runtime.cpu.addresses import ABSOLUTE, BYTES, IO, WORK, HostAddresses
from graphc.runtime.cpu.caller import find_caller
from graphc.runtime.cpu.player import Player, PlayerTask, RelativeAddress, resolve
from graphc.runtime.cpu.tiers import FirstTier, KernelFunctions, Tiers
from graphc.runtime.plan.plan import Copy, Launch, Loop, Plan, Step, all_steps
from graphc.runtime.tuning.timing import Timing, timing

if TYPE_CHECKING:  # most programs have one process
    from graphc.parallel.group import Group
    from graphc.runtime.cpu.messages import Messages


def load(
    plan: Plan,
    state: Mapping[str, StateBuffer],
    threads: int,
    graph: Graph | None = None,
    keys: Mapping[str, str] | None = None,
    tiers: Tiers | None = None,
    flush: bool | None = None,
    group: Group | None = None,
) -> CpuExecutable:
    """Bind `plan` to `state` and to the functions of its kernels: compiled ones, built if they are
    not in the cache, or prebuilt ones as far as `tiers` says. Raises CompileError.

    See `CpuExecutable`; `keys` is that of `build_kernels`, `flush` says whether denormals count as
    zeros, or None for what GRAPHC_DENORMALS says. Messages go to the ranks of `group`.
    """
    wheres: dict[str, object] = {}
    for step in all_steps(plan.steps):
        if isinstance(step, Launch):
            wheres.setdefault(step.kernel, step.where)
    begin_player()
    kernels = KernelFunctions(plan, tiers or Tiers(), graph, keys, wheres, threads)
    return CpuExecutable(plan, state, threads, kernels.functions, graph, kernels, flush, group)


class CpuExecutable:
    """A plan bound to state buffers and kernels.

    `state` maps the plan's state values to their buffers, `functions` its kernels to their
    addresses, both by name. `threads` is the number of workers, the caller included; results do not
    depend on it. `graph` is the planned graph, which gives `run_checked` the types of values in the
    arena. `kernels` are the kernels of which some begin as prebuilt functions, if any do. An
    executable may be called from several threads: calls of all programs run one after another,
    since they share the arena, the workers and perhaps state. A call from within a call raises
    RunError.
    """

    def __init__(
        self,
        plan: Plan,
        state: Mapping[str, StateBuffer],
        threads: int,
        functions: Mapping[str, int],
        graph: Graph | None = None,
        kernels: KernelFunctions | None = None,
        flush: bool | None = None,
        group: Group | None = None,
    ) -> None:
        self.plan = plan
        self.steps = all_steps(plan.steps)
        self.threads = threads
        self._messages: Messages | None = None
        if any(kernel.message is not None for kernel in plan.kernels.values()):
            from graphc.runtime.cpu.messages import Messages

            self._messages = Messages(plan, group)
        played = self._messages.functions if self._messages else {}
        self.functions = {**functions, **played}
        self._kernels = kernels
        self._finished: list[tuple[str, int]] = kernels.finished if kernels else []
        self._graph = graph
        self._flush = denormals() == "flush" if flush is None else flush
        self._places = HostAddresses(plan, [state[b.value.name] for b in plan.state])
        self._state = self._places.buffers
        self._packed = [b for b in self._state if isinstance(b, PackedBuffer)]
        self._updated = [self._state[i] for i in sorted(self._places.updated_state(plan))]
        self._outputs = tuple((b.value.type.shape, b.value.type.numpy_dtype) for b in plan.outputs)
        caller = find_caller()
        self.exact, self._fresh = caller.exact, caller.bind
        self._player = self._load_player(in_order=False)
        self._peak = plan.peak_bytes
        self._memory = (ctypes.c_uint64 * (IO + len(plan.inputs) + len(plan.outputs)))()
        self._bases = ctypes.addressof(self._memory)
        self._io = ctypes.addressof(self._memory) + IO * ctypes.sizeof(ctypes.c_uint64)

    @property
    def ready(self) -> bool:
        """Whether no kernel is still to be compiled."""
        return self._kernels is None or self._kernels.ready

    @property
    def first(self) -> FirstTier:
        """How its kernels began."""
        return self._kernels.first if self._kernels else FirstTier()

    def wait(self) -> None:
        """Wait until all kernels are compiled, which then play from the next call on. Raises
        CompileError if one is not."""
        if self._kernels:
            self._kernels.wait()

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        """One call: returns the outputs as new arrays and updates the state in place.

        The inputs are C-contiguous with the shapes and dtypes of `plan.inputs`, and are read in
        place. Raises RunError if memory is short; the state is then unchanged.
        """
        refuse_reentry(self.plan.name)
        with HOST:
            outputs = self._bind(inputs)
            if self._messages:
                self._begin(self._messages)
            # Marked as written before it is: an interrupt may come right after the last kernel.
            wrote(self._updated, "host")
            self._player.play(self._bases)
            if self._messages:
                self._messages.end()
        return outputs

    def _begin(self, messages: Messages) -> None:
        """Begin a call of a plan with messages, with the other ranks."""
        messages.begin(self.state_buffers)
        for packed in self._packed:
            packed.refresh()

    def run_checked(self, inputs: Sequence[Array]) -> list[Array]:
        """As `run`, one launch at a time; raises RunError at the first NaN in an input, in state or
        in a value that a kernel writes. Then the state is as before the call."""
        refuse_reentry(self.plan.name)
        with HOST:
            outputs = self._bind(inputs)
            if self._messages:
                self._begin(self._messages)
            before = self._snapshot()
            try:
                self._check_arguments(inputs)
                self._play_checked([*inputs, *outputs])
            except BaseException:
                self._restore(before)
                raise
            wrote(self._updated, "host")
        return outputs

    @property
    def state_buffers(self) -> dict[str, StateBuffer]:
        """The buffers of the plan's state, by name."""
        names = (binding.value.name for binding in self.plan.state)
        return dict(zip(names, self._state, strict=True))

    def profile(self, inputs: Sequence[Array], repeats: int = 20) -> list[Timing]:
        """The times of each launch and copy, in the plan's order, of compiled kernels.

        After one uncounted call, the launches of all streams run one after another, `repeats`
        times, each with all workers. The state is restored.
        """
        self.wait()
        with HOST:
            self._swap()
            player = self._load_player(in_order=True)
        calls = [sums / 1000 for _, _, sums in self._times(player, inputs, repeats)[1:]]
        each = np.array(calls).reshape(repeats, len(player.tasks))
        found: dict[int, tuple[Array, int]] = {}
        for task, spent in zip(player.tasks, each.T, strict=True):
            if not task.count:
                before = found[task.step][0] if task.step in found else 0.0
                found[task.step] = before + spent, _iterations(player, task)
        return [timing(n, self._name(n), *found[n]) for n in sorted(found)]

    def calls(self, inputs: Sequence[Array], repeats: int = 20) -> list[float]:
        """Microseconds of each of `repeats` calls as by `run`, of compiled kernels, after one
        uncounted call. The state is restored."""
        self.wait()
        spent = []
        refuse_reentry(self.plan.name)
        with HOST:
            self._bind(inputs)
            before = self._snapshot()
            try:
                for _ in range(1 + repeats):
                    begin = time.perf_counter_ns()
                    outputs = self._bind(inputs)
                    self._player.play(self._bases)
                    spent.append((time.perf_counter_ns() - begin) / 1000)
                    self._restore(before)
                    del outputs  # alive until here: the kernels write them
            except BaseException:  # also an interrupt while the state is restored
                self._restore(before)
                raise
        return spent[1:]

    def timeline(self, inputs: Sequence[Array]) -> list[tuple[int, float, float]]:
        """(step number, start, end) of each launch's phases, each copy and each loop in one call,
        in microseconds from the first start, as the streams ran. Steps in a loop span from the
        first iteration to the last. The kernels are compiled ones; the state is restored."""
        self.wait()
        starts, stops, _ = self._times(self._player, inputs, 1)[-1] / 1000
        first = starts.min(initial=np.inf)
        return [
            (task.step, float(start - first), float(stop - first))
            for task, start, stop in zip(self._player.tasks, starts, stops, strict=True)
        ]

    def _times(self, player: Player, inputs: Sequence[Array], repeats: int) -> list[Array]:
        """(starts, ends, sums) of the tasks in nanoseconds, in each of 1 + `repeats` calls,
        restoring the state after each."""
        times = []
        refuse_reentry(self.plan.name)
        with HOST:
            outputs = self._bind(inputs)
            before = self._snapshot()
            try:
                for _ in range(1 + repeats):
                    times.append(player.play_timed(self._bases).T)
                    self._restore(before)
            except BaseException:  # also an interrupt while the state is restored
                self._restore(before)
                raise
            del outputs  # alive until here: the kernels write them
        return times

    def _snapshot(self) -> list[Array]:
        return [buffer.array.copy() for buffer in self._updated]

    def _restore(self, contents: list[Array]) -> None:
        for buffer, array in zip(self._updated, contents, strict=True):
            buffer.array[...] = array

    def _load_player(self, in_order: bool) -> Player:
        arguments: dict[int, Sequence[RelativeAddress]] = {}
        descriptions: dict[int, RelativeAddress] = {}
        for index, step in enumerate(self.steps):
            if isinstance(step, Launch):
                kernel = self.plan.kernels[step.kernel]
                found = [self._places.address(a, step.stage) for a in step.arguments]
                arguments[index] = [
                    replace(a, offset=a.offset + kernel.offset(n)) for n, a in enumerate(found)
                ]
                if self._kernels and step.kernel in self._kernels.descriptions:
                    described = self._kernels.descriptions[step.kernel]
                    descriptions[index] = RelativeAddress(ABSOLUTE, described)
            elif isinstance(step, Copy):
                places = step.source, step.target
                arguments[index] = [self._places.address(a, step.stage) for a in places]
            elif isinstance(step, Loop) and step.guard is not None:
                arguments[index] = [self._places.address(step.guard)]
        tasks = resolve(self.plan, in_order)
        known = self.functions, arguments, self.threads, self._flush, descriptions
        waiting = self._messages.waiting if self._messages else ()
        return Player(self.plan, tasks, *known, waiting)

    def _swap(self) -> None:
        """Let the compiled kernels that are there by now play from here on. HOST is held."""
        while self._finished:
            name, address = self._finished[-1]
            self.functions[name] = address
            self._player.replace(name, address)
            self._finished.remove((name, address))  # last: an interrupt leaves it for the next call

    def _bind(self, inputs: Sequence[Array]) -> list[Array]:
        """New outputs for a call; sets the base addresses, brings the state to the host, and lets
        compiled kernels play that have become ready."""
        if self._finished:
            self._swap()
        outputs = self._fresh(inputs, self._outputs, self._io)
        addresses.ARENA.reserve(self._peak)
        self._memory[WORK] = addresses.ARENA.address
        for buffer in self._state:
            if buffer.current != "host":
                buffer.refresh_host()
        for packed in self._packed:
            packed.refresh()
        return outputs

    def _name(self, step: int) -> str:
        launch = self.steps[step]
        return launch.kernel if isinstance(launch, Launch) else "copy"

    def _check_arguments(self, inputs: Sequence[Array]) -> None:
        arrays = [*inputs, *(buffer.array for buffer in self._state)]
        bindings = (*self.plan.inputs, *self.plan.state)
        for binding, array in zip(bindings, arrays, strict=True):
            if has_nan(array):
                raise RunError(Nan(binding.value).message)

    def _play_checked(self, io: Sequence[Array]) -> None:
        types, nodes = types_in(self.plan, self._graph), kernels_of(self._graph)
        skipping: set[int] = set()

        def play(first: int, last: int, iterations: dict[int, int]) -> None:
            """Tasks `first` to `last` (exclusive) in these iterations of the loops around them."""
            index, reads = first, None
            while index < last:
                task = self._player.tasks[index]
                if task.guarded and task.inside in skipping:
                    index += 1 + task.tasks
                    continue
                for t in range(task.count):
                    inner = {**iterations, index: t}
                    skipping.discard(index)
                    if self._skips(self.steps[task.step], io, [*inner.values()]):
                        skipping.add(index)
                    play(index + 1, index + 1 + task.tasks, inner)
                if not task.count:
                    step = self.steps[task.step]
                    t = iterations.get(task.inside, 0)
                    plays = task.inside < 0 or t in range(*task.during)
                    begins = index == first or self._player.tasks[index - 1].step != task.step
                    if begins and plays:
                        reads = self._read(step, nodes, io, [*iterations.values()])
                    self._player.play_in_order(self._bases, index, index + 1, iterations)
                    ends = index + 1 == last or self._player.tasks[index + 1].step != task.step
                    if ends and plays:
                        self._check_step(step, types, io, [*iterations.values()], reads)
                index += 1 + task.tasks

        play(0, len(self._player.tasks), {})

    def _skips(self, step: Step, io: Sequence[Array], iterations: Sequence[int]) -> bool:
        """Whether a loop leaves its guarded steps out in the iteration that begins."""
        if not isinstance(step, Loop) or step.guard is None:
            return False
        return not self._places.array(step.guard.at(iterations), BYTES, io).any()

    def _read(
        self, step: Step, nodes: Mapping[str, Node], io: Sequence[Array], iterations: Sequence[int]
    ) -> Reads | None:
        """Copies of what a kernel is about to read, as it may overwrite it."""
        if not isinstance(step, Launch):
            return None
        places = (place.at(iterations) for place in step.reads)
        return reads_of(step, nodes, [self._places.array(p, BYTES, io).copy() for p in places])

    def _check_step(
        self,
        step: Step,
        types: Mapping[str, Type],
        io: Sequence[Array],
        iterations: Sequence[int],
        reads: Reads | None,
    ) -> None:
        """Raise RunError if a kernel has written a NaN in these iterations of the enclosing
        loops."""
        if not isinstance(step, Launch):
            return
        for place in step.writes:
            type = types.get(place.value)
            if type is not None and has_nan(
                elements(self._places.array(place.at(iterations), type, io), type)
            ):
                raise written_nan(step, place.value, type, iterations, reads)


def types_in(plan: Plan, graph: Graph | None) -> dict[str, Type]:
    """The types of a plan's values, by name: all that kernels make if the graph is given."""
    bindings = (*plan.state, *plan.inputs, *plan.outputs)
    return {b.value.name: b.value.type for b in bindings} | value_types(graph)


def _iterations(player: Player, task: PlayerTask) -> int:
    """The number of times that a task runs in one call."""
    times = 1
    while task.inside >= 0:
        task = player.tasks[task.inside]
        times *= task.count
    return times
