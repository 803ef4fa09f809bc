"""Passes that simplify a graph to fewer nodes."""
