"""Contractions: register tiles, their cost model, and the text of their kernels."""
