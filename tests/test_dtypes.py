"""bf16 where arrays come in and go out, and what is said of arrays that do not fit."""

from __future__ import annotations

import re

import numpy as np
import pytest

import graphc
from graphc import functions as f
from graphc import nn
from graphc.base.dlpack import host_array
from graphc.base.dtypes import BFLOAT16, convert, shown
from graphc.base.errors import GraphError, RunError
from graphc.ir.state import StateBuffer
from tests.tools import need_module

X = np.linspace(-3, 3, 24, dtype=np.float32).reshape(4, 6)
ROUNDED = shown(convert(X, BFLOAT16))


def doubled(device="cpu"):
    return graphc.compile(lambda x: x * 2.0, graphc.spec((4, 6), "bfloat16"), device=device)


@pytest.mark.parametrize("device", ["cpu", "sim", "reference"])
def test_float32_arrays_are_rounded_where_bf16_is_expected(device):
    got = doubled(device)(X)
    assert got.dtype == np.float32
    np.testing.assert_array_equal(got, 2 * ROUNDED)


def test_bfloat16_tensors_of_torch_are_taken_as_they_lie():
    torch = need_module("torch")
    program, tensor = doubled(), torch.from_numpy(X).bfloat16()
    np.testing.assert_array_equal(program(tensor), 2 * ROUNDED)
    turned = torch.from_numpy(np.ascontiguousarray(X.T)).bfloat16().T
    np.testing.assert_array_equal(program(turned), 2 * ROUNDED)
    empty = host_array(torch.zeros((0, 3), dtype=torch.bfloat16))
    assert (empty.shape, empty.dtype) == ((0, 3), BFLOAT16)


def test_bfloat16_arrays_of_ml_dtypes_are_taken():
    library = need_module("ml_dtypes")
    np.testing.assert_array_equal(doubled()(X.astype(library.bfloat16)), 2 * ROUNDED)


def test_other_dtypes_are_refused():
    with pytest.raises(GraphError) as error:
        doubled()(X.astype(np.float64))
    assert str(error.value) == (
        "function: x is bf16[4,6], got float64[4,6]; x.astype('float32') converts it"
    )
    wide = graphc.compile(lambda x: x * 2.0, graphc.spec((4, 6)), device="reference")
    with pytest.raises(GraphError) as error:
        wide(convert(X, BFLOAT16))
    assert str(error.value) == (
        "function: x is f32[4,6], got bfloat16[4,6]; x.astype('float32') converts it"
    )


def test_a_module_is_converted_as_a_whole():
    model = nn.Sequential(nn.Linear(6, 3), nn.BatchNorm1d(3)).to("bf16")
    kinds = {name: p.dtype for name, p in model.named_parameters()}
    floats = {name: kind for name, kind in kinds.items() if not name.endswith("tracked")}
    assert set(floats.values()) == {"bf16"} and len(floats) == 6
    weight = model.state_dict()["0.weight"]
    assert weight.dtype == np.float32
    np.testing.assert_array_equal(shown(convert(weight, BFLOAT16)), weight)
    assert {p.dtype for p in model.to("float32").parameters() if p.trainable} == {"f32"}


def test_a_module_is_of_floats():
    for dtype, message in (
        ("int32", "Linear: to expected a float dtype, got 'int32'"),
        (
            "float23",
            "unknown dtype 'float23'; expected one of bfloat16, bool, float16, float32, float64, "
            "int32, int64, int8, uint8",
        ),
    ):
        with pytest.raises(GraphError, match=rf"^{re.escape(message)} \(test_dtypes.py:\d+\)$"):
            nn.Linear(2, 2).to(dtype)


def test_state_is_read_and_written_as_float32():
    buffer = StateBuffer(X, "bf16")
    assert buffer.array.nbytes == 2 * X.size
    np.testing.assert_array_equal(buffer.numpy(), ROUNDED)
    buffer.assign(-X)
    np.testing.assert_array_equal(buffer.numpy(), -ROUNDED)
    with pytest.raises(GraphError) as error:
        buffer.assign(np.zeros(3, np.float32), "w")
    assert str(error.value) == "w: expected bfloat16[4, 6], got float32[3]"


