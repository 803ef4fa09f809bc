"""Turn the steps of a plan into driver calls with prepacked arguments."""

from __future__ import annotations

import bisect
import struct
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

from graphc.base.cores import usable_cores
from graphc.kernels.program.calls import Call, Product
from graphc.kernels.program.joined import RESIDENT
from graphc.kernels.program.kernel import GridLaunch, Kernel
from graphc.runtime.cuda.device import Device
from graphc.runtime.cuda.nccl import Nccl
from graphc.runtime.cuda.tensor_maps import packed
from graphc.runtime.plan.plan import (
    Binding,
    Copy,
    JoinedLaunch,
    Launch,
    Loop,
    Plan,
    Range,
    Record,
    Wait,
    all_steps,
)
from graphc.runtime.plan.unroll import WrittenOut, unrolled

Issue = Callable[[], Any]
"""Issues one step, or one launch of a step, on its stream."""


MOST_TOGETHER = 24
"""Kernels per file for a driver that compiles several at once."""


@dataclass(frozen=True)
class Image:
    """The compiled module of a kernel, perhaps shared with others, and the symbols of its launches,
    which are those of the first of equal kernels."""

    compiled: bytes
    symbols: tuple[str, ...]


def compile_kernels(plan: Plan, device: Device) -> dict[str, Image]:
    """The image of each kernel by its name, from the cache if it is there. Raises CompileError,
    which names the user's line.

    Kernels that differ only in names share an image, unless the device checks them, as its messages
    name the kernel. Joined launches share none: each has a word at which its blocks wait.
    """
    wheres: dict[str, str] = {}
    for step in all_steps(plan.steps):
        if isinstance(step, Launch):
            wheres.setdefault(step.kernel, str(step.where))
    kernels = [k for k in plan.kernels.values() if k.launches]
    if device.driver.cooperates:
        kernels += [joined.kernel for joined in plan.joined]
    checked = getattr(device.driver, "check", False)
    own = {joined.kernel.name for joined in plan.joined}
    texts = {k.name: k.name if checked or k.name in own else k.canonical for k in kernels}
    firsts: dict[str, Kernel] = {}
    for kernel in kernels:
        firsts.setdefault(texts[kernel.name], kernel)

    def compiled(unit: Sequence[str]) -> list[tuple[str, Image]]:
        chosen = [firsts[text] for text in unit]
        sources = [(k.source, k.name, wheres.get(k.name, "")) for k in chosen]
        symbols = [tuple(launch.symbol for launch in k.launches) for k in chosen]
        if len(unit) > 1:
            found = device.driver.compile_all(sources)
        else:
            found = [device.driver.compile(*sources[0])]
        return list(zip(unit, map(Image, found, symbols), strict=True))

    units = _units(list(firsts), hasattr(device.driver, "compile_all"))
    with ThreadPoolExecutor(usable_cores()) as pool:
        images = dict(pair for unit in pool.map(compiled, units) for pair in unit)
    return {name: images[text] for name, text in texts.items()}


