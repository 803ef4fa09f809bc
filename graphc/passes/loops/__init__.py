"""Work taken out of loops, and what loops store."""
