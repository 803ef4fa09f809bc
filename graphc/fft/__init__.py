"""Discrete Fourier transforms, with real and imaginary parts as two tensors.

Transforms of any size are products with constant matrices, so that they have gradients of any
order, batches and kernels as all products have.
"""

from graphc.fft.transforms import fft, ifft, irfft, rfft

__all__ = ["fft", "ifft", "irfft", "rfft"]


def __dir__() -> list[str]:
    return __all__
