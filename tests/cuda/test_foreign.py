"""Arrays of other libraries that lie on the device already."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import graphc
from graphc.base.errors import GraphError
from graphc.runtime.cuda import find_device
from graphc.runtime.cuda.foreign import CUDA, foreign_array, from_capsule
from tests.tools import need_command, need_module

X = np.random.default_rng(0).standard_normal((5, 7)).astype(np.float32)


class Interface:
    """An array on the simulated device as `__cuda_array_interface__` shows it."""

    def __init__(self, array: Any) -> None:
        device = find_device("sim")
        with device.entered():
            self._memory = device.driver.mem_alloc(array.nbytes)
            device.driver.memcpy_htod(self._memory, array)
        self.__cuda_array_interface__ = {
            "shape": array.shape,
            "typestr": array.dtype.str,
            "data": (int(self._memory), True),
            "strides": None,
            "version": 3,
        }


class Dlpack:
    """An array of NumPy that says that it lies on a GPU; `asked` is the stream it was told."""

    def __init__(self, array: Any, device: tuple[int, int] = (CUDA, 0)) -> None:
        self.array, self.device = array, device
        self.asked = 0

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device

    def __dlpack__(self, stream: int | None = None) -> Any:
        self.asked = stream or 0
        return self.array.__dlpack__()


def test_an_array_on_the_device_is_used_where_it_lies():
    need_command("g++", "clang++")
    program = graphc.compile(lambda x: graphc.exp(x), graphc.spec((5, 7)), device="sim")
    log = find_device("sim").driver.log
    given = Interface(X)
    before = len(log)
    for _ in range(3):
        np.testing.assert_allclose(program(given), np.exp(X), rtol=1e-6)
    assert "copy to the device" not in log[before:]
    assert log[before:].count("copy on the device") == 3


@pytest.mark.parametrize(
    "array",
    [X, np.arange(6, dtype=np.int64).reshape(2, 3), np.zeros((), np.float64), np.ones(4, bool)],
    ids=["f32", "i64", "scalar", "bool"],
)
def test_dlpack_gives_address_shape_and_dtype_for_a_stream(array: Any):
    given = Dlpack(array)
    found = foreign_array(given, "x", 0, stream=5)
    assert found is not None
    assert found.address == array.ctypes.data
    assert (found.shape, found.dtype, found.nbytes) == (array.shape, array.dtype, array.nbytes)
    assert given.asked == 5
    assert found.stream is None


def test_arrays_on_the_host_are_not_foreign():
    assert foreign_array(X, "x", 0, 1) is None
    assert foreign_array(Dlpack(X, (1, 0)), "x", 0, 1) is None
    assert foreign_array([1.0, 2.0], "x", 0, 1) is None


def test_an_array_on_another_gpu_is_an_error():
    with pytest.raises(GraphError) as error:
        foreign_array(Dlpack(X, (CUDA, 3)), "x", 0, 1)
    assert str(error.value) == ("x: expected an array on cuda:0 or on the host, got one on cuda:3")


def test_an_array_with_gaps_is_an_error():
    with pytest.raises(GraphError) as error:
        foreign_array(Dlpack(X.T), "x", 0, 1)
    assert str(error.value) == (
        "x: expected a contiguous array on the GPU, got shape [7, 5] with strides of [4, 28] bytes"
    )


def test_strides_of_extents_of_one_do_not_matter():
    array = np.ones((4, 1, 6), np.float32)[:, ::-1]
    assert from_capsule(array.__dlpack__(), "x").shape == (4, 1, 6)


def test_a_dtype_that_numpy_lacks_is_an_error():
    torch = need_module("torch")
    with pytest.raises(GraphError) as error:
        from_capsule(torch.zeros(3, dtype=torch.complex64).__dlpack__(), "x")
    assert str(error.value) == "x: NumPy has no dtype for DLPack's type 5 of 64 bits"
