"""Kernels whose launch is a call of cuBLASLt or cuDNN."""
