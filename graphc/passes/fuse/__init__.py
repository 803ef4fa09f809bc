"""Nodes gathered into kernels."""
