"""Scans, and the graphs of their bodies."""
