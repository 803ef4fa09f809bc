"""CUDA kernels: fused nodes as CUDA C++. The .cuh files are the templates, the Python modules print
their use."""

assert __name__ == "graphc.kernels.cuda", f"import graphc.kernels.cuda, not {__name__}"
