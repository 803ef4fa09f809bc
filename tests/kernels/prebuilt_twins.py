"""Kernels played by the prebuilt library, beside the generated ones."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from graphc.base.target import Target
from graphc.kernels.lower import prebuilt
from graphc.ops.base import Array
from graphc.runtime.compilers.prebuilt_library import build_library
from tests.kernels.harness import Built

SPECIAL = (np.nan, np.inf, -np.inf, -0.0, 0.0, 1e-42, 3e38)


def twin(built: Built, target: Target) -> Built | None:
    """The same kernel played by the prebuilt library; None if nothing there computes it."""
    found = prebuilt(built.node, built.kernel, target)
    if found is None:
        return None
    address = build_library().address(found.symbol)
    assert address is not None, f"the library has no {found.symbol}"
    prototype = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_int)
    return replace(built, function=prototype(address), description=found.data)


def assert_same_bytes(built: Built, other: Built, inputs: Sequence[Array]) -> None:
    """Both kernels give the same bytes, with outputs in memory of their own and in place."""
    for inplace in (False, True):
        expected = built.run(inputs, inplace=inplace)
        got = other.run(inputs, inplace=inplace)
        for value, a, b in zip(built.node.outputs, expected, got, strict=True):
            assert _bytes(a) == _bytes(b), f"{built.kernel.name}: {value}"


def _bytes(array: Array) -> bytes:
    """The bytes, with one NaN for all: which of two a sum gives is up to the compiler."""
    if array.dtype.kind != "f":
        return array.tobytes()
    return np.where(np.isnan(array), np.array(np.nan, array.dtype), array).tobytes()


def with_specials(arrays: Sequence[Array]) -> list[Array]:
    """The arrays with NaN, infinities, zeros of both signs and extreme numbers among floats."""
    found = []
    for array in arrays:
        changed = array.copy()
        if array.dtype.kind == "f" and array.size:
            places = np.random.default_rng(array.size).integers(0, array.size, 1 + array.size // 4)
            with np.errstate(over="ignore"):
                changed.flat[places] = np.resize(SPECIAL, len(places)).astype(array.dtype)
        found.append(changed)
    return found
