"""Shared by all CPU templates: vectors, conversions, elementary functions, random numbers."""
