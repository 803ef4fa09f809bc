"""Foundations of every other package: errors, settings, dtypes, files, source lines."""
