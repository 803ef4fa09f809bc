"""Contractions: register tiles, their costs, and the text of their kernels."""
