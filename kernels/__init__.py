"""Lowering: prints each kernel as C++ or CUDA from a template, a shape and functors."""

if __name__ != "graphc.kernels":  # found in a checkout by who looks for another package's `kernels`
    __path__ = []
