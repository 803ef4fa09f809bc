"""Registers of elements of eight bytes at every width and instruction set: the bits are NumPy's."""

from __future__ import annotations

import ctypes
import math
import platform
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from graphc.kernels.cpu.prefix.prefix import state_text
from graphc.ops.combine import SUM
from graphc.runtime.compilers.shared_objects import (
    FLAGS,
    KERNEL_HEADERS,
    cpu_features,
    find_compiler,
)

Array = np.ndarray

SETS = {
    "x86-64": (),
    "haswell": ("avx2", "fma", "bmi2", "f16c"),
    "skylake-avx512": ("avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512cd", "clflushopt"),
}
"""What a CPU must have for code of this `-march`."""

COMPARISONS = {
    "less": ("<", np.less),
    "less_equal": ("<=", np.less_equal),
    "greater": (">", np.greater),
    "greater_equal": (">=", np.greater_equal),
    "equal": ("==", np.equal),
    "not_equal": ("!=", np.not_equal),
}
FLOATS: dict[str, Callable[..., Array]] = {
    "maximum": np.maximum,
    "minimum": np.minimum,
    "copysign": np.copysign,
    "floor_divide": np.floor_divide,
    "remainder": np.remainder,
    "fmod": np.fmod,
    "nextafter": np.nextafter,
    "relu_grad": lambda d, y: np.where(y <= 0, 0, d),
}
INTEGERS: dict[str, Callable[..., Array]] = {
    "maximum": np.maximum,
    "minimum": np.minimum,
    "floor_divide": np.floor_divide,
    "remainder": np.remainder,
    "fmod": np.fmod,
    "gcd": np.gcd,
    "left_shift": lambda a, b: np.where((b < 0) | (b > 63), 0, np.left_shift(a, b)),
    "right_shift": lambda a, b: np.right_shift(a, np.where(b < 0, 63, b)),
    "pow": np.power,
}
EITHER_ZERO = ("maximum", "minimum", "floor_divide", "remainder")
ONE: dict[str, Callable[..., Array]] = {
    "abs": np.abs,
    "sqrt": np.sqrt,
    "floor": np.floor,
    "ceil": np.ceil,
    "trunc": np.trunc,
    "round_even": np.rint,
    "relu": lambda x: np.where(x <= 0, 0, x),
}
TYPES = {
    "f64": ("double", np.float64),
    "f32": ("float", np.float32),
    "i64": ("int64_t", np.int64),
    "i32": ("int32_t", np.int32),
    "i8": ("int8_t", np.int8),
    "u8": ("uint8_t", np.uint8),
}
CONVERSIONS = [(a, b) for a in TYPES for b in TYPES if a != b and {a, b} & {"f64", "i64"}]


def each(name: str, arguments: str, body: str) -> str:
    """A function over n elements, a register of `i` at a time."""
    loop = f"for (long i = 0; i < n; i += W) {{ {body} }}"
    return f'extern "C" void {name}({arguments}, long n) {{ {loop} }}\n'


