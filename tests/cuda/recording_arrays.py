"""What PyCUDA asks of a driver that records where results stay on the device, as JSON.

test_device_arrays.py runs this in a process of its own, with the recording driver in place of
libcuda.
"""

from __future__ import annotations

import gc
import json
import weakref
from typing import Any

import numpy as np

import graphc
from graphc.base.dlpack import read_capsule, write_capsule
from graphc.base.errors import RunError
from graphc.runtime.cuda import find_device
from graphc.runtime.cuda.driver import PycudaDriver
from tests.cuda.recording import DRIVER, Record, compiled, taken

SHAPE = (5, 7)
X = np.arange(35, dtype=np.float32).reshape(SHAPE)


def main() -> None:
    PycudaDriver.products = PycudaDriver.convolutions = None  # type: ignore[assignment]
    PycudaDriver.compile = compiled  # type: ignore[method-assign]
    DRIVER.fake_machine(1, 1 << 30)
    found = {
        "calls": calls(),
        "chain": chain(),
        "host": host(),
        "read": read(),
        "again": again(),
        "interface": interface(),
        "libraries": libraries(),
        "short": short(),
        "depth": DRIVER.fake_depth(),
    }
    print(json.dumps(found))


def program() -> Any:
    """The identity: what a recorded kernel would compute lies in memory as it was."""
    made = graphc.compile(
        lambda x: x * 1.0, graphc.spec(SHAPE), device="cuda", streams=1, out="device"
    )
    made(X)
    return made


def calls() -> list[Record]:
    """Four calls, of which the results of two are dropped."""
    f = program()
    taken()
    records, kept = [], []
    for number in range(4):
        result = f(X)
        if number < 2:
            kept.append(result)
        del result
        records.append(taken())
    return records


def chain() -> Record:
    """A call with the result of another program."""
    f, g = program(), program()
    result = f(X)
    taken()
    g(result)
    return taken()


def host() -> dict[str, Any]:
    """A result on the host."""
    f = program()
    result = f(X)
    taken()
    array = np.asarray(result)
    return {"record": taken(), "shape": array.shape, "dtype": array.dtype.name}


def read() -> dict[str, Any]:
    """A result as DLPack gives it to a reader on stream 77."""
    f = program()
    result = f(X)
    taken()
    capsule = result.__dlpack__(stream=77)
    found = read_capsule(capsule, "x")
    return {
        "record": taken(),
        "device": result.__dlpack_device__(),
        "same": found.address == result.address,
        "shape": found.shape,
        "strides": found.strides,
        "dtype": found.dtype.name,
    }


def again() -> list[Record]:
    """The call that uses a block again which stream 77 has read; while the reader holds it, and
    later."""
    f = program()
    blocks = find_device("cuda").blocks
    with find_device("cuda").entered():
        blocks.trim()
    result = f(X)
    capsule = result.__dlpack__(stream=77)
    del result
    taken()
    f(X)
    held = taken()
    with find_device("cuda").entered():
        blocks.trim()
    del capsule
    taken()
    f(X)
    return [held, taken()]


def interface() -> dict[str, Any]:
    """A result as `__cuda_array_interface__` gives it, and the next use of its memory."""
    f = program()
    with find_device("cuda").entered():
        find_device("cuda").blocks.trim()
    result = f(X)
    shown = dict(result.__cuda_array_interface__)
    shown["data"] = list(shown["data"])
    shown["address"] = result.address
    del result
    taken()
    f(X)
    return {"shown": shown, "record": taken()}


class OfJax:
    """An array as JAX shows it: it cannot be written, and has no other protocol."""

    def __init__(self, array: Any, asked: list[Any]) -> None:
        self._array, self._asked = array, asked

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 0

    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        if stream is not None and not isinstance(stream, int):
            raise TypeError(f"stream: {stream!r}")
        self._asked.append(stream)
        a = self._array
        return write_capsule(a.ctypes.data, a.shape, a.dtype, (2, 0), a)


class OfCupy(OfJax):
    """An array as CuPy shows it, by both protocols."""

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        raise AssertionError("DLPack says for which stream")


class ReadOnly:
    """An array of Numba or CuPy that says by its interface that it is not to be written."""

    def __init__(self, array: Any) -> None:
        self.array = array
        self.__cuda_array_interface__ = {
            "shape": array.shape,
            "typestr": array.dtype.str,
            "data": (array.ctypes.data, True),
            "strides": None,
            "stream": 66,
            "version": 3,
        }


def libraries() -> dict[str, Any]:
    """Calls with arrays of other libraries, submitted one after another, and who keeps them."""
    f, found = program(), {}
    array = X.copy()
    array.setflags(write=False)
    for name, kind in (("jax", OfJax), ("cupy", OfCupy)):
        asked: list[Any] = []
        given = kind(array, asked)
        taken()
        f.submit(given)
        found[name] = {"record": taken(), "asked": asked}
    taken()
    f.submit(ReadOnly(array))
    found["interface"] = {"record": taken()}
    found["unchanged"] = bool((array == X).all())
    held = weakref.ref(last := ReadOnly(X.copy()))
    f.submit(last)
    del last
    gc.collect()
    kept = [held() is not None]
    for _ in range(2):
        f.submit(X)
    gc.collect()
    found["kept"] = [*kept, held() is not None]
    return found


def short() -> dict[str, Any]:
    """Calls until the device's memory is used up, one once no result is held, and a larger
    program."""
    f = graphc.compile(
        lambda x: x * 1.0, graphc.spec((1 << 22,)), device="cuda", streams=1, out="device"
    )
    x, kept, message = np.zeros(1 << 22, np.float32), [], ""
    try:
        for _ in range(1 << 10):
            kept.append(f(x))
    except RunError as problem:
        message = str(problem)
    count = len(kept)
    kept.clear()
    taken()
    f(x)
    again = taken()
    graphc.compile(graphc.exp, graphc.spec((1 << 26,)), device="cuda")
    return {"message": message, "count": count, "again": again, "larger": taken()}


if __name__ == "__main__":
    main()
