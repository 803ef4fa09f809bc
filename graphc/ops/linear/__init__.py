"""Factorizations of matrices, and what solves systems by them."""
