"""Kernels apart from any device: domains and accesses, bodies as statements, nests of contractions,
rows of reductions."""
