"""Linear algebra and Fourier transforms of PyTorch's models."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphc
from graphc.base.errors import GraphError
from tests.tools import need_module

torch = need_module("torch")
t, fft = torch.linalg, torch.fft

X = np.random.default_rng(0).normal(size=(2, 4, 4)).astype(np.float32)
P = X @ np.swapaxes(X, 1, 2) + np.eye(4, dtype=np.float32)

MATRICES: dict[str, Callable[[Any], Any]] = {
    "cholesky": t.cholesky,
    "upper cholesky": lambda x: t.cholesky(x, upper=True),
    "solve": lambda x: t.solve(x, x[:, :, 0]),
    "solve on the right": lambda x: t.solve(x, x + 1, left=False),
    "inv": torch.inverse,
    "det": t.det,
    "slogdet": t.slogdet,
    "logdet": torch.logdet,
    "qr": t.qr,
    "complete qr": lambda x: (lambda q, r: (q[:, :, :2], r))(*t.qr(x[:, :, :2], "complete")),
    "r": lambda x: t.qr(x, mode="r")[1],
    "eigh": lambda x: (t.eigh(x)[0], t.eigh(x)[1] ** 2),
    "eigvalsh": t.eigvalsh,
    "eigvalsh of a triangle": lambda x: t.eigvalsh(x + x[:, :1], UPLO="L"),
    "eigvalsh of the other": lambda x: t.eigvalsh(x + x[:, :1], UPLO="U"),
    "cholesky of a triangle": lambda x: t.cholesky(x + torch.triu(x, 1)),
    "upper cholesky of a triangle": lambda x: t.cholesky(x + torch.tril(x, -1), upper=True),
    "differences": lambda x: torch.cdist(torch.cat([x, x / 0]), torch.cat([x, x]), p=0.0),
    "svd": lambda x: [abs(y) for y in t.svd(x[:, :3], full_matrices=True)],
    "thin svd": lambda x: [abs(y) for y in t.svd(x[:, :3], full_matrices=False)],
    "svdvals": t.svdvals,
    "nuclear norm": lambda x: t.matrix_norm(x, "nuc"),
    "solve_triangular": lambda x: t.solve_triangular(x, x + 1, upper=True, unitriangular=True),
    "cholesky_solve": lambda x: torch.cholesky_solve(x + 1, x),
    "cholesky_inverse": lambda x: torch.cholesky_inverse(x[0], upper=True),
}
TRANSFORMS: dict[str, Callable[[Any], Any]] = {
    "spectrum": lambda x: torch.view_as_real(fft.rfft(x, norm="ortho")),
    "magnitude": lambda x: fft.rfft(x, n=5).abs(),
    "angle": lambda x: fft.rfft(x).angle().cos(),
    "fnet": lambda x: fft.fft(fft.fft(x, dim=-1), dim=-2).real,
    "fft2": lambda x: fft.fft2(x).imag,
    "fftn": lambda x: fft.fftn(x, dim=(1, 2), norm="forward").real,
    "inverse": lambda x: fft.ifft(x, norm="ortho").imag,
    "back": lambda x: fft.irfft(fft.rfft(x), n=4),
    "rfft2": lambda x: fft.irfft2(fft.rfft2(x) * (2 + 1j), s=(4, 4)),
    "filter": lambda x: fft.irfft(fft.rfft(x) * torch.complex(x[0, 0, :3], x[0, 1, :3]), n=4),
    "quotient": lambda x: (fft.fft(x) / (fft.fft(x + 3) + 1j) - x).real,
    "stft": lambda x: torch.stft(x[0], 4, 2, window=torch.ones(4), return_complex=True).abs(),
    "moved": lambda x: fft.fft(x).mT[:, 1:].unsqueeze(1).conj().imag,
}


class Model(torch.nn.Module):
    def __init__(self, function: Callable[[Any], Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Any) -> Any:
        return self.function(x)


@pytest.mark.parametrize("name", [*MATRICES, *TRANSFORMS])
def test_from_torch_computes_the_same(name: str) -> None:
    x = P if name in MATRICES else X
    model = Model({**MATRICES, **TRANSFORMS}[name])
    module = graphc.from_torch(model, torch.from_numpy(x))
    found = graphc.compile(module, graphc.spec(x.shape), device="reference")(x)
    wanted = model(torch.from_numpy(x))
    pairs = (found, wanted) if isinstance(found, tuple | list) else ([found], [wanted])
    for a, b in zip(*pairs, strict=True):
        np.testing.assert_allclose(a, b.resolve_neg().numpy(), rtol=2e-4, atol=2e-4)


def test_what_complex_numbers_have_no_rule_for_is_said() -> None:
    with pytest.raises(GraphError) as found:
        graphc.from_torch(Model(lambda x: fft.rfft(x).exp().real), torch.from_numpy(X))
    assert "aten.exp.default: aten.exp.default of complex numbers is not offered" in str(
        found.value
    )


def test_results_are_real() -> None:
    with pytest.raises(GraphError) as found:
        graphc.from_torch(Model(fft.rfft), torch.from_numpy(X))
    message = "from_torch: Model returns complex numbers: torch.view_as_real makes two of one"
    assert str(found.value).startswith(f"{message} (test_torch_linear.py:")


@pytest.mark.parametrize("name", ["cholesky", "solve", "slogdet", "eigvalsh", "svdvals"])
def test_the_backend_takes_matrices(name: str) -> None:
    x = torch.from_numpy(P).clone().requires_grad_()
    function = MATRICES[name]

    def loss(x: Any) -> Any:
        results = function(x @ x.mT)
        results = results if isinstance(results, tuple | list) else [results]
        return sum((y * y).sum() for y in results if y.requires_grad)

    wanted = torch.autograd.grad(loss(x), x)[0]
    got = torch.autograd.grad(torch.compile(loss, backend="graphc")(x), x)[0]
    torch.testing.assert_close(got, wanted, rtol=1e-3, atol=1e-3)
