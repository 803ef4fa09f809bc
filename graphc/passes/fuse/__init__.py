"""Passes that fuse nodes into kernels."""
