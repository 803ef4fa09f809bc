"""Fewer and simpler nodes."""
