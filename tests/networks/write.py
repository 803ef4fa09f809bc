"""A network's text: a module and its loss, as a user would write them for either library.

PyTorch says what shape each line has, so a line that it refuses does not fit.
"""

from __future__ import annotations

import string
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.networks import kinds
from tests.networks.kinds.heads import HEADS, Array
from tests.networks.kinds.sequences import embedding
from tests.networks.network import (
    KINDS,
    SYMBOLS,
    Choices,
    Head,
    Line,
    MisfitError,
    Network,
    Shape,
    Step,
)
from tests.networks.sides import torch_names
from tests.tools import need_module

__all__ = ["LARGEST", "Lines", "Written", "kinds", "write"]

LARGEST = 20000
"""Elements of the largest value and the largest weight."""


class Lines:
    """The lines of a network, one after the other, and the shapes of their values."""

    def __init__(self, network: Network) -> None:
        self.torch = need_module("torch")
        self.names = torch_names(self.torch)
        self.network = network
        self.shapes: list[Shape] = list(network.inputs)
        self.lines: list[Line] = []
        self.layers: list[str] = []
        self.trainable: list[int] = []
        """The steps that have parameters of their own."""
        self._values = [
            self.torch.zeros(shape, dtype=self.torch.int64)
            if number in network.symbols
            else self.torch.linspace(-1, 1, int(np.prod(shape))).reshape(shape)
            for number, shape in enumerate(network.inputs)
        ]
        for step in network.steps:
            self.add(step)

    def add(self, step: Step) -> Shape:
        """The shape of the step's value. Raises MisfitError if there is none."""
        line, shapes = self._line(step), [self.shapes[i] for i in step.inputs]
        layer = f"{step.kind}{len(self.shapes)}" if line.layer else ""
        if step.shares is not None:
            place = step.shares - self.network.first()
            if not line.layer or self.lines[place].layer != line.layer or not self.layers[place]:
                raise MisfitError(f"{line.layer} is not what step {step.shares} has")
            layer = self.layers[place]
        value, weights = self._compute(line, [self._values[i] for i in step.inputs])
        shape = tuple(value.shape)
        if not 0 < value.numel() <= LARGEST or not 2 <= len(shape) <= 4:
            raise MisfitError(f"{step.kind} of {shapes} gives {shape}")
        if weights and step.shares is None:
            self.trainable.append(len(self.shapes))
        self._values.append(value)
        self.shapes.append(shape)
        self.lines.append(line)
        self.layers.append(layer)
        return shape

    def _line(self, step: Step) -> Line:
        choices = Choices(step.choices)
        symbols = [i for i in step.inputs if i in self.network.symbols]
        if step.kind == "embedding" and symbols:
            return embedding(choices)
        if symbols or step.kind == "embedding":
            raise MisfitError("symbols are embedded, and nothing else is")
        kind, shapes = KINDS[step.kind], [self.shapes[i] for i in step.inputs]
        fits = zip(kind.ranks, shapes, strict=True)
        if any(rank and rank != len(shape) for rank, shape in fits):
            raise MisfitError(f"{step.kind} of {shapes}")
        return kind.draw(choices, *shapes)

    def _compute(self, line: Line, values: list[Any]) -> tuple[Any, int]:
        """The line's value, and the elements of its layer's parameters."""
        weights, names = 0, dict(self.names)
        text = line.expression.format(*(f"x{i}" for i in range(len(values))), layer="layer")
        names.update({f"x{i}": value for i, value in enumerate(values)})
        try:
            with self.torch.no_grad():
                if line.layer:
                    names["layer"] = eval(line.layer, names).eval()
                    weights = sum(p.numel() for p in names["layer"].parameters())
                    if weights > LARGEST:
                        raise MisfitError("too many weights")
                return eval(text, names), weights
        except (RuntimeError, ValueError, IndexError, AssertionError) as error:
            raise MisfitError(f"PyTorch: {text}: {error}") from None


@dataclass(frozen=True)
class Written:
    """The text of a network, and what it is called with."""

    network: Network
    text: str
    arrays: tuple[Array, ...]
    """Inputs, then targets."""

    @property
    def inputs(self) -> tuple[Array, ...]:
        return self.arrays[: len(self.network.inputs)]

    def names(self, side: dict[str, Any]) -> dict[str, Any]:
        """`Network` and `loss`, and the names of that side."""
        found = dict(side)
        exec(compile(self.text, f"<network {self.network.seed}>", "exec"), found)
        return found

    def __str__(self) -> str:
        n = self.network
        arrays = ", ".join(f"{a.dtype}{list(a.shape)}" for a in self.arrays)
        how = f"{n.mode}, {'training' if n.training else 'eval'}, {n.dtype}, {n.rule}"
        return f"# seed {n.seed}: {how}\n# called with {arrays}\n{self.text}"


def write(network: Network) -> Written:
    """Raises MisfitError where a line does not fit the shapes before it."""
    lines = Lines(network)
    for head in network.heads:
        if not HEADS[head.kind].fits(lines.shapes[head.value]):
            raise MisfitError(f"{head.kind} of {lines.shapes[head.value]}")
    random = np.random.default_rng(network.seed)
    arrays: list[Array] = [
        random.integers(0, SYMBOLS, shape)
        if number in network.symbols
        else random.standard_normal(shape, np.float32)
        for number, shape in enumerate(network.inputs)
    ]
    targets = [
        HEADS[h.kind].array(lines.shapes[h.value], random)
        for h in network.heads
        if HEADS[h.kind].target
    ]
    return Written(network, _module(network, lines) + _loss(network), (*arrays, *targets))


_MODULE = string.Template("""\
class Network(nn.Module):
    def __init__(self):
        super().__init__()
$layers

    def forward(self, $inputs):
$lines
        return $heads,
""")

_LOSS = string.Template("""

def loss(model, $arguments):
    $heads, = model($inputs)
    return $terms, $heads
""")


def _module(network: Network, lines: Lines) -> str:
    made, text = [], []
    for place, step in enumerate(network.steps):
        line, number, layer = lines.lines[place], place + network.first(), lines.layers[place]
        if layer and step.shares is None:
            made.append(f"        self.{layer} = {line.layer}")
            if number in network.frozen:
                made.append(f"        freeze(self.{layer})")
        value = line.expression.format(*(f"v{i}" for i in step.inputs), layer=f"self.{layer}")
        text.append(f"        v{number} = {value}  # {list(lines.shapes[number])}")
    return _MODULE.substitute(
        layers="\n".join(made),
        inputs=_values(range(network.first())),
        lines="\n".join(text),
        heads=_values(h.value for h in network.heads),
    )


def _loss(network: Network) -> str:
    terms, targets = [], []
    for head in network.heads:
        kind, target = HEADS[head.kind], f"t{head.value}"
        targets += [target] if kind.target else []
        terms.append(kind.expression.format(f"v{head.value}", target=target))
    inputs = _values(range(network.first()))
    return _LOSS.substitute(
        arguments=", ".join([inputs, *targets]),
        inputs=inputs,
        terms=" + ".join(terms),
        heads=_values(h.value for h in network.heads),
    )


def _values(numbers: Any) -> str:
    return ", ".join(f"v{number}" for number in numbers)


def heads_of(network: Network) -> list[Head]:
    """A plain head for each value that nothing reads."""
    read = {i for step in network.steps for i in step.inputs}
    last = range(network.first(), network.first() + len(network.steps))
    return [Head("square", i) for i in last if i not in read]
