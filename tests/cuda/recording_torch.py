"""What PyCUDA asks of a driver that records where PyTorch's tensors lie on the GPU, as JSON.

test_torch_tensors.py runs this in a process of its own, with the recording driver in place of
libcuda. PyTorch needs no CUDA: its tensors only say that they are on a GPU.
"""

from __future__ import annotations

import gc
import json
import weakref
from typing import Any

import numpy as np
import torch
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from graphc.base.errors import GraphError
from graphc.runtime.cuda.driver import PycudaDriver
from graphc.torch.call import Compiled
from graphc.torch.partition import partitioned
from tests.cuda.recording import DRIVER, compiled, taken

ASKED: list[Any] = []
"""The streams that tensors were given for."""
CURRENT = 55
"""The handle of PyTorch's current stream."""


class OnGpu(torch.Tensor):
    """A tensor that says that it is on a GPU; its memory is an array of NumPy."""

    @staticmethod
    def __new__(cls, array: Any, place: str = "cuda:0") -> Any:
        dtype = torch.from_numpy(array).dtype
        return torch.Tensor._make_wrapper_subclass(cls, array.shape, dtype=dtype, device=place)

    def __init__(self, array: Any, place: str = "cuda:0") -> None:
        self.array = array

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 0

    def __dlpack__(self, stream: int | None = None, **_: Any) -> Any:
        ASKED.append(stream)
        return self.array.__dlpack__()

    @classmethod
    def __torch_dispatch__(
        cls, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        assert function in (torch.ops.aten.detach.default, torch.ops.aten._to_copy.default)
        return args[0]


def from_dlpack(array: Any) -> torch.Tensor:
    """What PyTorch does with an array on a GPU, but for the tensor."""
    assert array.__dlpack_device__() == (2, 0)
    array.__dlpack__(stream=CURRENT, max_version=(1, 0))
    return OnGpu(np.zeros(array.shape, array.dtype))


def function(x: Any, w: Any) -> Any:
    return torch.relu(x @ w), x.sum()


def apart(x: Any, w: Any) -> Any:
    return x * 2, w * 3


def fused(of: Any, *places: str) -> Any:
    """The program of a function of tensors on these devices."""
    with FakeTensorMode(allow_non_fake_inputs=True):
        x = torch.zeros(4, 3, device=places[0])
        w = torch.zeros(3, 5, device=places[-1])
        graph = make_fx(of)(x, w)
    whole, offered = partitioned(graph)
    assert not offered.refused, offered.refused
    ((_, part),) = whole.named_children()
    return Compiled(part, "forward_0")


def main() -> None:
    PycudaDriver.products = PycudaDriver.convolutions = None  # type: ignore[assignment]
    PycudaDriver.compile = compiled  # type: ignore[method-assign]
    DRIVER.fake_machine(2, 1 << 30)
    torch.utils.dlpack.from_dlpack = from_dlpack
    program = fused(function, "cuda:0")
    arrays = np.ones((4, 3), np.float32), np.ones((3, 5), np.float32)
    found: dict[str, Any] = {}
    for name in ("first", "second"):
        taken()
        ASKED.clear()
        y, s = program(*map(OnGpu, arrays))
        found[name] = taken()
    (made,) = program.programs.values()
    found |= {
        "asked": list(ASKED),
        "results": [[str(t.device), list(t.shape), str(t.dtype)] for t in (y, s)],
        "device": made.target.device,
        "on the host": mixed(program, arrays),
        "two": refused(),
        "allocator": allocator(program, arrays),
    }
    print(json.dumps(found))


def mixed(program: Any, arrays: Any) -> list[str]:
    """A call with one tensor on the host."""
    taken()
    program(OnGpu(arrays[0]), torch.from_numpy(arrays[1]))
    return taken()


def allocator(program: Any, arrays: Any) -> dict[str, Any]:
    """Calls whose results are dropped, while PyTorch's allocator gives nothing; and whether the
    last arguments live until their call has ended."""
    plain = torch.empty

    def empty(*args: Any, **options: Any) -> Any:
        raise AssertionError("PyTorch's allocator is asked for memory")

    lives = []
    program(*map(OnGpu, arrays))
    taken()
    torch.empty = empty
    try:
        for _ in range(3):
            given = [array.copy() for array in arrays]
            lives.append(weakref.ref(given[0]))
            program(*map(OnGpu, given))
            del given
            gc.collect()
    finally:
        torch.empty = plain
    return {"record": taken(), "alive": [each() is not None for each in lives]}


def refused() -> str:
    try:
        fused(apart, "cuda:0", "cuda:1")
    except GraphError as problem:
        return str(problem)
    return "no error"


if __name__ == "__main__":
    main()
