"""What is said where there is no GPU, no PyCUDA, no driver."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

import graphc
from graphc.runtime.cuda import device
from graphc.runtime.cuda.driver import arch_of

REST = (
    "The kernels are generated and planned (program.kernels, program.plan), not run; the state is "
    "unchanged. device='sim' plays them without a GPU"
)


class DriverError(Exception):
    """Stands for pycuda.driver.Error."""


def pycuda(count: int, capability: tuple[int, int] = (9, 0), fails: bool = False) -> Any:
    """A module such as pycuda.driver on a machine with so many GPUs."""

    def init() -> None:
        if fails:
            raise DriverError("cuInit failed: no CUDA-capable device is detected")

    class Gpu:
        def __init__(self, number: int) -> None:
            self.name = lambda: "an old GPU"
            self.compute_capability = lambda: capability

        count = staticmethod(lambda: number_of_gpus)

    number_of_gpus = count
    return SimpleNamespace(init=init, Error=DriverError, Device=Gpu)


@pytest.fixture(autouse=True)
def not_found_before(monkeypatch: pytest.MonkeyPatch) -> None:
    device._gpu.cache_clear()
    device.gpu_found.cache_clear()
    yield
    device._gpu.cache_clear()
    device.gpu_found.cache_clear()


def told(monkeypatch: pytest.MonkeyPatch, driver: Any, name: str = "cuda") -> str:
    """What a call on the device says where pycuda.driver is `driver`."""
    monkeypatch.setitem(sys.modules, "pycuda", ModuleType("pycuda"))
    monkeypatch.setitem(sys.modules, "pycuda.driver", driver)
    for module in ("cuda.bindings", "cuda.bindings.driver", "graphc.runtime.cuda.bindings_driver"):
        monkeypatch.setitem(sys.modules, module, None)
    program = graphc.compile(lambda x: x + 1.0, graphc.spec((2,)), device=name)
    with pytest.raises(graphc.RunError) as error:
        program(np.zeros(2, np.float32))
    with pytest.raises(graphc.RunError) as profiled:
        program.profile(np.zeros(2, np.float32))
    assert str(profiled.value) == str(error.value)
    return str(error.value)


def test_without_pycuda_the_extra_is_named(monkeypatch):
    assert told(monkeypatch, None) == (
        "device 'cuda': PyCUDA is not installed (import of pycuda.driver halted; None in "
        f"sys.modules): pip install 'graphc[cuda]', or from wheels alone 'graphc[cuda-bindings]'. "
        f"{REST}"
    )


def test_without_a_gpu_the_driver_is_quoted(monkeypatch):
    assert told(monkeypatch, pycuda(0, fails=True)) == (
        "device 'cuda': the CUDA driver does not start: cuInit failed: no CUDA-capable device is "
        f"detected. {REST}"
    )


@pytest.mark.parametrize(
    ("count", "name", "have"),
    [(0, "cuda", "no GPU"), (1, "cuda:1", "1 GPU"), (2, "cuda:7", "2 GPUs")],
)
def test_a_number_beyond_the_last_gpu_is_named(monkeypatch, count: int, name: str, have: str):
    assert told(monkeypatch, pycuda(count), name) == (
        f"device {name!r}: this machine has {have}. {REST}"
    )


def test_a_gpu_that_is_too_old_is_named(monkeypatch):
    assert told(monkeypatch, pycuda(1, (7, 0))) == (
        "device 'cuda': an old GPU has compute capability 7.0; the kernels need 7.5 or newer. "
        f"{REST}"
    )


def test_the_cpu_is_the_default_where_no_gpu_is_found(monkeypatch):
    monkeypatch.delenv("GRAPHC_DEVICE", raising=False)
    monkeypatch.setattr("graphc.program.loading.find_spec", lambda name: object())
    monkeypatch.setitem(sys.modules, "pycuda.driver", pycuda(0))
    program = graphc.compile(lambda x: x + 1.0, graphc.spec((2,)))
    assert program.target.device == "cpu"


def test_a_gpu_is_the_default_where_one_is_found(monkeypatch):
    monkeypatch.delenv("GRAPHC_DEVICE", raising=False)
    monkeypatch.setattr("graphc.program.loading.find_spec", lambda name: object())
    monkeypatch.setattr("graphc.runtime.cuda.gpu_found", lambda: True)
    monkeypatch.setitem(sys.modules, "pycuda.driver", None)
    program = graphc.compile(lambda x: x + 1.0, graphc.spec((2,)))
    assert program.target.device == "cuda"


def test_a_gpu_without_a_compiler_is_not_the_default(monkeypatch):
    def missing() -> None:
        raise graphc.CompileError("no CUDA compiler")

    monkeypatch.setattr(device, "find_device", lambda name: None)
    monkeypatch.setattr(device, "find_compiler", lambda: None)
    assert device.gpu_found()
    device.gpu_found.cache_clear()
    monkeypatch.setattr(device, "find_compiler", missing)
    assert not device.gpu_found()


@pytest.mark.parametrize(
    ("capability", "arch"),
    [((8, 0), "sm_80"), ((8, 9), "sm_89"), ((9, 0), "sm_90a"), ((12, 0), "sm_120a")],
)
def test_kernels_are_compiled_for_all_that_the_chip_has(capability, arch: str):
    assert arch_of(*capability) == arch
