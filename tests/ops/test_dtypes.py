"""Every op in every dtype on every device against its meaning; conversions from each dtype to each
against PyTorch's too."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import numpy as np
import pytest

import graphc
from graphc.base.dtypes import Array, convert, shown
from graphc.ir import DTYPES, FLOATS, NARROW
from graphc.ops.base import Contraction
from graphc.trace import Tensor, current_builder
from tests.ops.sample import Sample
from tests.ops.samples import CORE
from tests.ops.samples_dtypes import CASTS, NARROW_SAMPLES, OTHER_SAMPLES, in_dtype
from tests.tools import need_module

ALL_SAMPLES = NARROW_SAMPLES | OTHER_SAMPLES
EPSILON = {"f16": 2.0**-10, "bf16": 2.0**-7, "f32": 2.0**-23, "f64": 2.0**-52}
"""The distance of 1 from the next larger number of a dtype."""


def outputs_of(samples: Sequence[Sample], device: str) -> list[list[Array]]:
    """The outputs of each sample, all of them computed by one program."""

    def every(inputs: list[list[Tensor]]) -> list[tuple[Tensor, ...]]:
        emit = current_builder().emit
        return [emit(s.op, *x) for s, x in zip(samples, inputs, strict=True)]

    program = graphc.compile(every, [list(s.inputs) for s in samples], device=device)
    return program([[shown(x) for x in s.arrays()] for s in samples])


def assert_means(sample: Sample, got: Sequence[Array]) -> None:
    """Each output is what the op's meaning says, but for the order of float32 sums and the last
    digit of functions, which may tip the rounding to the dtype."""
    arrays = sample.arrays()
    with np.errstate(all="ignore"):
        wanted = sample.op.evaluate(*arrays)
    types = sample.op.infer(*sample.inputs)
    for type, y, want in zip(types, got, wanted, strict=True):
        assert y.shape == type.shape and y.dtype == shown(want).dtype
        want = shown(want).astype(np.float64) if type.dtype in FLOATS else want
        if type.dtype not in FLOATS:
            np.testing.assert_array_equal(y, want, err_msg=str(sample))
            continue
        size = max(1.0, float(np.abs(want[np.isfinite(want)]).max(initial=0.0)))
        length = max(a.size for a in arrays) if arrays else 1
        computed = EPSILON["f64" if type.dtype == "f64" else "f32"]
        np.testing.assert_allclose(
            y.astype(np.float64),
            want,
            rtol=2 * EPSILON[type.dtype],
            atol=8 * np.sqrt(length) * computed * size,
            err_msg=str(sample),
        )


ON_DEVICES = [
    *((dtype, "cpu") for dtype in ALL_SAMPLES),
    *((dtype, "sim") for dtype in NARROW),
    *(pytest.param(d, "sim", marks=pytest.mark.slow) for d in ALL_SAMPLES if d not in NARROW),
]


@pytest.mark.parametrize("dtype, device", ON_DEVICES)
def test_every_op_means_the_same_in_every_dtype_that_it_accepts(dtype: str, device: str) -> None:
    samples = ALL_SAMPLES[dtype]
    for sample, got in zip(samples, outputs_of(samples, device), strict=True):
        assert_means(sample, got)


@pytest.mark.parametrize("dtype", NARROW)
def test_contractions_read_two_bytes_however_often(dtype: str, monkeypatch) -> None:
    monkeypatch.setattr(sys.modules["graphc.passes.fuse.widen"], "FEW_READS", 10**9)
    chosen = (in_dtype(s, dtype) for s in CORE if isinstance(s.op, Contraction))
    samples = [s for s in chosen if s is not None]
    assert len(samples) > 12
    for sample, got in zip(samples, outputs_of(samples, "cpu"), strict=True):
        assert_means(sample, got)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", NARROW)
def test_the_checked_device_finds_nothing(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPHC_CHECK", "race")
    samples = ALL_SAMPLES[dtype]
    for sample, got in zip(samples, outputs_of(samples, "sim"), strict=True):
        assert_means(sample, got)


@pytest.mark.parametrize("device", ("cpu", "sim"))
def test_conversions_are_those_of_the_meaning(device: str) -> None:
    for sample, (got,) in zip(CASTS, outputs_of(CASTS, device), strict=True):
        (want,) = sample.op.evaluate(*sample.arrays())
        np.testing.assert_array_equal(got, shown(want), err_msg=str(sample))


def test_conversions_are_those_of_torch() -> None:
    torch = need_module("torch")
    long = {"u8": "uint8", "i8": "int8", "i32": "int32", "i64": "int64", "bf16": "bfloat16"}
    long |= {"bool": "bool", "f16": "float16", "f32": "float32", "f64": "float64"}
    numbers = [0.0, -0.0, 0.3, -0.7, 1.0, -1.0, 2.5, 127.0, -128.0, 200.0, 255.0, 1e-8, 3e-6, 6e4]
    numbers += [float(np.float32(x)) for x in np.random.default_rng(0).normal(size=200) * 1e3]
    for source in DTYPES:
        exact = np.array(numbers) if source in FLOATS else np.arange(-300, 300)
        x = torch.from_numpy(exact).to(getattr(torch, long[source]))
        ours = convert(exact, DTYPES[source])
        np.testing.assert_array_equal(shown(ours), x.float().numpy() if source in NARROW else x)
        for target in DTYPES:
            y = x.to(getattr(torch, long[target]))
            got = shown(convert(ours, DTYPES[target]))
            want = y.float().numpy() if target == "bf16" else y.numpy()
            np.testing.assert_array_equal(got, want, err_msg=f"{source} to {target}")
