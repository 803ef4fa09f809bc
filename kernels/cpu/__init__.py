"""Fused nodes as C++: the templates are the .h files, what prints their use the others."""

assert __name__ == "graphc.kernels.cpu", f"import graphc.kernels.cpu, not {__name__}"
