"""Array functions, by the names of the Python Array API where it has them."""
