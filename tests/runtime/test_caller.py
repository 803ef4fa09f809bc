"""What surrounds a call on the CPU, native and in Python."""

import ctypes
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphc
from graphc.runtime.compilers import player_library
from graphc.runtime.compilers.player_library import _caller_flags
from graphc.runtime.cpu import caller
from graphc.runtime.cpu.caller import find_caller
from graphc.trace import arguments

F32, F64, I64 = np.dtype("float32"), np.dtype("float64"), np.dtype("int64")
KINDS = (((2, 3), F32), ((), I64))


def test_headers_that_may_not_be_read_are_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(player_library.os, "access", lambda *_: False)
    assert _caller_flags() == ()


with_headers = pytest.mark.skipif(not _caller_flags(), reason="no headers of Python and NumPy")


class Own(np.ndarray):  # type: ignore[type-arg]
    """An array of a kind of its own."""


GOOD = np.ones((2, 3), np.float32)
OTHERS = {
    "dtype": GOOD.astype(F64),
    "byte order": GOOD.astype(">f4"),
    "shape": np.ones((3, 2), np.float32),
    "rank": np.ones((2, 3, 1), np.float32),
    "transposed": np.ones((3, 2), np.float32).T,
    "strided": np.ones((2, 6), np.float32)[:, ::2],
    "a subclass": GOOD.view(Own),
    "a list": [[1.0] * 3] * 2,
    "None": None,
}


@with_headers
def test_the_native_functions_are_used_where_there_are_headers() -> None:
    found = find_caller()
    assert type(found.exact).__name__ == type(len).__name__
    assert len({type(f) for f in found}) == 1


@pytest.mark.parametrize("exact", [arguments.exact, find_caller().exact], ids=["python", "found"])
def test_arrays_of_the_very_kinds_are_taken_and_no_others(exact: arguments.Exact) -> None:
    number = np.array(3)
    assert exact((GOOD, number), KINDS)
    for name, other in OTHERS.items():
        assert not exact((other, number), KINDS), name
    assert not exact((GOOD,), KINDS)
    assert not exact((GOOD, number, number), KINDS)
    assert not exact((GOOD, 3), KINDS)
    assert exact((), ())


@pytest.mark.parametrize("bind", [caller.bind, find_caller().bind], ids=["python", "found"])
def test_outputs_are_fresh_and_their_addresses_are_told(bind: Any) -> None:
    fixed = np.zeros(4)
    fixed.flags.writeable = False
    inputs = [GOOD, fixed, np.zeros((0, 3))]
    kinds = (((4, 5), F32), ((), I64), ((0, 2), np.dtype("V2")))
    memory = (ctypes.c_uint64 * 7)(*[7] * 7)
    outputs = bind(inputs, kinds, ctypes.addressof(memory))
    assert [(a.shape, a.dtype) for a in outputs] == list(kinds)
    assert list(memory) == [a.ctypes.data for a in (*inputs, *outputs)] + [7]
    assert all(a.flags.c_contiguous and a.flags.owndata for a in outputs)
    again = bind(inputs, kinds, ctypes.addressof(memory))
    assert again[0].ctypes.data != outputs[0].ctypes.data


def test_calls_hold_no_references() -> None:
    program = graphc.compile(lambda x: x + 1, graphc.spec((2, 3)), device="cpu", threads=1)
    program(GOOD)
    before = [sys.getrefcount(v) for v in (F32, GOOD, *program._arguments.kinds)]
    for _ in range(1000):
        program(GOOD)
    after = [sys.getrefcount(v) for v in (F32, GOOD, *program._arguments.kinds)]
    assert all(late - early < 100 for early, late in zip(before, after, strict=True))


def test_without_the_headers_programs_run_as_well(tmp_path: Path) -> None:
    script = (
        "import graphc, numpy as np\n"
        "from graphc.runtime.compilers import player_library\n"
        "from graphc.runtime.cpu import caller\n"
        "player_library._caller_flags = tuple\n"
        "p = graphc.compile(lambda x: x + 1, graphc.spec((3,)), device='cpu')\n"
        "print(p(np.arange(3, dtype=np.float32)), caller.find_caller().bind is caller.bind)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "GRAPHC_CACHE_DIR": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "[1. 2. 3.] True\n", done.stderr
