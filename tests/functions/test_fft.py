"""Fourier transforms against NumPy's and PyTorch's."""

from __future__ import annotations

import random
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import graphc
from graphc.fft.factors import LARGEST, LARGEST_PRIME, divisor
from tests.functions.failing import Failure
from tests.support.derivatives_against_torch import check, check_samples, close, drawn
from tests.tools import first_quick, need_module

DEVICES = ("reference", "cpu", "sim")
SIZES = (1, 2, 3, 7, 16, 33, 64, 65, 100, 128, 210, 401, 512, 1000)


@pytest.fixture(scope="module")
def torch() -> ModuleType:
    return need_module("torch")


def test_sizes_are_divided_into_about_equal_ones() -> None:
    assert [divisor(n) for n in (1, 64, 65, 100, 128, 4096, 2 * 67)] == [1, 1, 5, 10, 8, 64, 2]
    assert divisor(401) == divisor(67 * 71) == 1 and LARGEST < 67 < LARGEST_PRIME < 401


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("n", SIZES)
def test_transforms_of_all_kinds_of_sizes(n: int, dtype: str) -> None:
    a, b = drawn(n, (3, n), dtype), drawn(n + 1, (3, n), dtype)

    def every(a: Any, b: Any) -> Any:
        half = graphc.fft.rfft(a)
        whole = graphc.fft.fft(a, b)
        return half, whole, graphc.fft.ifft(*whole), graphc.fft.irfft(*half, n=n)

    specs = graphc.spec(a.shape, dtype), graphc.spec(a.shape, dtype)
    half, whole, back, real = graphc.compile(every, *specs, device="reference")(a, b)
    expected = np.fft.rfft(a.astype(np.float64)), np.fft.fft(a.astype(np.float64) + 1j * b)
    tolerance = 2e-15 if dtype == "float64" else 1e-6
    for (x, y), z in zip((half, whole), expected, strict=True):
        close(x, z.real.astype(dtype), tolerance * 8)
        close(y, z.imag.astype(dtype), tolerance * 8)
    for x, y in ((back[0], a), (back[1], b), (real, a)):
        close(x, y, tolerance * 4)


SUBJECTS = {
    "rfft": (lambda a, b: graphc.fft.rfft(a), lambda t, a, b: t.fft.rfft(a)),
    "rfft of more": (
        lambda a, b: graphc.fft.rfft(a, n=a.shape[-1] + 3, norm="ortho"),
        lambda t, a, b: t.fft.rfft(a, n=a.shape[-1] + 3, norm="ortho"),
    ),
    "rfft of columns": (
        lambda a, b: graphc.fft.rfft(a, axis=0, norm="forward"),
        lambda t, a, b: t.fft.rfft(a, dim=0, norm="forward"),
    ),
    "irfft": (
        lambda a, b: (graphc.fft.irfft(a, b),),
        lambda t, a, b: t.fft.irfft(t.complex(a, b)),
    ),
    "irfft of odd size": (
        lambda a, b: (graphc.fft.irfft(a, b, n=2 * a.shape[-1] - 1, norm="ortho"),),
        lambda t, a, b: t.fft.irfft(t.complex(a, b), n=2 * a.shape[-1] - 1, norm="ortho"),
    ),
    "irfft of fewer": (
        lambda a, b: (graphc.fft.irfft(a, b, n=a.shape[-1], norm="forward"),),
        lambda t, a, b: t.fft.irfft(t.complex(a, b), n=a.shape[-1], norm="forward"),
    ),
    "fft": (
        lambda a, b: graphc.fft.fft(a, b, norm="ortho"),
        lambda t, a, b: t.fft.fft(t.complex(a, b), norm="ortho"),
    ),
    "fft of reals": (lambda a, b: graphc.fft.fft(a), lambda t, a, b: t.fft.fft(a)),
    "ifft": (
        lambda a, b: graphc.fft.ifft(a, b, n=a.shape[-1] - 1),
        lambda t, a, b: t.fft.ifft(t.complex(a, b), n=a.shape[-1] - 1),
    ),
}


