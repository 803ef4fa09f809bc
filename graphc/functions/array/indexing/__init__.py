"""Elements named by indices: taken, put, subscripts."""
