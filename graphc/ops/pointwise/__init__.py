"""Ops that compute each element from elements at the same place."""
