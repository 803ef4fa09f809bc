"""A body as straight-line code: statements over registers, names, literals, special ops."""
