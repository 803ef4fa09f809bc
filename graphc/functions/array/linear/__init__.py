"""Matrix products and functions of matrices."""
