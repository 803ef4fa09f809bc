"""Compilers, their cache, and the shared objects that they build."""
