"""A body as straight-line code: statements over registers, identifiers, literals, special ops."""
