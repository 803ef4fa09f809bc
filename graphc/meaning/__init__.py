"""Whether passes keep the meaning of a graph: proved by comparing terms, else tried in NumPy."""
