"""Lowering: each kernel is a template, a shape and functors, printed as C++ or CUDA."""

if __name__ != "graphc.kernels":  # found in a checkout by who looks for another package's `kernels`
    __path__ = []
