"""The public packages show what is public, and the Array API's functions are there."""

from __future__ import annotations

import importlib
import types

import pytest

import graphc
from tests.tools import need_module, run_python
from tools.write_ops_page import ABSENT

PACKAGES = (
    "graphc",
    "graphc.data",
    "graphc.fft",
    "graphc.linalg",
    "graphc.nn",
    "graphc.optim",
    "graphc.optim.schedules",
    "graphc.training",
    "graphc.functions",
)
SUBMODULES = {
    "graphc": {"data", "fft", "linalg", "nn", "optim", "text", "training"},
    "graphc.optim": {"schedules"},
}
"""Modules that are public themselves."""
# fmt: off
ARRAY_API = (
    "arange asarray empty empty_like eye from_dlpack full full_like linspace meshgrid ones "
    "ones_like tril triu zeros zeros_like astype broadcast_arrays broadcast_shapes broadcast_to "
    "can_cast finfo iinfo isdtype result_type abs acos acosh add asin asinh atan atan2 atanh "
    "bitwise_and bitwise_left_shift bitwise_invert bitwise_or bitwise_right_shift bitwise_xor ceil "
    "clip conj copysign cos cosh divide equal exp expm1 floor floor_divide greater greater_equal "
    "hypot imag isfinite isinf isnan less less_equal log log1p log2 log10 logaddexp logical_and "
    "logical_not logical_or logical_xor maximum minimum multiply negative not_equal positive pow "
    "real remainder round sign signbit sin sinh square sqrt subtract tan tanh trunc take matmul "
    "matrix_transpose tensordot vecdot concat expand_dims flip moveaxis permute_dims repeat "
    "reshape roll squeeze stack tile unstack argmax argmin nonzero searchsorted where unique_all "
    "unique_counts unique_inverse unique_values argsort sort cumulative_sum max mean min prod std "
    "sum var all any"
).split()
# fmt: on
"""The functions of the Python Array API standard, version 2023.12."""


@pytest.mark.parametrize("package", [*PACKAGES, "graphc.onnx", "graphc.sklearn", "graphc.torch"])
def test_dir_shows_what_is_public(package: str) -> None:
    if package not in PACKAGES:
        need_module(package.rpartition(".")[2])
    module = importlib.import_module(package)
    names = set(dir(module)) - {"__version__"}
    assert names == set(module.__all__)
    for name in names:
        found = getattr(module, name)
        if isinstance(found, types.ModuleType):
            assert name in SUBMODULES.get(package, ()), name
        else:
            assert found.__module__.startswith("graphc."), name


def test_every_function_of_the_array_api_is_there_or_has_a_reason() -> None:
    here = set(graphc.__all__)
    assert [n for n in ARRAY_API if n not in here and n not in ABSENT] == []
    assert [n for n in ABSENT if n in here or n not in ARRAY_API] == []


def test_asarray_gives_a_tensor_of_the_dtype() -> None:
    def both(x: graphc.Tensor) -> tuple[graphc.Tensor, graphc.Tensor]:
        return graphc.asarray(x, dtype="int32"), graphc.asarray([1.0, 2.0])

    graph = graphc.trace(both, graphc.spec((2,)))
    assert [(v.type.dtype, v.type.shape) for v in graph.outputs] == [("i32", (2,)), ("f32", (2,))]


UNINSTALLED = """
import importlib.metadata as metadata
from importlib.metadata import EntryPoints
metadata.entry_points = lambda **_: EntryPoints(())
import torch, graphc.torch
assert "graphc" in torch._dynamo.list_backends()
twice = torch.compile(lambda x: 2 * x, backend="graphc")
print(twice(torch.ones(3)).tolist())
"""


@pytest.mark.parametrize("script", [UNINSTALLED, UNINSTALLED.replace("metadata.entry", "unused")])
def test_importing_the_package_registers_the_backend(script: str) -> None:
    need_module("torch")
    assert run_python("-c", script).strip() == "[2.0, 2.0, 2.0]"
