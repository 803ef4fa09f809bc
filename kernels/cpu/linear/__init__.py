"""Factorizations of matrices."""