def test_a_nan_is_found_in_bf16(monkeypatch):
    monkeypatch.setenv("GRAPHC_CHECK", "nan")
    program = graphc.compile(f.log, graphc.spec((4, 6), "bf16"), device="cpu")
    with pytest.raises(RunError, match=r"^NaN in %log : bf16\[4,6\], written by log_kernel, .+$"):
        program(X)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_numbers_keep_their_digits_beside_floats_of_two_bytes(dtype):
    """As in PyTorch, in products and quotients; elsewhere a number is rounded first."""
    torch = need_module("torch")

    def function(x):
        return x * 0.1, 0.1 * x, x / 0.3, x + 0.1, x - 0.3, 0.3 - x

    tensor = torch.from_numpy(X).to(getattr(torch, dtype))
    program = graphc.compile(function, graphc.spec(X.shape, dtype), device="cpu")
    for got, want in zip(program(tensor), function(tensor), strict=True):
        np.testing.assert_array_equal(got, want.float().numpy())


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_functions_of_several_ops_round_once(dtype):
    torch = need_module("torch")
    names = ("softmax", "gelu", "silu", "log_softmax", "mish", "softplus")
    tensor = torch.from_numpy(X).to(getattr(torch, dtype))
    along = ("softmax", "log_softmax")

    def function(x):
        return [getattr(f, name)(x, *([1] if name in along else [])) for name in names]

    got = graphc.compile(function, graphc.spec(X.shape, dtype), device="cpu")(tensor)
    step = {"float16": 2.0**-10, "bfloat16": 2.0**-7}[dtype]
    for name, y in zip(names, got, strict=True):
        exact = getattr(torch.nn.functional, name)(tensor.double(), *([1] if name in along else []))
        error = np.abs(y.astype(np.float64) - exact.numpy())
        # Half a step of the result, and what float32 adds to it.
        assert (error <= 0.51 * step * np.abs(exact.numpy()) + 2.0**-24).all(), name


SUMS = {
    "linear": ((5, 3, 40), (24, 40), lambda f: f.linear),
    "conv1d": ((3, 8, 19), (16, 8, 3), lambda f: f.conv1d),
    "conv2d": ((3, 8, 9, 9), (16, 8, 3, 3), lambda f: f.conv2d),
    "conv3d": ((2, 4, 5, 6, 7), (8, 4, 3, 3, 3), lambda f: f.conv3d),
    "conv_transpose1d": ((3, 8, 9), (8, 16, 3), lambda f: f.conv_transpose1d),
    "conv_transpose2d": ((3, 8, 6, 5), (8, 16, 3, 3), lambda f: f.conv_transpose2d),
    "conv_transpose3d": ((2, 4, 3, 4, 5), (4, 8, 3, 3, 3), lambda f: f.conv_transpose3d),
}


@pytest.mark.parametrize("device", ["reference", "cpu", "sim"])
@pytest.mark.parametrize("name", SUMS)
def test_a_bias_is_added_before_the_sum_is_rounded(name: str, device: str) -> None:
    """Sums of whole numbers are exact in f32, and are rounded once. PyTorch does so too, but for
    transposed convolutions on CPUs without instructions for bf16."""
    torch = need_module("torch")
    x_shape, w_shape, function = SUMS[name]
    channels = w_shape[1] if "transpose" in name else w_shape[0]
    random = np.random.default_rng(0)
    arrays = [random.integers(-9, 10, shape).astype(np.float32) for shape in (x_shape, w_shape)] + [
        random.integers(-200, 201, channels).astype(np.float32)
    ]
    tensors = [torch.tensor(a) for a in arrays]
    exact = function(torch.nn.functional)(*tensors)
    want = exact.bfloat16().float()
    specs = [graphc.spec(a.shape, "bfloat16") for a in arrays]
    got = graphc.compile(function(graphc), *specs, device=device)(*arrays)
    np.testing.assert_array_equal(got, want)
    twice = function(torch.nn.functional)(*tensors[:2]).bfloat16()
    twice += tensors[2].bfloat16().reshape([-1, *[1] * (0 if name == "linear" else exact.ndim - 2)])
    assert (want != twice.float()).any()


@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("device", ["cpu", "sim"])
def test_integers_wrap_around_and_no_compiler_thinks_otherwise(dtype: str, device: str) -> None:
    most = np.iinfo(dtype).max
    x = np.array([3, most - 2, most, 46341, 5], dtype)
    compiled = graphc.compile(
        lambda x: (x * x % x, x + 1 > x), graphc.spec(x.shape, dtype), device=device
    )
    with np.errstate(all="ignore"):
        wanted = x * x % x, x + 1 > x
    assert not wanted[1].all() and wanted[0].any()
    for found, expected in zip(compiled(x), wanted, strict=True):
        np.testing.assert_array_equal(found, expected)
