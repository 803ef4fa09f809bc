"""The kernels of an export as C++ files, and the headers that they include."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from graphc.export.lowering import Entry
from graphc.export.targets import Machine
from graphc.kernels.program.kernel import Kernel
from graphc.runtime.compilers.shared_objects import KERNEL_HEADERS

UNIT_KERNELS = 8
"""Kernels in one file."""
_INCLUDE = re.compile(r'^#include "([^"]+)"\n', re.MULTILINE)
_NUMBER = re.compile(r"\b(\d+)L\b")


@dataclass(frozen=True)
class Kernels:
    """The kernels of all programs, those of equal text once."""

    symbols: Mapping[tuple[str, str], str]
    """The name of the C function, by the names of the entry and of the kernel."""
    kernels: Mapping[str, Kernel]
    """The kernels, by the names of their functions."""
    wide: bool
    """Whether numbers of `long` must become `long long` to have 64 bits."""

    def of(self, entry: Entry) -> dict[str, str]:
        """The names of the functions of one program's kernels."""
        return {name: self.symbols[entry.name, name] for name in entry.plan.kernels}

    def units(self) -> list[str]:
        """The texts of the files."""
        pairs = list(self.kernels.items())
        groups = [pairs[i : i + UNIT_KERNELS] for i in range(0, len(pairs), UNIT_KERNELS)]
        return [_unit(group, self.wide) for group in groups]

    def headers(self) -> dict[str, str]:
        """The texts of all headers that they include, by their paths."""
        found: dict[str, str] = {}
        todo = [name for k in self.kernels.values() for name in _INCLUDE.findall(k.source)]
        while todo:
            name = todo.pop()
            if name not in found:
                found[name] = (Path(KERNEL_HEADERS) / name).read_text()
                todo += _INCLUDE.findall(found[name])
        return dict(sorted(found.items()))


def kernels_of(prefix: str, entries: Sequence[Entry], machine: Machine) -> Kernels:
    """Return the kernels of programs for a machine."""
    known: dict[str, str] = {}
    symbols: dict[tuple[str, str], str] = {}
    kernels: dict[str, Kernel] = {}
    for entry in entries:
        for name, kernel in entry.plan.kernels.items():
            symbol = known.get(kernel.canonical)
            if symbol is None:
                symbol = f"{prefix}_{entry.name}_{name}"
                known[kernel.canonical], kernels[symbol] = symbol, kernel
            symbols[entry.name, name] = symbol
    return Kernels(symbols, kernels, machine.pointer_bytes == 4)


def declarations(symbols: Iterable[str]) -> str:
    """The declarations of kernels."""
    return "".join(
        f"HIDDEN void {symbol}(void* const* arguments, int phase, int chunk);\n"
        for symbol in symbols
    )


def _unit(group: Sequence[tuple[str, Kernel]], wide: bool) -> str:
    includes = dict.fromkeys(name for _, k in group for name in _INCLUDE.findall(k.source))
    lines = [f'#include "{name}"\n' for name in includes]
    return "".join([*lines, "\n", *(_text(symbol, kernel, wide) for symbol, kernel in group)])


def _text(symbol: str, kernel: Kernel, wide: bool) -> str:
    """A kernel without its includes, in a namespace of its own and by the name of its function."""
    text = _INCLUDE.sub("", kernel.source)
    text = re.sub(
        rf'extern "C" void {kernel.name}\(',
        f'extern "C" __attribute__((visibility("hidden"))) void {symbol}(',
        text,
    )
    if wide:  # the product of a chunk's number and an extent may exceed the bits of an address
        text = _NUMBER.sub(r"\1LL", text)
    return f"namespace {symbol}_space {{\n{text}}}\n\n"
