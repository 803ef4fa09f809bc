"""Products, parts and traces of matrices."""
