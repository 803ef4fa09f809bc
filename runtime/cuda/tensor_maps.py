"""The arguments of launches, with tensor maps: how TMA copies panels of a matrix.

A map contains an address, so it is encoded whenever a launch is packed, again when the arena has
moved. Everything that a program reads is in the arena or in copies of state, at the addresses of
the packed launches; arrays of other libraries are copied there.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from typing import Any

from graphc.base.errors import RunError
from graphc.kernels.program.kernel import GridLaunch, TensorMap

MAP_BYTES = 128
"""Bytes of a CUtensorMap."""
MAP_ALIGNMENT = 64
PANEL = 64
"""Two-byte elements in a line of a panel, and lines: 128 bytes, as they are swizzled."""
TYPES = {"f16": 6, "bf16": 9}
"""CUtensorMapDataType."""
NO_INTERLEAVE, SWIZZLE_128, PROMOTE_128, ZEROS = 0, 3, 2, 0
"""CUtensorMapInterleave, CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill."""


def packed(pointers: Sequence[int], launch: GridLaunch, driver: Any) -> bytes:
    """The packed parameters of a launch: addresses, then its tensor maps. Raises RunError if the
    driver cannot encode one."""
    found = struct.pack(f"{len(pointers)}P", *pointers)
    for each in launch.maps:
        found = found.ljust(-(-len(found) // MAP_ALIGNMENT) * MAP_ALIGNMENT, b"\0")
        found += driver.tensor_map(pointers[each.argument] + each.offset, each)
    return found


def encode_tiled(library: Any, address: int, matrix: TensorMap) -> bytes:
    """The CUtensorMap of a matrix at an address, by the driver's library; its context is current.
    Raises RunError if it fails."""
    try:
        encode = library.cuTensorMapEncodeTiled
    except AttributeError:
        raise RunError(_why("the driver has no cuTensorMapEncodeTiled")) from None
    buffer = ctypes.create_string_buffer(MAP_BYTES + MAP_ALIGNMENT)
    start = -ctypes.addressof(buffer) % MAP_ALIGNMENT
    error = encode(
        ctypes.c_void_p(ctypes.addressof(buffer) + start),
        ctypes.c_int(TYPES[matrix.dtype]),
        ctypes.c_uint32(2),
        ctypes.c_void_p(address),
        (ctypes.c_uint64 * 2)(matrix.length, matrix.lines),
        (ctypes.c_uint64 * 1)(matrix.pitch),
        (ctypes.c_uint32 * 2)(PANEL, PANEL),
        (ctypes.c_uint32 * 2)(1, 1),
        *map(ctypes.c_int, (NO_INTERLEAVE, SWIZZLE_128, PROMOTE_128, ZEROS)),
    )
    if error:
        what = f"{matrix.lines} x {matrix.length} {matrix.dtype}, {matrix.pitch} bytes apart"
        raise RunError(_why(f"cuTensorMapEncodeTiled failed with {error} for {what}"))
    return buffer.raw[start : start + MAP_BYTES]


def _why(text: str) -> str:
    return f"{text}: TMA cannot be used here, leave GRAPHC_TMA unset"
