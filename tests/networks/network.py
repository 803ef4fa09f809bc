"""A network as data. Nothing here knows a library."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")
Shape = tuple[int, ...]


class MisfitError(Exception):
    """A step's inputs do not fit its kind; another network is drawn."""


@dataclass(frozen=True)
class Step:
    """One line: a value of `kind` from earlier values, inputs being numbered before steps.

    `choices` in [0, 1) are what the kind takes its attributes from: 0 is the plainest. `shares` is
    the step whose layer, and with it weights, this one uses.
    """

    kind: str
    inputs: tuple[int, ...]
    choices: tuple[float, ...] = ()
    shares: int | None = None


@dataclass(frozen=True)
class Head:
    """One term of the loss, of the value with this number; its targets are inputs of the loss."""

    kind: str
    value: int


@dataclass(frozen=True)
class Network:
    """Inputs, steps and heads; how it is run, and the seed of its weights and arrays.

    `mode` is "forward" (the values of the heads), "gradient" (loss, values and the gradients of all
    parameters and inputs) or "train" (steps of an update rule). `frozen` are the steps whose layers
    are not trained.
    """

    seed: int
    inputs: tuple[Shape, ...]
    steps: tuple[Step, ...]
    heads: tuple[Head, ...]
    symbols: tuple[int, ...] = ()
    """The inputs that are whole numbers below `SYMBOLS`."""
    frozen: tuple[int, ...] = ()
    mode: str = "gradient"
    training: bool = True
    dtype: str = "float32"
    rule: str = "SGD"

    def first(self) -> int:
        """The number of the first step's value."""
        return len(self.inputs)


SYMBOLS = 7


@dataclass(frozen=True)
class Line:
    """What a step is in text: `{0}`, `{1}` stand for its inputs, `{layer}` for its layer, which
    `layer` makes."""

    expression: str
    layer: str = ""


class Choices:
    """Numbers in [0, 1), used one after the other; zeros behind the last."""

    def __init__(self, numbers: Sequence[float]) -> None:
        self._numbers: Iterator[float] = iter(numbers)

    def of(self, candidates: Sequence[T]) -> T:
        """One of them. The plainest stands first, so that shrinking leads to it."""
        if not candidates:
            raise MisfitError("nothing to choose from")
        return candidates[int(next(self._numbers, 0.0) * len(candidates))]

    def flag(self) -> bool:
        return self.of((False, True))


Draw = Callable[..., Line]
"""`draw(choices, *shapes)`: the line for inputs of these shapes. Raises MisfitError."""


@dataclass(frozen=True)
class Kind:
    """A kind of step: the numbers of axes of its inputs, and how often it is drawn."""

    ranks: tuple[int, ...]
    draw: Draw
    weight: int


KINDS: dict[str, Kind] = {}


def kind(*ranks: int, weight: int = 2) -> Callable[[Draw], Draw]:
    """Registers a function as the kind of its name."""

    def register(draw: Draw) -> Draw:
        KINDS[draw.__name__.strip("_")] = Kind(ranks, draw, weight)
        return draw

    return register


def divisors(n: int) -> list[int]:
    """Ascending."""
    return [d for d in range(1, n + 1) if n % d == 0]


def need(fits: bool, what: str = "") -> None:
    """MisfitError unless it does."""
    if not fits:
        raise MisfitError(what)
