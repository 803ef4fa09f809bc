"""Helpers of test_translation_units.py and of tests beside it."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping

from graphc.kernels.program.kernel import Kernel
from graphc.runtime.compilers.translation_units import build_kernels
from tests.runtime.handmade import kernel


def writes(name: str, number: int) -> Kernel:
    return kernel(name, f"*(int*)arguments[0] = {number};")


ANSWER = writes("answer", 42)


def result_of(address: int) -> int:
    """What a kernel writes."""
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_int)
    result = ctypes.c_int(0)
    arguments = (ctypes.c_void_p * 1)(ctypes.addressof(result))
    function(address)(arguments, 0, 0)
    return result.value


def results(kernels: Mapping[str, Kernel]) -> dict[str, int]:
    return {name: result_of(address) for name, address in build_kernels(kernels).items()}


def answer_of(kernels: Mapping[str, Kernel]) -> int:
    return results(kernels)["answer"]


def many(count: int) -> dict[str, Kernel]:
    return {f"k{i}": writes(f"k{i}", i) for i in range(count)}
