"""How one kernel computes its node: a template, a shape and functors, printed as C++ or CUDA."""

assert __name__ == "graphc.kernels", f"import graphc.kernels, not {__name__}"
