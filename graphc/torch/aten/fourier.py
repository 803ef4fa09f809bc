"""Complex numbers as pairs of real and imaginary parts, and Fourier transforms."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from graphc import fft
from graphc import functions as f
from graphc.base.errors import GraphError
from graphc.torch.aten.rules import aten, rule_of
from graphc.trace import Tensor

NORMS = ("backward", "ortho", "forward")
"""graphc's name of PyTorch's normalizations 0, 1 and 2 of a transform; an inverse has them in
reverse."""
MOVES = frozenset(
    "aten." + name
    for name in (
        "alias.default cat.default clone.default expand.default flip.default neg.default "
        "permute.default select.int slice.Tensor squeeze.dims sum.dim_IntList "
        "transpose.int unsqueeze.default view.default _unsafe_view.default "
        "constant_pad_nd.default mean.dim"
    ).split()
)
"""Operators that do the same to real and imaginary parts."""


@dataclass(frozen=True)
class Complex:
    """A tensor of complex numbers."""

    real: Tensor
    """The real parts."""
    imag: Tensor
    """The imaginary parts, of the same shape."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of both."""
        return self.real.shape


def holds_complex(arguments: Any) -> bool:
    """Return whether some argument, or an item of one, is complex."""
    if isinstance(arguments, tuple | list):
        return any(map(holds_complex, arguments))
    return isinstance(arguments, Complex)


def apply_complex(name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Return what an operator makes of complex numbers, or raise GraphError."""
    if name in MOVES:
        rule = rule_of(name)
        assert rule is not None, name
        return Complex(*(rule(*_part(args, part), **kwargs) for part in ("real", "imag")))
    if name not in RULES:
        raise GraphError(f"{name} of complex numbers is not offered")
    return RULES[name](*args, **kwargs)


def _part(arguments: Any, name: str) -> Any:
    if isinstance(arguments, tuple | list):
        return [_part(a, name) for a in arguments]
    return getattr(arguments, name) if isinstance(arguments, Complex) else arguments


def _pair(x: Any) -> Complex:
    if isinstance(x, Complex):
        return x
    if isinstance(x, complex):
        return Complex(f.as_tensor(x.real), f.as_tensor(x.imag))
    real = f.as_tensor(x)
    return Complex(real, f.zeros_like(real))


def _to_copy(x: Any, dtype: torch.dtype | None = None, **settings: Any) -> Any:
    found = _pair(x)
    return found if dtype is None or dtype.is_complex else found.real


def _plus(x: Any, y: Any, alpha: float = 1) -> Complex:
    a, b = _pair(x), _pair(y)
    return Complex(a.real + alpha * b.real, a.imag + alpha * b.imag)


def _minus(x: Any, y: Any, alpha: float = 1) -> Complex:
    return _plus(x, y, -alpha)


def _times(x: Any, y: Any) -> Complex:
    if not isinstance(y, Complex | complex):
        return Complex(x.real * y, x.imag * y)
    if not isinstance(x, Complex | complex):
        return _times(y, x)
    a, b = _pair(x), _pair(y)
    return Complex(a.real * b.real - a.imag * b.imag, a.real * b.imag + a.imag * b.real)


def _over(x: Any, y: Any) -> Complex:
    if not isinstance(y, Complex | complex):
        return Complex(x.real / y, x.imag / y)
    b = _pair(y)
    size = b.real * b.real + b.imag * b.imag
    return _times(_pair(x), Complex(b.real / size, -b.imag / size))


def _as_real(x: Complex) -> Tensor:
    return f.stack([x.real, x.imag], axis=-1)


def _as_complex(x: Tensor) -> Complex:
    return Complex(x[..., 0], x[..., 1])


def _conjugate(x: Complex) -> Complex:
    return Complex(x.real, -x.imag)


RULES: dict[str, Callable[..., Any]] = {
    "aten._to_copy.default": _to_copy,
    "aten.add.Tensor": _plus,
    "aten.sub.Tensor": _minus,
    "aten.mul.Tensor": _times,
    "aten.mul.Scalar": _times,
    "aten.div.Tensor": _over,
    "aten.div.Scalar": _over,
    "aten.view_as_real.default": _as_real,
    "aten.real.default": lambda x: x.real,
    "aten.imag.default": lambda x: x.imag,
    "aten._conj.default": _conjugate,
    "aten._conj_physical.default": _conjugate,
    "aten.abs.default": lambda x: f.hypot(x.real, x.imag),
    "aten.angle.default": lambda x: f.atan2(x.imag, x.real),
}
"""What operators make of complex numbers."""


@aten("complex")
def complex_of(real: Tensor, imag: Tensor) -> Complex:
    return Complex(real, imag)


@aten("view_as_complex")
def view_as_complex(x: Tensor) -> Complex:
    return _as_complex(x)


@aten("_neg_view")
def neg_view(x: Tensor) -> Tensor:
    return -x


@aten("_fft_r2c")
def fft_r2c(x: Tensor, dim: Sequence[int], normalization: int, onesided: bool) -> Complex:
    *others, last = dim
    transform = fft.rfft if onesided else fft.fft
    y = Complex(*transform(x, axis=last, norm=NORMS[normalization]))
    return fft_c2c(y, others, normalization, True)


def fft_c2c(x: Complex, dim: Sequence[int], normalization: int, forward: bool) -> Complex:
    norm = NORMS[normalization] if forward else NORMS[2 - normalization]
    for axis in dim:
        x = Complex(*(fft.fft if forward else fft.ifft)(x.real, x.imag, axis=axis, norm=norm))
    return x


def fft_c2r(x: Complex, dim: Sequence[int], normalization: int, last_dim_size: int) -> Tensor:
    *others, last = dim
    y = fft_c2c(x, others, normalization, False)
    return fft.irfft(y.real, y.imag, last_dim_size, last, NORMS[2 - normalization])


RULES["aten._fft_c2c.default"] = fft_c2c
RULES["aten._fft_c2r.default"] = fft_c2r
