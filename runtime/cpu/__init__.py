"""The CPU: generated C++ kernels, played by a native player."""
