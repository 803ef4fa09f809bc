"""Passes that move work out of loops and choose what loops store."""
