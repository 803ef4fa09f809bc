"""A table of a model: each module, its own parameters, how many numbers they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from graphc import html
from graphc.nn.parameter import Parameter

if TYPE_CHECKING:
    from graphc.nn.module import Module


@dataclass(frozen=True)
class SummaryRow:
    """One module."""

    path: str
    """Empty for the model itself."""
    layer: str
    """Its class."""
    state: str
    """Names and types of its own parameters, those that are not trainable in brackets."""
    elements: int
    """Of its own parameters, each counted where it is first met."""


@dataclass(frozen=True)
class Summary:
    """Rows in the order of the attributes. Prints as a table."""

    model: str
    rows: tuple[SummaryRow, ...]
    elements: int
    trainable: int
    nbytes: int

    @property
    def title(self) -> str:
        """The sums of all rows."""
        return (
            f"{self.model}: {self.elements:,} elements, {self.trainable:,} of them trainable, "
            f"{self.nbytes:,} bytes"
        )

    def __str__(self) -> str:
        shown = [(r.path, r.layer, r.state, f"{r.elements:,}") for r in self.rows]
        lines = [("path", "module", "parameters", "elements"), *shown]
        widths = [max(len(line[i]) for line in lines) for i in range(4)]
        text = [
            f"{path:{widths[0]}}  {layer:{widths[1]}}  {state:{widths[2]}}  {count:>{widths[3]}}"
            for path, layer, state, count in lines
        ]
        return "\n".join([self.title, *text])

    def _repr_html_(self) -> str:
        rows = [(r.path, r.layer, r.state, r.elements) for r in self.rows]
        return html.table(self.title, ("path", "module", "parameters", "elements"), rows)


def summary_of(model: Module) -> Summary:
    """The table of `model` and every module in it."""
    seen: set[int] = set()
    rows = []
    for path, module in model.named_modules():
        own = list(module.own_parameters())
        new = [p for _, p in own if id(p) not in seen]
        seen.update(id(p) for p in new)
        state = ", ".join(_shown(name, p) for name, p in own)
        rows.append(SummaryRow(path, type(module).__name__, state, sum(int(p.size) for p in new)))
    parameters = list(model.parameters())
    return Summary(
        type(model).__name__,
        tuple(rows),
        sum(int(p.size) for p in parameters),
        sum(int(p.size) for p in parameters if p.trainable),
        sum(p.type.nbytes for p in parameters),
    )


def _shown(name: str, parameter: Parameter) -> str:
    text = f"{name} {parameter.type}"
    return text if parameter.trainable else f"({text})"
