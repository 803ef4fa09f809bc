"""The CPU device: generated C++ kernels, run by a native player."""
