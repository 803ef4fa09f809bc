"""Pointwise kernels and conversions of layouts."""
