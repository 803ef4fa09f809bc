"""A network that fails -> a smaller one that fails in the same way.

Each round tries simpler networks one by one and goes on from the first that still fails: without a
head, without a step (what read it reads one of its inputs, or a new input of its shape), with
plainer choices, smaller extents. Every one of them lowers `size`, so the rounds end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from tests.networks.network import Head, MisfitError, Network, Shape, Step
from tests.networks.write import Lines


def shrink(network: Network, fails: Callable[[Network], bool]) -> Network:
    """The smallest that was found; `fails` is false for what is no network at all."""
    while True:
        for simpler in _simpler(network):
            if size(simpler) < size(network) and fails(simpler):
                network = simpler
                break
        else:
            return network


def size(network: Network) -> tuple[float, ...]:
    """Steps first, then heads, attributes and extents."""
    chosen = sum(sum(step.choices) + len(step.choices) for step in network.steps)
    shared = sum(step.shares is not None for step in network.steps)
    plain = (network.mode == "train") + (network.mode != "forward") + (network.rule != "SGD")
    plain += len(network.frozen) + (network.dtype != "float32") + network.training + shared
    plain += sum(head.kind != "square" for head in network.heads)
    extents = sum(sum(shape) for shape in network.inputs)
    return len(network.steps), len(network.heads), len(network.inputs), plain, chosen, extents


def _simpler(network: Network) -> Iterator[Network]:
    heads = network.heads
    if len(heads) > 1:
        for head in heads:
            yield _without_unread(replace(network, heads=tuple(h for h in heads if h != head)))
    for number in reversed(range(network.first(), network.first() + len(network.steps))):
        yield from _without_step(network, number)
    yield from _plainer(network)
    for place, step in enumerate(network.steps):
        for i, choice in enumerate(step.choices):
            for other in (0.0, round(choice / 2, 3)):
                if other != choice:
                    chosen = (*step.choices[:i], other, *step.choices[i + 1 :])
                    yield _with_step(network, place, replace(step, choices=chosen))
        if step.choices and not step.choices[-1]:
            yield _with_step(network, place, replace(step, choices=step.choices[:-1]))
    yield from _smaller_extents(network)


def _plainer(network: Network) -> Iterator[Network]:
    yield replace(network, frozen=())
    yield replace(network, mode="gradient")
    yield replace(network, mode="forward")
    yield replace(network, rule="SGD")
    yield replace(network, training=False)
    yield replace(network, dtype="float32")
    yield replace(network, steps=tuple(replace(s, shares=None) for s in network.steps))
    for place, head in enumerate(network.heads):
        others = (*network.heads[:place], Head("square", head.value), *network.heads[place + 1 :])
        yield replace(network, heads=others)


def _with_step(network: Network, place: int, step: Step) -> Network:
    return replace(network, steps=(*network.steps[:place], step, *network.steps[place + 1 :]))


def _without_step(network: Network, number: int) -> Iterator[Network]:
    """What read the value reads an input of its step instead, or a new input of its shape."""
    step = network.steps[number - network.first()]
    for other in step.inputs:
        yield _without_unread(_read_instead(network, number, other))
    try:
        shape: Shape = Lines(network).shapes[number]
    except MisfitError:
        return
    shifted = _shifted(network, network.first(), 1)
    shifted = replace(shifted, inputs=(*network.inputs, shape))
    yield _without_unread(_read_instead(shifted, number + 1, network.first()))


def _read_instead(network: Network, number: int, other: int) -> Network:
    steps = tuple(
        replace(s, inputs=tuple(other if i == number else i for i in s.inputs))
        for s in network.steps
    )
    heads = tuple(
        dict.fromkeys(Head(h.kind, other if h.value == number else h.value) for h in network.heads)
    )
    return replace(network, steps=steps, heads=heads)


def _without_unread(network: Network) -> Network:
    """Without the steps and inputs that no head needs."""
    needed = {head.value for head in network.heads}
    for number in reversed(range(network.first(), network.first() + len(network.steps))):
        step = network.steps[number - network.first()]
        if number in needed:
            needed |= {*step.inputs, *([] if step.shares is None else [step.shares])}
    count = network.first() + len(network.steps)
    inputs = [i for i in range(network.first()) if i in needed] or [0]
    kept = [*inputs, *(i for i in range(network.first(), count) if i in needed)]
    new = {old: place for place, old in enumerate(kept)}
    return replace(
        _renumbered(network, new),
        inputs=tuple(network.inputs[i] for i in inputs),
        steps=tuple(
            s
            for place, s in enumerate(_renumbered(network, new).steps)
            if place + network.first() in new
        ),
    )


def _shifted(network: Network, first: int, by: int) -> Network:
    """All numbers from `first` on become larger."""
    count = network.first() + len(network.steps)
    return _renumbered(network, {i: i + by if i >= first else i for i in range(count)})


def _renumbered(network: Network, new: dict[int, int]) -> Network:
    def step(s: Step) -> Step:
        shares = None if s.shares is None else new.get(s.shares)
        return replace(s, inputs=tuple(new.get(i, 0) for i in s.inputs), shares=shares)

    return replace(
        network,
        steps=tuple(map(step, network.steps)),
        heads=tuple(Head(h.kind, new[h.value]) for h in network.heads if h.value in new),
        symbols=tuple(new[i] for i in network.symbols if i in new),
        frozen=tuple(new[i] for i in network.frozen if i in new),
    )


def _smaller_extents(network: Network) -> Iterator[Network]:
    """Of the batch for all inputs, of the other axes for one."""
    batch = network.inputs[0][0]
    for n in dict.fromkeys((1, batch // 2, batch - 1)):
        if 0 < n < batch:
            yield replace(network, inputs=tuple((n, *shape[1:]) for shape in network.inputs))
    for number, shape in enumerate(network.inputs):
        for axis in range(1, len(shape)):
            for n in dict.fromkeys((1, 2, shape[axis] // 2, shape[axis] - 1)):
                if 0 < n < shape[axis]:
                    smaller = (*shape[:axis], n, *shape[axis + 1 :])
                    inputs = (*network.inputs[:number], smaller, *network.inputs[number + 1 :])
                    yield replace(network, inputs=inputs)