def _units(kernels: Sequence[str], together: bool) -> list[Sequence[str]]:
    """The units to compile at once: single kernels, or about equal work per core."""
    count = len(kernels)
    if together:
        count = min(count, usable_cores() * -(-count // (usable_cores() * MOST_TOGETHER)))
    return [kernels[i::count] for i in range(count)]


class Places:
    """Finds the binding that contains a range of a segment, as of the plan's state."""

    def __init__(self, bindings: Sequence[Binding]) -> None:
        places = [binding.place for binding in bindings]
        # Of the bindings that start at one place all but the last are empty.
        self._order = sorted(range(len(places)), key=lambda i: (places[i].start, places[i].stop))
        self._starts = [places[i].start for i in self._order]

    def find(self, place: Range) -> tuple[int, int]:
        """(index of the binding, bytes from its start)."""
        at = bisect.bisect_right(self._starts, place.start) - 1
        return self._order[at], place.start - self._starts[at]

    def written(self, plan: Plan, segment: str) -> list[int]:
        """The indices of the bindings, all those of `segment`, that some step writes, ascending."""
        targets = [step.target for step in plan.steps if isinstance(step, Copy)]
        work = [step for step in plan.steps if isinstance(step, Launch | Loop)]
        targets += [place for step in work for place in step.writes]
        return sorted({self.find(place)[0] for place in targets if place.segment == segment})


class Addresses:
    """Device addresses of a plan's bytes: of each piece of state, of each input and output, and of
    the work memory."""

    def __init__(self, plan: Plan, state: Sequence[int], io: Sequence[int], work: int) -> None:
        self._work = work
        self._bound = {"state": (Places(plan.state), state)}
        self._bound["io"] = Places((*plan.inputs, *plan.outputs)), io

    def of(self, place: Range) -> int:
        """The address of the first byte."""
        if place.segment == "work":
            return self._work + place.start
        places, addresses = self._bound[place.segment]
        index, offset = places.find(place)
        return addresses[index] + offset

    def span(self, place: Range) -> tuple[int, int, str]:
        """(start, stop, value) for a driver that checks what launches touch."""
        start = self.of(place)
        return start, start + place.stop - place.start, place.value


def library_for(driver: Any, call: Call) -> Any:
    """The driver's library for such calls; None if there is none."""
    return driver.products if isinstance(call, Product) else driver.convolutions


class Functions:
    """The loaded kernels of a plan and its events. Create and free it while a context is
    current."""

    def __init__(
        self,
        plan: Plan,
        device: Device,
        images: Mapping[str, Image],
        early: bool = False,
        nccl: Nccl | None = None,
    ) -> None:
        self._nccl = nccl
        """What sums over all ranks; None for a plan without messages."""
        self._plan, self._device, driver = plan, device, device.driver
        # Kernels of one image share its module, but those that draw tickets have counters of their
        # own: each is in another copy.
        drawing = {name for name, kernel in plan.kernels.items() if kernel.draws_tickets}
        copies: Counter[int] = Counter()
        keys: dict[str, tuple[int, int]] = {}
        for name, image in images.items():
            keys[name] = id(image.compiled), copies[id(image)]
            copies[id(image)] += name in drawing
        distinct = {keys[name]: image.compiled for name, image in images.items()}
        self._modules = {key: driver.module_from_buffer(x) for key, x in distinct.items()}
        self._functions: dict[tuple[str, bool], list[tuple[GridLaunch, Any]]] = {}
        """The launches of each kernel; those after another launch on their stream may begin
        early."""
        self._joined: dict[str, Any] = {}
        for joined in plan.joined if driver.cooperates else ():
            (launch,), image = joined.kernel.launches, images[joined.kernel.name]
            cooperative = driver.cooperative(image.compiled, launch.symbol)
            self._joined[joined.kernel.name] = cooperative
            attribute = driver.function_attribute.MAX_DYNAMIC_SHARED_SIZE_BYTES
            cooperative.set_attribute(attribute, launch.shared_bytes)
        for name, image in images.items():
            if name in self._joined:
                continue
            module, launches = self._modules[keys[name]], plan.kernels[name].launches
            self._functions[name, False] = self._found(launches, image, module.get_function)
            self._functions[name, True] = self._functions[name, False]
            if early and not any(launch.maps for launch in launches):
                find = partial(driver.early, image.compiled)
                self._functions[name, True] = self._found(launches, image, find)
        self._calls = {
            name: library_for(driver, kernel.call).prepare(kernel.call)
            for name, kernel in plan.kernels.items()
            if kernel.call is not None
        }
        numbers = {u.step.event for u in unrolled(plan) if isinstance(u.step, Record)}
        untimed = driver.event_flags.DISABLE_TIMING
        self._events = {number: driver.Event(untimed) for number in sorted(numbers)}

    def _found(
        self, launches: Sequence[GridLaunch], image: Image, find: Callable[[str], Any]
    ) -> list[tuple[GridLaunch, Any]]:
        """The functions of launches, each allowed the shared memory that it uses."""
        found = [(x, find(symbol)) for x, symbol in zip(launches, image.symbols, strict=True)]
        for launch, function in found:
            if launch.shared_bytes:
                attribute = self._device.driver.function_attribute.MAX_DYNAMIC_SHARED_SIZE_BYTES
                function.set_attribute(attribute, launch.shared_bytes)
        return found

    def launches(self, kernel: str) -> bool:
        """Whether a kernel is launched, and is neither a library call nor empty."""
        return bool(self._functions.get((kernel, False)))

    def joined(self, joined: JoinedLaunch, addresses: Addresses, stream: Any) -> Issue | None:
        """A function that issues a joined launch on `stream`; None if it needs more than the device
        holds.

        It has as many blocks as it can use and the device can hold at once, but no more per
        multiprocessor than were estimated: more blocks take longer to wait for each other.
        """
        (launch,) = joined.kernel.launches
        function = self._joined[joined.kernel.name]
        threads = launch.block[0]
        most = function.blocks(threads, launch.shared_bytes, RESIDENT)
        blocks = min(launch.grid[0], most) // launch.multiple * launch.multiple
        if not blocks:
            return None
        pointers = [addresses.of(place) for place in joined.arguments]
        return partial(
            function._launch_kernel,
            (blocks, 1, 1),
            launch.block,
            struct.pack(f"{len(pointers)}P", *pointers),
            launch.shared_bytes,
            stream,
            **self._declared_joined(joined, addresses),
        )

    def issues(
        self, step: WrittenOut, addresses: Addresses, stream: Any, after_launch: bool = False
    ) -> list[Issue]:
        """Functions that issue a step on `stream`. `after_launch` tells that the previous step
        there is a launch."""
        if isinstance(step, Launch):
            return self._launches(step, addresses, stream, after_launch)
        if isinstance(step, Copy):
            size = step.source.stop - step.source.start
            target, source = addresses.of(step.target), addresses.of(step.source)
            copy = self._device.driver.memcpy_dtod_async
            return [partial(copy, target, source, size, stream)] if size else []
        event = self._events[step.event]
        if isinstance(step, Wait):
            return [partial(stream.wait_for_event, event)]
        return [partial(event.record, stream)]

    def _launches(
        self, step: Launch, addresses: Addresses, stream: Any, after_launch: bool
    ) -> list[Issue]:
        kernel = self._plan.kernels[step.kernel]
        pointers = [addresses.of(x) + kernel.offset(n) for n, x in enumerate(step.arguments)]
        if (call := self._calls.get(step.kernel)) is not None:
            return [call.issue(kernel.rank, pointers, stream, **self._declared(step, addresses))]
        if kernel.message is not None:
            assert self._nccl is not None, "a plan with messages has a communicator"
            return [self._nccl.issue(kernel.message, pointers, stream)]
        driver = self._device.driver
        first, rest = (self._functions.get((step.kernel, x), []) for x in (after_launch, True))
        functions = [*first[:1], *rest[1:]]
        return [
            partial(
                function._launch_kernel,
                launch.grid,
                launch.block,
                packed(pointers, launch, driver),
                launch.shared_bytes,
                stream,
                **self._declared(step, addresses, last=number == len(functions)),
            )
            for number, (launch, function) in enumerate(functions, 1)
        ]

    def _declared_joined(self, joined: JoinedLaunch, addresses: Addresses) -> dict[str, Any]:
        """The bytes that a joined launch's steps touch. One step may read what another wrote, even
        in what is another's workspace."""
        if not self._device.declares:
            return {}
        spans: dict[str, dict[Any, None]] = {"reads": {}, "writes": {}, "scratch": {}}
        for u in unrolled(self._plan):
            if not joined.first <= u.number < joined.stop:
                continue
            if isinstance(u.step, Copy):
                found = {"reads": [u.step.source], "writes": [u.step.target]}
                touched = {k: [addresses.span(p) for p in x] for k, x in found.items()}
            elif isinstance(u.step, Launch):
                touched = self._declared(u.step, addresses)
                touched.pop("completes")
                touched["reads"] = [*touched["reads"], *touched["scratch"]]
            for kind, places in touched.items():
                spans[kind].update(dict.fromkeys(places))
        return {kind: list(places) for kind, places in spans.items()}

    def _declared(self, step: Launch, addresses: Addresses, last: bool = True) -> dict[str, Any]:
        """The bytes that a launch touches, for a driver that checks them."""
        if not self._device.declares:
            return {}
        kernel = self._plan.kernels[step.kernel]
        writes = step.writes[:-1] if kernel.workspace > 0 else step.writes
        scratch = step.writes[-1:] if kernel.workspace > 0 else ()
        spans: dict[str, Any] = {
            name: [addresses.span(p) for p in places if p.stop > p.start]
            for name, places in (("reads", step.reads), ("scratch", scratch))
        }
        read = {(p.segment, p.start, p.stop) for p in step.reads if kernel.writes_changes}
        gaps = kernel.gaps or ((),) * len(writes)
        spans["writes"] = []
        for place, gap in zip(writes, gaps, strict=True):
            if (place.segment, place.start, place.stop) in read:
                spans["scratch"].append(addresses.span(place))
            elif place.stop > place.start:
                spans["writes"].append((*addresses.span(place), *gap))
        return {**spans, "completes": last}