def source() -> str:
    lines = ['#include "cpu/prefix/prefix.h"\nusing namespace graphc;\n']
    for kind in ("f64", "i64"):
        c = TYPES[kind][0]
        lines.append(f"namespace {kind} {{\n{state_text(SUM, kind)}}}\n")
        two, one = f"const {c}* x, const {c}* z", f"const {c}* x"
        for name, (operator, _) in COMPARISONS.items():
            text = f"store(y + i, as_mask(load(x + i) {operator} load(z + i)));"
            lines.append(each(f"{kind}_{name}", f"{two}, bool* y", text))
        for name in FLOATS if kind == "f64" else INTEGERS:
            text = f"store(y + i, {name}(load(x + i), load(z + i)));"
            lines.append(each(f"{kind}_{name}", f"{two}, {c}* y", text))
        chosen = "store(y + i, select({}, load(x + i), load(z + i)));"
        lines.append(
            each(f"{kind}_where", f"{two}, const bool* m, {c}* y", chosen.format("load(m + i)"))
        )
        lines.append(
            each(f"{kind}_lesser", f"{two}, {c}* y", chosen.format("load(x + i) < load(z + i)"))
        )
        lines.append(
            each(f"{kind}_nonzero", f"{one}, bool* y", "store(y + i, to_bool(load(x + i)));")
        )
        lines.append(
            each(
                f"{kind}_counted",
                f"const bool* x, {c}* y",
                f"store(y + i, from_bool<{c}>(load(x + i)));",
            )
        )
        parts = "".join(
            f"if (n == {n} && {n} <= W) store<least({n}, W)>(y, load<least({n}, W)>(x));"
            for n in range(1, 17)
        )
        lines.append(f'extern "C" void {kind}_part({one}, {c}* y, long n) {{ {parts} }}\n')
        turned = "to_lanes<W, W>(x, y, 0, n);"
        lines.append(f'extern "C" void {kind}_turned({one}, {c}* y, long n) {{ {turned} }}\n')
        for reverse in ("false", "true"):
            scan = f"{kind}::State block[1] = {{{{load(x + i)}}}}; "
            scan += f"scan_block<{reverse}, W, 1>(block); store(y + i, block[0].value);"
            lines.append(each(f"{kind}_sums_{reverse}", f"{one}, {c}* y", scan))
    for name in ONE:
        lines.append(
            each(f"f64_{name}", "const double* x, double* y", f"store(y + i, {name}(load(x + i)));")
        )
    for a, b in CONVERSIONS:
        (c, _), (d, _) = TYPES[a], TYPES[b]
        lines.append(
            each(
                f"{a}_to_{b}", f"const {c}* x, {d}* y", f"store(y + i, convert<{d}>(load(x + i)));"
            )
        )
    words = "vec<uint32_t> high, low; multiply(0xD2511F53u, load(x + i), high, low);"
    words += " store(y + i, high); store(z + i, low);"
    lines.append(each("words", "const uint32_t* x, uint32_t* y, uint32_t* z", words))
    lines.append('extern "C" long lanes_of_a_register() { return W; }\n')
    return "".join(lines)


def builds() -> list[tuple[str, str]]:
    if platform.machine() != "x86_64":
        return [("native", "4")]
    return [*((name, "") for name in SETS), *(("native", str(n)) for n in (4, 8, 16))]


@pytest.fixture(scope="module", params=builds(), ids=lambda b: "-".join(filter(None, b)))
def library(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory):
    """The functions for an instruction set, or at a width that the compiler emulates."""
    march, width = request.param
    if not set(SETS.get(march, ())) <= set(" ".join(cpu_features()).split()):
        pytest.skip(f"this CPU does not run code for {march}")
    folder: Path = tmp_path_factory.mktemp("wide")
    (folder / "functions.cpp").write_text(source())
    flags = [f"-march={march}" if f == "-march=native" else f for f in FLAGS]
    flags += [f"-DGRAPHC_LANES={width}"] if width else []
    command = [*find_compiler().command, *flags, f"-I{KERNEL_HEADERS}"]
    command += [str(folder / "functions.cpp"), "-o", str(folder / "functions.so")]
    subprocess.run(command, check=True)
    return ctypes.CDLL(str(folder / "functions.so"))


def call(library: ctypes.CDLL, name: str, dtype: object, *inputs: Array, n: int = 0) -> Array:
    result = np.zeros(inputs[0].size, dtype)
    pointers = [ctypes.c_void_p(a.ctypes.data) for a in (*inputs, result)]
    getattr(library, name)(*pointers, ctypes.c_long(n or result.size))
    return result


def same(got: Array, expected: Array, zeros_are_equal: bool = False) -> None:
    """Equal bits, but that any NaN is as good as another, and any zero if it says so."""
    assert got.dtype == expected.dtype
    np.testing.assert_array_equal(got, expected)
    if got.dtype.kind == "f" and not zeros_are_equal:
        number = ~np.isnan(expected)
        np.testing.assert_array_equal(np.signbit(got[number]), np.signbit(expected[number]))


def numbers(kind: str) -> Array:
    """Those where something may go wrong, and others; a multiple of 16 of them."""
    random = np.random.default_rng(0)
    if kind in ("f64", "f32"):
        special = [0.0, -0.0, 1, -1, 0.5, -0.5, 2.5, 1e300, -1e-300, math.inf, -math.inf, math.nan]
        special += [7, -7, 2**52 + 0.5, 3]
        with np.errstate(over="ignore"):
            return np.array([*special, *random.normal(scale=9, size=32)], TYPES[kind][1])
    dtype = TYPES[kind][1]
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    special = [low, high, low + 1, high - 1, 0, 1, 2, 3, 5, 63, 64, 65]
    some = [*special, *random.integers(low, high, 20, dtype), *random.integers(0, 99, 16)]
    return np.array(some, dtype)


