"""Run candidates for a node on the CPU, on scratch arrays in the calling thread."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np

from graphc.base.dtypes import Array
from graphc.ir import Node
from graphc.ir.state import aligned_empty
from graphc.kernels.program.calls import Call
from graphc.kernels.program.kernel import Kernel
from graphc.runtime.compilers.shared_objects import cpu_target
from graphc.runtime.compilers.translation_units import build_kernels
from graphc.runtime.tuning.stream_autotuner import filled
from graphc.runtime.tuning.timing import Play

_KERNEL = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_int)


class CpuTrial:
    """Runs candidates on one core. Its clock is that of the calling thread, which stops while
    others use the core."""

    def __init__(self) -> None:
        self.machine = cpu_target().arch

    def clock(self) -> float:
        """Seconds of CPU time of this thread."""
        return time.thread_time()

    def library(self, call: Call) -> str:
        """Always "": the CPU has no library."""
        return ""

    def workspaces(self, call: Call) -> list[int]:
        """Empty: the CPU has no library."""
        return []

    @contextmanager
    def plays(self, node: Node, found: Sequence[Kernel]) -> Iterator[list[Play]]:
        """Functions that run each kernel once, all on the same arrays."""
        numbered = {str(index): kernel for index, kernel in enumerate(found)}
        functions = build_kernels(numbered, dict.fromkeys(numbered, node.where))
        values = (*node.inputs, *node.outputs)
        arrays = [_scratch(v.type.storage_shape, v.type.numpy_dtype) for v in values]
        arrays.append(_scratch((max(k.workspace for k in found),), np.dtype(np.uint8)))
        arguments = {
            name: (ctypes.c_void_p * len(arrays))(
                *(a.ctypes.data + kernel.offset(n) for n, a in enumerate(arrays))
            )
            for name, kernel in numbered.items()
        }

        def play(name: str) -> None:
            function = _KERNEL(functions[name])
            for phase, chunks in enumerate(numbered[name].phases):
                for chunk in range(chunks):
                    function(arguments[name], phase, chunk)

        yield [partial(play, name) for name in numbered]


def _scratch(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    array = aligned_empty(shape, dtype)
    array[...] = filled(shape, dtype)
    return array
