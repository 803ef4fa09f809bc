"""The native caller: it checks arguments, allocates outputs, passes addresses and starts the
player.

It is part of the player's library (`native/caller.h`) if Python's and NumPy's headers are
installed; without it a call takes some microseconds longer.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Sequence
from importlib.machinery import ExtensionFileLoader, ModuleSpec
from importlib.util import module_from_spec
from typing import Any, NamedTuple

import numpy as np

from graphc.base.dtypes import Array
from graphc.runtime.compilers.player_library import player_library
from graphc.trace.arguments import exact

Kind = tuple[tuple[int, ...], Any]
"""The shape and NumPy dtype of an array."""

_NAME = "graphc_caller"

addressof, from_buffer = ctypes.addressof, ctypes.c_char.from_buffer
"""Looked up once, as every call uses them for each of its arrays."""


class Caller(NamedTuple):
    """The functions of a call."""

    exact: Callable[[Any, Any], bool]
    """`exact(values, kinds)`: whether each of a tuple of values is an array of exactly that
    kind."""
    bind: Callable[[Sequence[Array], tuple[Kind, ...], int], list[Array]]
    """`bind(inputs, kinds, bases)`: allocates the outputs and writes the addresses of inputs and
    outputs to the address `bases`."""
    play: Callable[[int, int], None]
    """`play(program, bases)`: runs all tasks of the player's program."""


@functools.cache
def find_caller() -> Caller:
    """The native caller, or the Python one if it was not built. Raises CompileError if the player
    cannot be built."""
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
