"""Reductions: rows in the lanes, and sums over all rows."""
