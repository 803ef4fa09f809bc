"""Fused nodes as CUDA C++: the templates are the .cuh files, what prints their use the others."""

assert __name__ == "graphc.kernels.cuda", f"import graphc.kernels.cuda, not {__name__}"
