"""Launches that play several kernels cooperatively, and the shared memory that they keep."""
