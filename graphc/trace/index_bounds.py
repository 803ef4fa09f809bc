"""Record the ranges of indices and labels of a traced function, for GRAPHC_CHECK=bounds.

runtime/checks/bounds.py checks the arrays of a call against them.
"""

from __future__ import annotations

from dataclasses import dataclass

from graphc.base.source_lines import user_line
from graphc.trace import Tensor, current_builder


@dataclass(frozen=True)
class Bound:
    """A tensor of indices from 0 to `extent` - 1, or one of the allowed values `spared`.

    Inside scans it holds the indices of all iterations.
    """

    name: str
    tensor: Tensor
    extent: int
    spared: tuple[int, ...]
    lines: tuple[str, ...]

    def message(self, value: int, place: tuple[int, ...]) -> str:
        """Return the error message for `value`, the first that is out of range."""
        allowed = [f"0 to {self.extent - 1}"] if self.extent else []
        allowed += map(str, self.spared)
        at = f" at {list(place)}" if place else ""
        line = "".join(f" ({line})" for line in self.lines)
        return f"{self.name}: expected {' or '.join(allowed) or 'no index'}, got {value}{at}{line}"


def expect_below(name: str, tensor: Tensor, extent: int, *spared: int | None) -> None:
    """Record that `tensor` holds indices below `extent`."""
    builder = current_builder()
    if builder.bounds is not None:
        known = tuple(n for n in spared if n is not None)
        builder.bounds.append(Bound(name, builder.own(tensor), extent, known, user_line()))
