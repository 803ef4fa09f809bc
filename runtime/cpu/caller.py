"""The native caller: it checks arguments, makes outputs, passes addresses and starts the player. It
is part of the player's library (`native/caller.h`) where there are the headers of Python
and NumPy to build it with; elsewhere a call takes some microseconds longer."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Sequence
from importlib.machinery import ExtensionFileLoader, ModuleSpec
from importlib.util import module_from_spec
from typing import Any, NamedTuple

import numpy as np

from graphc.base.dtypes import Array
from graphc.runtime.compilers.shared_objects import player_library
from graphc.trace.arguments import exact

Kind = tuple[tuple[int, ...], Any]
"""The shape and the NumPy dtype of an array."""

_NAME = "graphc_caller"

addressof, from_buffer = ctypes.addressof, ctypes.c_char.from_buffer
"""Found once: a call asks for each of its arrays."""


class Caller(NamedTuple):
    """`exact(values, kinds)`: whether each of a tuple of values is an array of that very kind.
    `bind(inputs, kinds, bases)`: fresh outputs; the addresses of the inputs and outputs are written
    to the address `bases`. `play(program, bases)`: all tasks of the player's program."""

    exact: Callable[[Any, Any], bool]
    bind: Callable[[Sequence[Array], tuple[Kind, ...], int], list[Array]]
    play: Callable[[int, int], None]


@functools.cache
def find_caller() -> Caller:
    """The native one if there is one. Raises CompileError where the player cannot be built."""
    library = player_library()
    if not hasattr(library, f"PyInit_{_NAME}"):
        return Caller(exact, bind, library.graphc_play)
    loader = ExtensionFileLoader(_NAME, library._name)
    module = module_from_spec(ModuleSpec(_NAME, loader, origin=library._name))
    return Caller(module.exact, module.bind, module.play)


def bind(inputs: Sequence[Array], kinds: Sequence[Kind], bases: int) -> list[Array]:
    """The native function of this name, in Python."""
    outputs = [np.empty(shape, dtype) for shape, dtype in kinds]
    places = (ctypes.c_uint64 * (len(inputs) + len(outputs))).from_address(bases)
    for n, array in enumerate((*inputs, *outputs)):
        places[n] = _address(array)
    return outputs


def _address(array: Array) -> int:
    """`array.ctypes.data`, which takes 2.0 microseconds, in 0.2 where `array` is writable."""
    memory: Any = array
    try:
        return addressof(from_buffer(memory))
    except (TypeError, ValueError):
        return array.ctypes.data
