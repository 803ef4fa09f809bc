"""Helpers of test_cublas.py and of tests beside it."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import numpy as np

import graphc
from graphc.base.dtypes import Array, convert, widened
from graphc.ir import Node
from graphc.ir.state import aligned_empty
from tests.tools import ROOT, need_command

FAKE = ROOT / "tests" / "cuda" / "fake_cublas.c"


def spec(*shape: int, dtype: str = "float32") -> Any:
    return graphc.spec(shape, dtype)


def build_fake(folder: Path) -> Path:
    made = folder / "libcublasLt.so.13"
    command = [need_command("gcc"), "-shared", "-fPIC", "-O1", str(FAKE), "-ldl", "-o", str(made)]
    subprocess.run(command, check=True)
    return made


def aligned(array: Array) -> Array:
    found = aligned_empty(array.shape, array.dtype)
    found[...] = array
    return found


def given(node: Node) -> list[Array]:
    """An array per input, of normal numbers."""
    random = np.random.default_rng(0)
    types = [v.type for v in node.inputs]
    return [
        convert(random.standard_normal(t.shape).astype(np.float32), t.numpy_dtype) for t in types
    ]


def close(got: Array, want: Array) -> None:
    bits = 7 if got.itemsize == 2 else 21
    np.testing.assert_allclose(widened(got), widened(want), rtol=2**-bits, atol=2**-18)
