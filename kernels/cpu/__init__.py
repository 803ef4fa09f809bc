"""CPU kernels: fused nodes as C++. The .h files are the templates, the Python modules print their
use."""

assert __name__ == "graphc.kernels.cpu", f"import graphc.kernels.cpu, not {__name__}"
