"""Kernels as plain C11, for any C compiler."""