@pytest.mark.parametrize("device", first_quick(1, DEVICES))
@pytest.mark.parametrize("n", [2, 7, 33, 90])
@pytest.mark.parametrize("name", SUBJECTS)
def test_gradients_of_gradients(torch: ModuleType, name: str, n: int, device: str) -> None:
    ours, theirs = SUBJECTS[name]

    def parts(a: Any, b: Any) -> Any:
        found = theirs(torch, a, b)
        return (found.real, found.imag) if found.is_complex() else (found,)

    # Squares, since what is linear has no second gradient.
    check(
        torch,
        lambda a, b: [y * y for y in ours(a, b)],
        lambda a, b: [y * y for y in parts(a, b)],
        (drawn(1, (3, n), "f8"), drawn(2, (3, n), "f8")),
        device=device,
    )


@pytest.mark.parametrize("device", DEVICES)
def test_no_samples(device: str) -> None:
    def every(a: Any) -> Any:
        return graphc.grad(lambda a: graphc.sum(graphc.fft.rfft(a)[0] ** 2))(a), graphc.fft.rfft(a)

    x = np.zeros((0, 90), np.float32)
    slope, (a, b) = graphc.compile(every, graphc.spec(x.shape), device=device)(x)
    assert slope.shape == x.shape and a.shape == b.shape == (0, 46)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("n", [5, 96])
def test_samples_have_the_bits_of_calls_of_their_own(n: int, device: str) -> None:
    def every(a: Any) -> Any:
        spectrum = graphc.fft.rfft(a)
        return (*spectrum, graphc.fft.irfft(*(y * y for y in spectrum), n=n))

    check_samples(every, [drawn(3, (4, 2, n), "f4")], device)


@pytest.mark.parametrize("seed", first_quick(1, range(8)))
def test_random_transforms_on_every_device(torch: ModuleType, seed: int) -> None:
    draw = random.Random(seed)
    shape = [draw.choice((1, 2, 5)), draw.choice((1, 7, 66, 130)), draw.choice((1, 3, 16))]
    axis, norm = draw.choice((-2, 1)), draw.choice(("backward", "ortho", "forward"))
    n = draw.choice((shape[1], shape[1] + 1, max(1, shape[1] // 2)))
    x = drawn(seed, shape, "f8")

    def ours(x: Any) -> Any:
        a, b = graphc.fft.rfft(x, n, axis, norm)
        return a, b, graphc.fft.irfft(a * b, b, n, axis, norm)

    def theirs(x: Any) -> Any:
        y = torch.fft.rfft(x, n, axis, norm)
        return (
            y.real,
            y.imag,
            torch.fft.irfft(torch.complex(y.real * y.imag, y.imag), n, axis, norm),
        )

    for device in DEVICES:
        check(torch, ours, theirs, [x], device=device)


def test_two_bytes_are_transformed_in_four() -> None:
    x = drawn(0, (2, 100), "f2")
    spec = graphc.spec(x.shape, "f16")
    a, b = graphc.compile(graphc.fft.rfft, spec, device="reference")(x)
    expected = np.fft.rfft(x.astype(np.float64))
    assert a.dtype == b.dtype == np.float16
    close(a, expected.real.astype("f2"), 1e-3)
    close(b, expected.imag.astype("f2"), 1e-3)


@pytest.mark.parametrize(
    "failure",
    [
        Failure(
            "fft: real and imaginary parts expected to have one shape, got f32[3] and f32[4]",
            lambda a, b: graphc.fft.fft(a, b),
            ("f32[3]", "f32[4]"),
        ),
        Failure(
            "rfft: expected a size n of 1 or more, got 0",
            lambda a: graphc.fft.rfft(a, n=0),
            ("f32[3]",),
        ),
        Failure(
            "irfft: expected a size n of 1 or more, got 0",
            lambda a: graphc.fft.irfft(a, a),
            ("f32[1]",),
        ),
        Failure(
            "rfft: expected norm to be one of 'backward', 'ortho', 'forward', got 'none'",
            lambda a: graphc.fft.rfft(a, norm="none"),
            ("f32[3]",),
        ),
        Failure(
            "rfft: axis 1 is out of range for x f32[3]",
            lambda a: graphc.fft.rfft(a, axis=1),
            ("f32[3]",),
        ),
    ],
    ids=str,
)
def test_mistakes(failure: Failure) -> None:
    failure.check()
