"""Linear algebra against PyTorch's: values, gradients and second gradients on every device."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from graphc import functions as f
from graphc import linalg
from tests.support.derivatives_against_torch import Array, check, check_samples, drawn
from tests.tools import first_quick, need_module

DEVICES = ("reference", "cpu", "sim")


@pytest.fixture(scope="module")
def torch() -> ModuleType:
    return need_module("torch")


@dataclass(frozen=True)
class Subject:
    """A function here and in PyTorch, and what makes its arguments of some size."""

    ours: Callable[..., Any]
    theirs: Callable[..., Any]
    inputs: Callable[[int, tuple[int, ...], str], list[Array]]


Inputs = Callable[[int, tuple[int, ...], str], list[Array]]


def any_matrix(rows: int = 0, columns: int = 0) -> Inputs:
    """Matrices with so many more rows and columns than the size, far from singular."""

    def make(n: int, leading: tuple[int, ...], dtype: str) -> list[Array]:
        m, k = n + rows, n + columns
        # Distinct singular values, so that derivatives stay moderate.
        return [drawn(n, (*leading, m, k), dtype) + 3 * np.eye(m, k, dtype=dtype) * n]

    return make


def spread(n: int, leading: tuple[int, ...], dtype: str, rows: int = 0) -> list[Array]:
    """Matrices whose singular values are far apart."""
    u = np.linalg.qr(drawn(n, (*leading, n + rows, n), "f8"))[0]
    v = np.linalg.qr(drawn(n + 1, (*leading, n, n), "f8"))[0]
    return [(u * (1.0 + np.arange(n)) @ v).astype(dtype)]


def symmetric(n: int, leading: tuple[int, ...], dtype: str) -> list[Array]:
    v = np.linalg.qr(drawn(n, (*leading, n, n), "f8"))[0]
    w = np.arange(n) - n / 3
    return [(v * w @ np.swapaxes(v, -1, -2)).astype(dtype)]


def positive(n: int, leading: tuple[int, ...], dtype: str) -> list[Array]:
    a = drawn(n, (*leading, n, n), "f8")
    return [(a @ np.swapaxes(a, -1, -2) / n + np.eye(n)).astype(dtype)]


def system(columns: int) -> Callable[[int, tuple[int, ...], str], list[Array]]:
    def make(n: int, leading: tuple[int, ...], dtype: str) -> list[Array]:
        return [*any_matrix()(n, leading, dtype), drawn(n + 1, (*leading, n, columns), dtype)]

    return make


def triangle(lower: bool, **flags: bool) -> Subject:
    def theirs(a: Any, b: Any) -> Any:
        import torch

        left, unit = flags.get("left", True), flags.get("unit", False)
        if flags.get("transposed"):
            a = a.mT
        upper = lower == flags.get("transposed", False)
        given = a.triu() if upper else a.tril()
        right = b if left else b.mT
        return torch.linalg.solve_triangular(
            given, right, upper=upper, left=left, unitriangular=unit
        )

    def ours(a: Any, b: Any) -> Any:
        right = b if flags.get("left", True) else f.matrix_transpose(b)
        return linalg.triangular_solve(a, right, lower, **flags)

    return Subject(ours, theirs, system(3))


def signed(u: Any, sign_of: Any) -> Any:
    """Columns with signs that do not depend on the algorithm."""
    return u * sign_of(u[..., :1, :])


def subjects() -> dict[str, Subject]:
    import torch

    t = torch.linalg

    def our_eigh(x: Any) -> Any:
        w, v = linalg.eigh(x)
        return w, signed(v, f.sign)

    def their_eigh(x: Any) -> Any:
        w, v = t.eigh((x + x.mT) / 2)
        return w, signed(v, torch.sign)

    def our_svd(x: Any) -> Any:
        u, s, v = linalg.svd(x, full_matrices=False)
        signs = f.sign(u[..., :1, :])
        return u * signs, s, v * f.matrix_transpose(signs)

    def their_svd(x: Any) -> Any:
        u, s, v = t.svd(x, full_matrices=False)
        signs = torch.sign(u[..., :1, :])
        return u * signs, s, v * signs.mT

    return {
        "cholesky": Subject(linalg.cholesky, lambda x: t.cholesky((x + x.mT) / 2), positive),
        "upper cholesky": Subject(
            lambda x: linalg.cholesky(x, upper=True),
            lambda x: t.cholesky((x + x.mT) / 2).mT,
            positive,
        ),
        "lower": triangle(True),
        "upper of ones": triangle(False, unit=True),
        "lower transposed": triangle(True, transposed=True),
        "upper on the right": triangle(False, left=False),
        "lower transposed on the right": triangle(True, left=False, transposed=True),
        "solve": Subject(linalg.solve, t.solve, system(4)),
        "inv": Subject(linalg.inv, t.inv, any_matrix()),
        "det": Subject(
            lambda x: linalg.det(x / x.shape[-1] / 3),
            lambda x: t.det(x / x.shape[-1] / 3),
            any_matrix(),
        ),
        "pinv": Subject(linalg.pinv, t.pinv, any_matrix()),
        "tall pinv": Subject(linalg.pinv, t.pinv, any_matrix(rows=3)),
        "wide pinv": Subject(linalg.pinv, t.pinv, any_matrix(columns=2)),
        "lstsq": Subject(linalg.lstsq, lambda a, b: t.pinv(a) @ b, system(2)),
        "slogdet": Subject(lambda x: linalg.slogdet(x)[1], lambda x: t.slogdet(x)[1], any_matrix()),
        "qr": Subject(linalg.qr, lambda x: tuple(t.qr(x)), any_matrix()),
        "tall qr": Subject(linalg.qr, lambda x: tuple(t.qr(x)), any_matrix(rows=3)),
        "wide qr": Subject(linalg.qr, lambda x: tuple(t.qr(x)), any_matrix(columns=2)),
        "eigh": Subject(our_eigh, their_eigh, symmetric),
        "eigvalsh": Subject(linalg.eigvalsh, lambda x: t.eigvalsh((x + x.mT) / 2), symmetric),
        "svd": Subject(our_svd, their_svd, spread),
        "tall svd": Subject(our_svd, their_svd, lambda *x: spread(*x, rows=3)),
        "wide svd": Subject(
            lambda x: our_svd(f.matrix_transpose(x)),
            lambda x: their_svd(x.mT),
            lambda *x: spread(*x, rows=2),
        ),
        "svdvals": Subject(linalg.svdvals, t.svdvals, lambda *x: spread(*x, rows=1)),
    }


need_module("torch")
SUBJECTS = subjects()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", SUBJECTS)
def test_values_and_gradients_of_every_order(torch: ModuleType, name: str, device: str) -> None:
    subject = SUBJECTS[name]
    for n in {"reference": (1, 2, 7), "cpu": (7,), "sim": (3,)}[device]:
        inputs = subject.inputs(n, (2,), "f8")
        check(torch, subject.ours, subject.theirs, inputs, device=device, tolerance=2e-9)


LARGER = first_quick(1, ((33, "f8"), (16, "f8"), (33, "f4"), (100, "f8")))


@pytest.mark.parametrize("size", LARGER)
@pytest.mark.parametrize("name", SUBJECTS)
def test_sizes_that_fill_groups_and_registers(
    torch: ModuleType, name: str, size: tuple[int, str]
) -> None:
    (n, dtype), subject = size, SUBJECTS[name]
    inputs = subject.inputs(n, (2,) if n < 100 else (), dtype)
    tolerance = 1e-8 if dtype == "f8" else 2e-3
    check(
        torch, subject.ours, subject.theirs, inputs,
        device="cpu", tolerance=tolerance, second=n == 16,
    )  # fmt: skip


DRAWS = 3
"""Of a size and a batch for each function."""
SLOW_AT_33 = ("pinv", "tall pinv", "wide pinv", "lstsq", "svd", "tall svd", "wide svd")
"""Functions whose second gradients the simulated GPU computes up to 16 rows only."""


@pytest.mark.parametrize("number", first_quick(3, range(DRAWS * len(SUBJECTS))))
def test_any_size_and_batch_on_the_simulated_gpu(torch: ModuleType, number: int) -> None:
    draw = random.Random(number)
    name = sorted(SUBJECTS)[number % len(SUBJECTS)]
    n = (1, 16, 33)[number // len(SUBJECTS)] if number % 2 else draw.choice((2, 3, 7))
    leading = draw.choice(((), (1,), (3,), (2, 2), (0,)))
    inputs = SUBJECTS[name].inputs(n, leading, "f8")
    second = n < 33 or name not in SLOW_AT_33
    subject = SUBJECTS[name]
    check(
        torch, subject.ours, subject.theirs, inputs, device="sim", tolerance=1e-8, second=second
    )  # fmt: skip


@pytest.mark.parametrize("device", first_quick(1, ["cpu", "reference", "sim"]))
@pytest.mark.parametrize("name", SUBJECTS)
def test_samples_have_the_bits_of_calls_of_their_own(name: str, device: str) -> None:
    subject = SUBJECTS[name]
    check_samples(subject.ours, subject.inputs(5, (3, 2), "f4"), device)


@pytest.mark.parametrize("seed", first_quick(3, range(18)))
def test_random_programs(torch: ModuleType, seed: int) -> None:
    """Chains of functions whose results are inputs of the next."""
    draw = random.Random(seed)
    n, device = draw.choice((1, 2, 5, 9)), DEVICES[seed % 3]
    leading = draw.choice(((), (3,), (2, 2), (0,)))
    steps = [draw.choice(sorted(STEPS)) for _ in range(3)]

    def run(module: Any, algebra: Any, transpose: Callable[[Any], Any], x: Any, y: Any) -> Any:
        for step in steps:
            x = STEPS[step](algebra, transpose, x, y)
            x = x / (1 + module.sum(x * x))
        return (x,)

    inputs = [drawn(seed, (*leading, n, n), "f8"), drawn(seed + 1, (*leading, n, n), "f8")]
    check(
        torch,
        lambda x, y: run(f, linalg, f.matrix_transpose, x, y),
        lambda x, y: run(torch, torch.linalg, lambda a: a.mT, x, y),
        inputs,
        device=device,
        tolerance=1e-7,
    )


def _positive(transpose: Any, x: Any) -> Any:
    n = x.shape[-1]
    return x @ transpose(x) + (np.eye(n) if not hasattr(x, "detach") else x.new_ones(n).diag())


STEPS: dict[str, Callable[[Any, Any, Any, Any], Any]] = {
    "cholesky": lambda a, t, x, y: a.cholesky(_positive(t, x)) + y,
    "solve": lambda a, t, x, y: a.solve(_positive(t, x), y),
    "inv": lambda a, t, x, y: a.inv(_positive(t, x)) - y,
    "slogdet": lambda a, t, x, y: x * a.slogdet(_positive(t, x))[1][..., None, None] + y,
    "qr": lambda a, t, x, y: a.qr(_positive(t, x + y))[0],
    "eigvalsh": lambda a, t, x, y: y * a.eigvalsh(_positive(t, x + y))[..., None, :],
    "svdvals": lambda a, t, x, y: y + a.svdvals(x + y)[..., None, :],
}