def pairs(kind: str) -> tuple[Array, Array]:
    x = numbers(kind)
    return np.repeat(x, x.size), np.tile(x, x.size)


@pytest.mark.parametrize("kind", ["f64", "i64"])
def test_comparisons_and_selections_are_numpys(library: ctypes.CDLL, kind: str) -> None:
    x, z = pairs(kind)
    for name, (_, meaning) in COMPARISONS.items():
        same(call(library, f"{kind}_{name}", bool, x, z), meaning(x, z))
    condition = np.random.default_rng(1).random(x.size) < 0.5
    same(call(library, f"{kind}_where", x.dtype, x, z, condition), np.where(condition, x, z))
    same(call(library, f"{kind}_lesser", x.dtype, x, z), np.where(x < z, x, z))
    same(call(library, f"{kind}_nonzero", bool, x), x != 0)
    same(call(library, f"{kind}_counted", x.dtype, condition), condition.astype(x.dtype))


@pytest.mark.parametrize("kind", ["f64", "i64"])
def test_functions_of_two_are_numpys(library: ctypes.CDLL, kind: str) -> None:
    x, z = pairs(kind)
    for name, meaning in (FLOATS if kind == "f64" else INTEGERS).items():
        a, b = (x, z) if name != "pow" else (x, np.clip(z, 0, 99))
        with np.errstate(all="ignore"):
            expected = meaning(a, b)
        got = call(library, f"{kind}_{name}", x.dtype, a, b)
        same(got, expected.astype(x.dtype), zeros_are_equal=name in EITHER_ZERO)


def test_functions_of_one_are_numpys(library: ctypes.CDLL) -> None:
    x = numbers("f64")
    for name, meaning in ONE.items():
        with np.errstate(all="ignore"):
            same(call(library, f"f64_{name}", x.dtype, x), meaning(x).astype(x.dtype))


@pytest.mark.parametrize(("source", "target"), CONVERSIONS)
def test_conversions_are_numpys(library: ctypes.CDLL, source: str, target: str) -> None:
    x, dtype = numbers(source), TYPES[target][1]
    if source in ("f64", "f32") and target not in ("f64", "f32"):
        least, most = max(np.iinfo(dtype).min, -(2**62)), min(np.iinfo(dtype).max, 2**62)
        x = np.clip(np.nan_to_num(x), least, most).astype(x.dtype)
    with np.errstate(over="ignore"):
        same(call(library, f"{source}_to_{target}", dtype, x), x.astype(dtype))


@pytest.mark.parametrize("kind", ["f64", "i64"])
def test_elements_stay_where_they_are_told(library: ctypes.CDLL, kind: str) -> None:
    width = library.lanes_of_a_register()
    x = np.arange(1, 257).astype(TYPES[kind][1])
    for live in range(1, width + 1):
        got = call(library, f"{kind}_part", x.dtype, x, n=live)
        same(got, np.where(np.arange(x.size) < live, x, 0))
    got = call(library, f"{kind}_turned", x.dtype, x, n=width)[: width * width]
    same(got, np.ascontiguousarray(x[: width * width].reshape(width, width).T).reshape(-1))
    rows = x.reshape(-1, width)
    same(call(library, f"{kind}_sums_false", x.dtype, x), np.cumsum(rows, 1).reshape(-1))
    reverse = np.cumsum(rows[:, ::-1], 1)[:, ::-1].reshape(-1)
    same(call(library, f"{kind}_sums_true", x.dtype, x), reverse)


def test_words_of_products_are_those_of_python(library: ctypes.CDLL) -> None:
    x = np.random.default_rng(0).integers(0, 2**32, 64, np.uint32)
    low = np.zeros_like(x)
    high = np.zeros_like(x)
    pointers = [ctypes.c_void_p(a.ctypes.data) for a in (x, high, low)]
    library.words(*pointers, ctypes.c_long(x.size))
    products = [int(v) * 0xD2511F53 for v in x]
    assert high.tolist() == [p >> 32 for p in products]
    assert low.tolist() == [p & 0xFFFFFFFF for p in products]
