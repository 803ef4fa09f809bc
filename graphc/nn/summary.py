"""A table of a model: its modules, their parameters and the number of elements."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from graphc.base import html
from graphc.nn.parameter import Parameter

Owned = tuple[str, str, Sequence[tuple[str, Parameter]]]
"""Path, class and own parameters of a module, these by name."""


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
    """The rows in the order of the attributes; prints as a table."""

    model: str
    rows: tuple[SummaryRow, ...]
    elements: int
    trainable: int
    nbytes: int

    @property
    def title(self) -> str:
        """The sums over all rows."""
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


def summary_of(model: str, modules: Iterable[Owned]) -> Summary:
    """Return the table of `model` from (path, class, own parameters) of each module in it."""
    seen: set[int] = set()
    rows, parameters = [], []
    for path, layer, own in modules:
        new = list({id(p): p for _, p in own if id(p) not in seen}.values())
        seen.update(map(id, new))
        state = ", ".join(_shown(name, p) for name, p in own)
        rows.append(SummaryRow(path, layer, state, sum(int(p.size) for p in new)))
        parameters += new
    return Summary(
        model,
        tuple(rows),
        sum(int(p.size) for p in parameters),
        sum(int(p.size) for p in parameters if p.trainable),
        sum(p.type.nbytes for p in parameters),
    )


def _shown(name: str, parameter: Parameter) -> str:
    text = f"{name} {parameter.type}"
    return text if parameter.trainable else f"({text})"
