"""Prove that passes keep the meaning of a graph, by comparing terms, or try it in NumPy."""
