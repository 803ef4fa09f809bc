"""The state of a running result as a struct of C++: what elements so far have come to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from graphc.ops.combine import Combine

STATE = "State"
"""The name of the struct in a kernel's text."""


@dataclass(frozen=True)
class StateTypes:
    """How a device holds a state: the types of a value and of a place along the axis, the mark of
    functions, and `splat`, what a register of a number is."""

    value: str
    place: str
    inline: str
    splat: Callable[[float | int], str]
    operand: str = "{}"
    """How an expression reads a value."""


def state_struct(combine: Combine, types: StateTypes, dtype: str) -> list[str]:
    """The struct: `of` is the state of one element, `join(a, b)` that of a's elements and then b's,
    `each(a, b, f)` is f of each register of both, and a new state is neutral. One that picks has
    the place of what it picked."""
    fields = [f"{types.value} value = {types.splat(combine.neutral_of(dtype))};"]
    fields += [f"{types.place} place = {types.place}{{}};"] if combine.picks else []
    place, places = (", place", ", f(a.place, b.place)") if combine.picks else ("", "")
    return [
        f"struct {STATE} {{",
        *(f"  {line}" for line in fields),
        f"  {types.inline} static {STATE} of({types.value} value, {types.place} place) {{",
        f"    return {{value{place}}};",
        "  }",
        f"  {types.inline} static {STATE} join(const {STATE}& a, const {STATE}& b) {{",
        *(f"    {line}" for line in _join(combine, types)),
        "  }",
        "  template <class F>",
        f"  {types.inline} static {STATE} each(const {STATE}& a, const {STATE}& b, const F& f) {{",
        f"    return {{f(a.value, b.value){places}}};",
        "  }",
        "};",
    ]


def _join(combine: Combine, types: StateTypes) -> list[str]:
    a, b = types.operand.format("a.value"), types.operand.format("b.value")
    known = {"a": a, "b": b, "zero": types.splat(0)}
    if not combine.picks:
        return [f"return {{{types.value}({combine.expression.format(**known)})}};"]
    picked = f"as_mask(({combine.picks.format(**known)}) | ({b} != {b}))"
    return [
        f"const mask later = {picked};",
        "return {select(later, b.value, a.value), select(later, b.place, a.place)};",
    ]
