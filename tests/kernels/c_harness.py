"""Builds plain C functions of many nodes in one file and runs them on arrays with bytes around them
that must stay as they are."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from graphc.base.dtypes import is_bfloat16
from graphc.ir import Node
from graphc.kernels.c.lower import lower_file
from graphc.ops.base import Array
from graphc.runtime.compilers.shared_objects import KERNEL_HEADERS
from tests.kernels.harness import Buffer
from tests.tools import need_command

FLAGS = ("-std=c11", "-O2", "-ffp-contract=off")
WARNINGS = ("-Wall", "-Wextra", "-pedantic", "-Werror", "-Wno-unused-parameter")


@dataclass(frozen=True)
class BuiltC:
    """A node and its function."""

    node: Node
    function: Callable[..., None]

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        """The outputs, of which nothing is there before."""
        types = [v.type for v in self.node.outputs]
        given = [Buffer(np.ascontiguousarray(a)) for a in inputs]
        made = [Buffer(np.full(t.nbytes, 0xEE, np.uint8).view(t.numpy_dtype)) for t in types]
        self.function(*(ctypes.c_void_p(b.address) for b in (*given, *made)))
        for buffer, array in zip(given, inputs, strict=True):
            assert buffer.bytes.tobytes() == array.tobytes(), "an input has changed"
        for buffer in (*given, *made):
            buffer.check("the function")
        return [b.contents().reshape(t.shape) for b, t in zip(made, types, strict=True)]


def build_c(nodes: Sequence[Node], folder: Path, *flags: str) -> list[BuiltC]:
    """The functions of nodes, built as one file by the C compiler."""
    named: list[Any] = [
        replace(n, op=replace(n.op, kernel=f"k{i}"))  # type: ignore[call-arg]
        for i, n in enumerate(nodes)
    ]
    source, library = folder / "kernels.c", folder / "kernels.so"
    source.write_text(lower_file(named))
    command = [need_command("gcc", "clang", "cc"), *FLAGS, *WARNINGS, *flags, f"-I{KERNEL_HEADERS}"]
    command += ["-fPIC", "-shared", str(source), "-o", str(library), "-lm"]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, f"{source}\n{result.stderr[:4000]}"
    functions = ctypes.CDLL(str(library))
    return [BuiltC(n, getattr(functions, f"k{i}_kernel")) for i, n in enumerate(nodes)]


def bits(array: Array) -> bytes:
    """The bits of the elements, of NaN one pattern."""
    if is_bfloat16(array.dtype):
        words = array.view(np.uint16)
        return np.where(words & 0x7FFF > 0x7F80, 0x7FC0, words).astype(np.uint16).tobytes()
    if array.dtype.kind == "f":
        return np.where(np.isnan(array), np.nan, array).astype(array.dtype).tobytes()
    return array.tobytes()


def assert_same_bits(got: Sequence[Array], want: Sequence[Array], what: object = "") -> None:
    """All arrays have the same bits, of NaN one pattern; else says where the first ones differ."""
    for number, (a, b) in enumerate(zip(got, want, strict=True)):
        assert (a.shape, a.dtype) == (b.shape, b.dtype), what
        if bits(a) != bits(b):
            size = a.dtype.itemsize
            pairs = (np.frombuffer(bits(x), np.uint8).reshape(-1, size) for x in (a, b))
            places = np.nonzero((next(pairs) != next(pairs)).any(axis=1))[0]
            found, wanted = a.ravel()[places[:5]], b.ravel()[places[:5]]
            raise AssertionError(f"{what} output {number} at {places[:5]}: {found}, not {wanted}")
