"""Reserve a device's memory for a plan before anything is launched."""

from __future__ import annotations

from collections.abc import Sequence

from graphc.base.errors import RunError
from graphc.ir.state import StateBuffer
from graphc.runtime.cuda.device import Device, DeviceCopy
from graphc.runtime.plan.plan import Launch, Plan, all_steps
from graphc.runtime.plan.text import megabytes

SECTION = 256
"""Bytes: the arena's parts start at multiples of it, as the driver's allocations do."""

LARGEST = 5
"""Buffers that a message names."""


def work_start(plan: Plan) -> int:
    """Byte offset of the work memory in the arena, after inputs and outputs."""
    ends = [b.place.stop for b in (*plan.inputs, *plan.outputs)]
    return -(-max(ends, default=0) // SECTION) * SECTION


def arena_bytes(plan: Plan) -> int:
    """Bytes of the arena that a plan uses; at least one."""
    return max(1, work_start(plan) + plan.peak_bytes)


def input_span(plan: Plan) -> tuple[int, int]:
    """The first byte of all inputs and their end, from the start of the arena; nothing else is
    between."""
    places = [b.place for b in plan.inputs]
    return min((p.start for p in places), default=0), max((p.stop for p in places), default=0)


def output_span(plan: Plan) -> tuple[int, int]:
    """The first byte of all outputs and their end, from the start of the arena."""
    places = [b.place for b in plan.outputs]
    return min((p.start for p in places), default=0), max((p.stop for p in places), default=0)


def reserve(plan: Plan, device: Device) -> None:
    """Make the arena large enough. Raises RunError if the device's memory is too small."""
    try:
        device.arena.reserve(arena_bytes(plan))
    except device.driver.MemoryError:
        raise out_of_memory(plan, device) from None


def reserve_memory(plan: Plan, state: Sequence[StateBuffer], device: Device) -> list[DeviceCopy]:
    """Reserve the arena and the copies of the state; returns the copies in order. Raises RunError
    if the device's memory is too small; then no program has lost anything."""
    arena = device.arena
    types = [binding.value.type for binding in plan.state]
    pairs = list(zip(state, types, strict=True))
    named = [(id(b), device.copy_name(t.layout)) for b, t in pairs]
    missing = {n: t.nbytes for n, (b, t) in zip(named, pairs, strict=True) if n[1] not in b.copies}
    free, _ = device.driver.mem_get_info()
    needed = sum(missing.values())
    if arena_bytes(plan) > arena.nbytes:
        needed += arena_bytes(plan) - arena.nbytes
    if needed > free:
        device.blocks.trim()
        free, _ = device.driver.mem_get_info()
    if needed > free:
        raise out_of_memory(plan, device)
    reserve(plan, device)
    try:
        return [device.copy_of(buffer, type.layout) for buffer, type in pairs]
    except device.driver.MemoryError:
        raise out_of_memory(plan, device) from None


def out_of_memory(plan: Plan, device: Device) -> RunError:
    """The error with what the plan needs, what is available, and the largest values."""
    free, total = device.driver.mem_get_info()
    state = sum(b.value.type.nbytes for b in plan.state)
    return RunError(
        f"out of memory on {device.name}: {plan.name} takes {megabytes(plan.peak_bytes)} of work "
        f"memory, {megabytes(work_start(plan))} for inputs and outputs and {megabytes(state)} for "
        f"state; of {megabytes(total)} are {megabytes(free)} free. Nothing has run, the state is "
        f"unchanged. {_largest(plan)}"
    )


def _largest(plan: Plan) -> str:
    sizes: dict[str, tuple[int, str]] = {}
    for launch in (step for step in all_steps(plan.steps) if isinstance(step, Launch)):
        for place in launch.writes:
            if place.segment == "work":
                where = f" ({launch.where})" if str(launch.where) else ""
                sizes[f"%{place.value}"] = (place.stop - place.start, where)
    for binding in (*plan.inputs, *plan.outputs, *plan.state):
        sizes[f"%{binding.value.name}"] = (binding.value.type.nbytes, "")
    largest = sorted(sizes.items(), key=lambda item: -item[1][0])[:LARGEST]
    named = [f"{name} {megabytes(size)}{where}" for name, (size, where) in largest]
    return f"The largest buffers: {', '.join(named)}"
