"""The register functions against double precision, over all of float32's range and its specials."""

from __future__ import annotations

import ctypes
import math
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from graphc.ops import REGISTRY, Pointwise
from graphc.ops.pointwise import special_values as values
from graphc.runtime.compilers.shared_objects import FLAGS, KERNEL_HEADERS, find_compiler

Array = np.ndarray

FUNCTIONS = {
    "exp": np.exp,
    "expm1": np.expm1,
    "log": np.log,
    "log1p": np.log1p,
    "tanh": np.tanh,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "erf": np.vectorize(math.erf),
    "floor": np.floor,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "exp2": np.exp2,
    "log2": np.log2,
    "log10": np.log10,
    "ceil": np.ceil,
    "round_even": np.rint,
    "trunc": np.trunc,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "erfc": values.erfc,
    "erfcx": values.erfcx,
    "erfinv": values.erfinv,
    "ndtri": values.ndtri,
    "lgamma": values.lgamma,
    "digamma": values.digamma,
    "polygamma<1>": lambda x: values.polygamma(1, x),
    "polygamma<2>": lambda x: values.polygamma(2, x),
    "polygamma<5>": lambda x: values.polygamma(5, x),
    "sinc": values.sinc,
    "i0e": lambda x: values.scaled_bessel(0, x),
    "i1e": lambda x: values.scaled_bessel(1, x),
}
"""The same function in double precision."""


def units_of(name: str) -> float:
    """What the op promises, in units of the last place."""
    op = REGISTRY[{"round_even": "round"}.get(name, name.split("<")[0])]
    assert issubclass(op, Pointwise)
    return op.units


def symbol(name: str) -> str:
    return name.strip(">").replace("<", "_")


PAIRS = ("pow", "maximum", "minimum", "atan2", "hypot", "copysign", "fmod", "nextafter")
"""Functions of two arguments."""

SOURCE = (
    '#include "cpu/shared/special.h"\nusing namespace graphc;\n'
    + "".join(
        f'extern "C" void one_{symbol(name)}(const float* x, float* y, long n) '
        f"{{ for (long i = 0; i < n; i += W) store(y + i, {name}(load(x + i))); }}\n"
        for name in FUNCTIONS
    )
    + "".join(
        f'extern "C" void two_{name}(const float* x, const float* z, float* y, long n) '
        f"{{ for (long i = 0; i < n; i += W) store(y + i, {name}(load(x + i), load(z + i))); }}\n"
        for name in PAIRS
    )
)
SPECIALS = [0, -0.0, 1, -1, 2, -2, 0.5, -0.5, np.inf, -np.inf, np.nan, 3, -3, 1e-40, 1e30, 7]


WIDTHS = (4, 8, 16)


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> dict[int, ctypes.CDLL]:
    """The functions at each width: the compiler emulates what the machine has not."""
    folder: Path = tmp_path_factory.mktemp("elementary")
    (folder / "functions.cpp").write_text(SOURCE)
    found = {}
    for width in WIDTHS:
        command = [*find_compiler().command, *FLAGS, "-Wno-psabi", f"-I{KERNEL_HEADERS}"]
        command += [f"-DGRAPHC_LANES={width}", str(folder / "functions.cpp")]
        subprocess.run([*command, "-o", str(folder / f"functions{width}.so")], check=True)
        found[width] = ctypes.CDLL(str(folder / f"functions{width}.so"))
    return found


@pytest.fixture(scope="module", params=WIDTHS, ids=lambda n: f"{n} lanes")
def library(request: pytest.FixtureRequest, libraries: dict[int, ctypes.CDLL]) -> ctypes.CDLL:
    return libraries[request.param]


def call(library: ctypes.CDLL, name: str, *inputs: Array) -> Array:
    result = np.empty_like(inputs[0])
    pointers = [a.ctypes.data_as(ctypes.c_void_p) for a in (*inputs, result)]
    getattr(library, name)(*pointers, ctypes.c_long(result.size))
    return result


