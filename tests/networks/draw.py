"""A seed -> a network. The same seed gives the same network as long as the kinds are the same."""

from __future__ import annotations

import random
from dataclasses import replace

from tests.networks.kinds.heads import HEADS
from tests.networks.network import KINDS, Head, MisfitError, Network, Shape, Step
from tests.networks.write import Lines, heads_of

BATCHES = (1, 2, 3, 4, 5, 7, 8, 9, 12, 15, 16, 17, 20, 31, 32, 33)
TRIES = 60
"""So many steps are drawn, at most, for one that fits."""


def draw(seed: int) -> Network:
    """A network of one or two inputs, 2 to 8 steps behind them, and a head for every end."""
    source = random.Random(seed)
    inputs, symbols = _inputs(source)
    network = Network(seed, inputs, (), (), symbols)
    lines, steps = Lines(network), []
    for number in symbols:
        steps.append(Step("embedding", (number,), _numbers(source)))
        lines.add(steps[-1])
    for _ in range(source.randint(2, 8)):
        steps += _step(source, lines, steps, network)
    network = replace(network, steps=tuple(steps))
    heads = tuple(_head(source, lines.shapes[h.value], h.value) for h in heads_of(network))
    *others, _ = trainable = lines.trainable or [0]
    frozen = source.sample(others, len(trainable) // 3) if source.random() < 0.25 else []
    mode = source.choice(("gradient", "gradient", "train", "train", "forward"))
    return replace(
        network,
        heads=heads,
        frozen=tuple(frozen),
        mode=mode if lines.trainable else "forward",
        training=mode == "train" or source.random() < 0.6,
        dtype="bfloat16" if source.random() < 0.1 else "float32",
        rule=source.choice(("SGD", "SGD", "AdamW")),
    )


def _inputs(source: random.Random) -> tuple[tuple[Shape, ...], tuple[int, ...]]:
    """The shapes of the inputs, all of one batch, and which of them are symbols."""
    batch = source.choice(BATCHES)
    side = (5, 6, 7, 8, 9, 11, 13, 17) if batch < 18 else (5, 6, 7, 8, 9)
    shapes: list[Shape] = []
    symbols = []
    for number in range(source.choice((1, 1, 2))):
        family = source.choice(("image", "image", "vector", "sequence", "sequence", "symbols"))
        if family == "image":
            extents = source.choice(side), source.choice(side)
            shapes.append((batch, source.choice((1, 3, 4, 5, 8)), *extents))
        elif family == "vector":
            shapes.append((batch, source.choice((3, 5, 8, 12, 16, 19, batch))))
        else:
            times = source.choice((1, 2, 3, 5, 6, 7, 11, batch))
            shapes.append((batch, times, source.choice((1, 3, 4, 5, 8, 9, 16))))
        if family == "symbols":
            shapes[-1] = shapes[-1][:2]
            symbols.append(number)
    return tuple(shapes), tuple(symbols)


def _step(source: random.Random, lines: Lines, steps: list[Step], network: Network) -> list[Step]:
    """One step that fits, or none if so many did not."""
    names, weights = list(KINDS), [kind.weight for kind in KINDS.values()]
    for _ in range(TRIES):
        step = _shared(source, lines, steps, network) if source.random() < 0.08 else None
        if step is None:
            name = source.choices(names, weights)[0]
            inputs = [_value(source, lines, steps, network, r) for r in KINDS[name].ranks]
            same = len(set(inputs)) < len(inputs) and source.random() < 0.9
            if None in inputs or same:
                continue
            step = Step(name, tuple(i for i in inputs if i is not None), _numbers(source))
        try:
            lines.add(step)
        except MisfitError:
            continue
        return [step]
    return []


def _shared(
    source: random.Random, lines: Lines, steps: list[Step], network: Network
) -> Step | None:
    """An earlier layer on another value."""
    places = [place for place, name in enumerate(lines.layers) if name]
    if not places:
        return None
    number = source.choice(places) + network.first()
    step = steps[number - network.first()]
    if step.shares is not None or step.kind == "embedding":
        return None
    inputs = [_value(source, lines, steps, network, r) for r in KINDS[step.kind].ranks]
    return replace(step, inputs=tuple(i or 0 for i in inputs), shares=number)


def _value(
    source: random.Random, lines: Lines, steps: list[Step], network: Network, rank: int
) -> int | None:
    """The number of a value of so many axes, one that nothing reads yet more often."""
    fits = [
        i
        for i, shape in enumerate(lines.shapes)
        if i not in network.symbols and (not rank or rank == len(shape))
    ]
    read = {i for step in steps for i in step.inputs}
    unread = [i for i in fits if i not in read]
    if unread and source.random() < 0.7:
        return source.choice(unread)
    return source.choice(fits) if fits else None


def _head(source: random.Random, shape: Shape, value: int) -> Head:
    return Head(source.choice([name for name, kind in HEADS.items() if kind.fits(shape)]), value)


def _numbers(source: random.Random) -> tuple[float, ...]:
    return tuple(source.randrange(1000) / 1000 for _ in range(8))
