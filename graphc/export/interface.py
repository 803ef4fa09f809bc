"""What the functions of an export take and give: named arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from graphc.export.lowering import Entry
from graphc.export.names import c_type, identifiers
from graphc.ir import Type, tree


@dataclass(frozen=True)
class Port:
    """An input or an output of a function."""

    name: str
    """Its path in the program's arguments or results, such as `batch.x`."""
    symbol: str
    """The field's name in C."""
    type: Type
    """Its type; elements are row-major."""

    @property
    def c_type(self) -> str:
        """The C type of an element."""
        return c_type(self.type)


@dataclass(frozen=True)
class Function:
    """A program as a C function."""

    symbol: str
    """Its name in C, with the prefix."""
    entry: Entry
    """The program."""
    inputs: tuple[Port, ...]
    """In the order of the plan's inputs."""
    outputs: tuple[Port, ...]
    """In the order of the plan's outputs; what `graphc.tap` shows comes last."""

    @property
    def sides(self) -> tuple[tuple[str, tuple[Port, ...]], ...]:
        """Inputs and outputs, by what C calls them."""
        return ("inputs", self.inputs), ("outputs", self.outputs)


def functions_of(prefix: str, entries: Sequence[Entry]) -> list[Function]:
    """Return the C functions of programs."""
    return [
        Function(f"{prefix}_{entry.name}", entry, _inputs(entry), _outputs(entry))
        for entry in entries
    ]


def _inputs(entry: Entry) -> tuple[Port, ...]:
    arguments = entry.program.recipe.traced.arguments
    leaves = [leaf for name, types in arguments for leaf in tree.leaves(types, name)]
    names = [name for name, leaf in leaves if isinstance(leaf, Type)]
    types = [binding.value.type for binding in entry.plan.inputs]
    assert len(names) == len(types), "every argument's array is an input of the plan"
    return _ports(names, types)


def _outputs(entry: Entry) -> tuple[Port, ...]:
    traced = entry.program.recipe.traced
    shown = [asked.name for asked in traced.builder.shown]
    names = [name or "result" for name, _ in tree.leaves(traced.outputs)]
    types = [binding.value.type for binding in entry.plan.outputs]
    assert len(names) + len(shown) == len(types), "every result is an output of the plan"
    return _ports([*names, *shown], types)


def _ports(names: Sequence[str], types: Sequence[Type]) -> tuple[Port, ...]:
    symbols = identifiers(f"value_{n}" if n[:1].isdigit() else n for n in names)
    return tuple(map(Port, names, symbols, types))
