"""Mutation testing: change one place of the sources at a time (docs/testing.md)."""
