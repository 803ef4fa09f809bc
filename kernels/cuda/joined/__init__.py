"""Cooperative launches that run several kernels, with rows kept in shared memory."""