def every_kind_of_float(step: int = 40_009) -> Array:
    """Floats of all exponents and signs, infinities and NaN, and many of ordinary size."""
    bits = np.arange(0, 2**32, step, dtype=np.uint64).astype(np.uint32).view(np.float32)
    normal = np.random.default_rng(0).normal(scale=4, size=40_000).astype(np.float32)
    x = np.concatenate([bits, normal, np.array(SPECIALS, np.float32)])
    return np.ascontiguousarray(x[x.size % 16 :])


def check(got: Array, exact: Array, units: float) -> None:
    """Equal NaN, infinities and signs of zero; else within `units` of the last place."""
    with np.errstate(all="ignore"):
        want = exact.astype(np.float32)
        np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
        infinite = np.isinf(got) | np.isinf(want)
        np.testing.assert_array_equal(got[infinite], want[infinite])
        finite = np.isfinite(want)
        error = np.abs(got[finite].astype(np.float64) - exact[finite])
        assert np.max(error / np.spacing(np.abs(want[finite]))) <= units


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_are_within_a_few_units_of_the_last_place(
    library: ctypes.CDLL, name: str
) -> None:
    x = every_kind_of_float()
    function, units = FUNCTIONS[name], units_of(name)
    with np.errstate(all="ignore"):
        check(call(library, f"one_{symbol(name)}", x), function(x.astype(np.float64)), units)


def test_functions_have_the_same_bits_at_every_width(libraries: dict[int, ctypes.CDLL]) -> None:
    """NaN may differ in what it carries."""
    x = every_kind_of_float(70_001)
    far = np.random.default_rng(1).permutation(x)
    for name in [*map("one_{}".format, map(symbol, FUNCTIONS)), *map("two_{}".format, PAIRS)]:
        inputs = (x, far) if name.startswith("two") else (x,)
        first, *others = (call(libraries[width], name, *inputs) for width in WIDTHS)
        for other in others:
            same = (first.view(np.int32) == other.view(np.int32)) | np.isnan(first) & np.isnan(
                other
            )
            assert same.all(), (name, x[~same][:4], first[~same][:4], other[~same][:4])


def test_pow_is_exact_on_specials_and_close_elsewhere(library: ctypes.CDLL) -> None:
    specials = np.array(SPECIALS, np.float32)
    x, y = np.repeat(specials, specials.size), np.tile(specials, specials.size)
    random = np.random.default_rng(0)
    x = np.concatenate([x, np.abs(random.normal(scale=3, size=16_000)).astype(np.float32)])
    y = np.concatenate([y, random.normal(scale=8, size=16_000).astype(np.float32)])
    with np.errstate(all="ignore"):
        exact = np.power(x.astype(np.float64), y.astype(np.float64))
    check(call(library, "two_pow", x, y), exact, units_of("pow"))


def test_maximum_of_anything_and_nan_is_nan(library: ctypes.CDLL) -> None:
    specials = np.array(SPECIALS, np.float32)
    x, y = np.repeat(specials, specials.size), np.tile(specials, specials.size)
    check(call(library, "two_maximum", x, y), np.maximum(x, y).astype(np.float64), 0.0)


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("atan2", np.arctan2),
        ("hypot", np.hypot),
        ("copysign", np.copysign),
        ("fmod", np.fmod),
        ("nextafter", lambda x, y: np.nextafter(x.astype("f4"), y.astype("f4"))),
    ],
)
def test_functions_of_two_are_exact_on_specials_and_close_elsewhere(
    library: ctypes.CDLL, name: str, function: Callable[..., Array]
) -> None:
    specials = np.array(SPECIALS, np.float32)
    x, y = np.repeat(specials, specials.size), np.tile(specials, specials.size)
    random = np.random.default_rng(0).normal(scale=8, size=(2, 16_000)).astype(np.float32)
    x, y = np.concatenate([x, random[0]]), np.concatenate([y, random[1]])
    with np.errstate(all="ignore"):
        exact = function(x.astype(np.float64), y.astype(np.float64))
    check(call(library, f"two_{name}", x, y), exact, units_of(name))
